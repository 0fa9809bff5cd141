"""From an interval and a threshold to the outcome of a hypothesis, and its p; and where an interval lies to
zero.

A request that failed counts as infinitely slow, so an end that reaches one is open. The other end stands:
what lies above a threshold with its lower end is above it, whatever the failed requests would have made of
the upper one. What needs the open end is undetermined.
"""

from collections.abc import Callable

from connector_tax.base.documents.aggregate import Interval, Outcome, Told
from connector_tax.base.documents.aggregate import told as told
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.p_values import p_of

SUPPORTED: Outcome = "supported"
REFUTED: Outcome = "refuted"
UNDETERMINED: Outcome = "undetermined"
NOT_TESTABLE: Outcome = "not testable"
TAX: Told = "tax"
GAIN: Told = "gain"
NO_TAX_FOUND: Told = "no_tax_found"
# Of a ratio: an interval that holds zero and is wider says neither that there is a tax nor that there is none
# worth speaking of.
WIDEST_RATIO = 1.0

# Lower and upper end of an interval, None where unbounded -> outcome.
Judge = Callable[[float | None, float | None], Outcome]


def unresolved(value: Interval, unit: str = "ratio") -> bool:
    """Whether the interval holds zero and is so wide that "no tax found" would say more than it does."""
    if unit != "ratio" or value.low is None or value.high is None:
        return False
    return value.told == NO_TAX_FOUND and value.high - value.low > WIDEST_RATIO


def against(
    threshold: float, low: float | None, high: float | None, *, above: Outcome, below: Outcome
) -> Outcome:
    if low is not None and low >= threshold:
        return above
    return below if high is not None and high < threshold else UNDETERMINED


def inside(bounds: tuple[float, float], low: float | None, high: float | None) -> Outcome:
    if low is not None and high is not None and bounds[0] <= low and high <= bounds[1]:
        return SUPPORTED
    if (low is not None and low > bounds[1]) or (high is not None and high < bounds[0]):
        return REFUTED
    return UNDETERMINED


def grows(low: float | None, high: float | None) -> Outcome:
    word = told(low, high)
    return SUPPORTED if word == TAX else REFUTED if word == GAIN else UNDETERMINED


def p_of_outcome(
    estimate: Estimate,
    confidence: float,
    judge: Judge,
    outcome: Outcome,
    *,
    where_a_tax: Estimate | None = None,
) -> float | None:
    """None where the outcome is open, whatever keeps it so.

    Args:
        where_a_tax: a tax that must be told from zero as well; the larger of both p is then that of the
            outcome.
    """
    if outcome == UNDETERMINED:
        return None
    found = [p_of(estimate, confidence, lambda low, high: judge(low, high) == outcome)]
    if where_a_tax is not None:
        found.append(p_of(where_a_tax, confidence, lambda low, high: told(low, high) == TAX))
    return max(p for p in found if p is not None)
