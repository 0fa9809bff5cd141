"""p of a decision: the interval that decides, inverted."""

from collections.abc import Callable

from connector_tax.base.statistics.bootstrap import Estimate

# Halvings of the range of p, on the log scale.
HALVINGS = 50

# Whether an interval, from its lower end to its upper one, decides.
Decides = Callable[[float | None, float | None], bool]


def p_of(estimate: Estimate, confidence: float, decides: Decides) -> float | None:
    """Return the smallest p at which the interval of confidence 1 - p decides; None where the one of
    ``confidence`` does not.

    It is never above ``1 - confidence``, and not below what the interval can tell (``Estimate.least_p``).

    Args:
        confidence: of the interval that is printed beside it.
    """
    if not decides(*estimate.interval(confidence)):
        return None
    high = 1 - confidence
    low = min(estimate.least_p, high)
    if decides(*estimate.interval(1 - low)):
        return low
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if decides(*estimate.interval(1 - middle)) else (middle, high)
    return high


def holm(p_values: list[float | None], tests: int) -> list[float | None]:
    """Adjust p values by Holm's step-down (1979), so that together they err as rarely as one should.

    Args:
        p_values: None where a test decided nothing; it counts among ``tests`` all the same.
        tests: how many were made.
    """
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    decided = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    for rank, (p_value, k) in enumerate(decided):
        largest = max(largest, min(1.0, (tests - rank) * p_value))
        adjusted[k] = largest
    return adjusted
