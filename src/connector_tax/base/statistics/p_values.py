"""Computes the p of a decision by inverting the deciding interval."""

from collections.abc import Callable

from connector_tax.base.statistics.bootstrap import Estimate

# Bisection steps for p, on the log scale.
HALVINGS = 50

# Returns whether an interval (lower end, upper end) decides.
Decides = Callable[[float | None, float | None], bool]


def p_of(estimate: Estimate, confidence: float, decides: Decides) -> float | None:
    """Return the smallest p whose interval of confidence 1 - p decides; None if the printed one does not.

    It is at most ``1 - confidence``, and at least what the interval can resolve (``Estimate.least_p``).

    Args:
        confidence: of the interval printed beside it.
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
    """Adjust p values by Holm's step-down (1979), which controls the error rate of all tests together.

    Args:
        p_values: None for a test that decided nothing; it still counts among ``tests``.
        tests: how many were made.
    """
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    decided = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    for rank, (p_value, k) in enumerate(decided):
        largest = max(largest, min(1.0, (tests - rank) * p_value))
        adjusted[k] = largest
    return adjusted
