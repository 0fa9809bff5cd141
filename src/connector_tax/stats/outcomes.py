"""From an interval and a threshold to the outcome of a hypothesis, and its p; and where an interval lies to zero.

An interval with an open end decides nothing: what the requests that failed would have made of it is not known.
"""

from collections.abc import Callable
from typing import TypeGuard

from connector_tax.intervals.bootstrap import Estimate
from connector_tax.stats.p_values import p_of

SUPPORTED, REFUTED, UNDETERMINED, NOT_TESTABLE = "supported", "refuted", "undetermined", "not testable"
TAX, GAIN, NO_TAX_FOUND = "tax", "gain", "no_tax_found"

# Lower and upper end of an interval, None where unbounded -> outcome.
Judge = Callable[[float | None, float | None], str]
Ends = tuple[float | None, float | None]


def is_closed(ends: Ends) -> TypeGuard[tuple[float, float]]:
    """Whether both ends are known."""
    return None not in ends


def told(low: float | None, high: float | None) -> str:
    """``tax`` or ``gain`` where the interval excludes zero, ``no_tax_found`` where it holds it, ``undetermined`` with an open end."""
    ends = (low, high)
    if not is_closed(ends):
        return UNDETERMINED
    return TAX if ends[0] > 0 else GAIN if ends[1] < 0 else NO_TAX_FOUND


def against(threshold: float, low: float | None, high: float | None, *, above: str, below: str) -> str:
    ends = (low, high)
    if not is_closed(ends):
        return UNDETERMINED
    return above if ends[0] >= threshold else below if ends[1] < threshold else UNDETERMINED


def inside(bounds: tuple[float, float], low: float | None, high: float | None) -> str:
    ends = (low, high)
    if not is_closed(ends):
        return UNDETERMINED
    if bounds[0] <= ends[0] and ends[1] <= bounds[1]:
        return SUPPORTED
    return REFUTED if ends[0] > bounds[1] or ends[1] < bounds[0] else UNDETERMINED


def grows(low: float | None, high: float | None) -> str:
    return {TAX: SUPPORTED, GAIN: REFUTED}.get(told(low, high), UNDETERMINED)


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
        found.append(p_of(where_a_tax, confidence, lambda low, high: told(low, high) == TAX))
    return max(p for p in found if p is not None)
