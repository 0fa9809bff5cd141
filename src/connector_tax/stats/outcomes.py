"""From an interval and a threshold to the outcome of a hypothesis, and its p."""

from collections.abc import Callable

from connector_tax.intervals.bootstrap import Estimate
from connector_tax.stats.p_values import p_of

SUPPORTED, REFUTED, UNDETERMINED, NOT_TESTABLE = "supported", "refuted", "undetermined", "not testable"

# Lower and upper end of an interval, None where unbounded -> outcome.
Judge = Callable[[float | None, float | None], str]


def against(threshold: float, low: float | None, high: float | None, *, above: str, below: str) -> str:
    if low is not None and low >= threshold:
        return above
    if high is not None and high < threshold:
        return below
    return UNDETERMINED


def inside(bounds: tuple[float, float], low: float | None, high: float | None) -> str:
    if low is not None and high is not None and bounds[0] <= low and high <= bounds[1]:
        return SUPPORTED
    if (low is not None and low > bounds[1]) or (high is not None and high < bounds[0]):
        return REFUTED
    return UNDETERMINED


def grows(low: float | None, high: float | None) -> str:
    if low is not None and low > 0:
        return SUPPORTED
    return REFUTED if high is not None and high < 0 else UNDETERMINED


def p_of_outcome(
    estimate: Estimate, confidence: float, judge: Judge, outcome: str, *, where_a_tax: Estimate | None = None
) -> float | None:
    """None where the outcome is open, whatever keeps it so.

    Args:
        where_a_tax: a tax that must be told from zero as well; the larger of both p is then that of the outcome.
    """
    if outcome == UNDETERMINED:
        return None
    found = [p_of(estimate, confidence, lambda low, high: judge(low, high) == outcome)]
    if where_a_tax is not None:
        found.append(p_of(where_a_tax, confidence, lambda low, high: low is not None and low > 0))
    return max(p for p in found if p is not None)
