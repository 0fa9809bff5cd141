"""Decides outcome and p of a hypothesis, from an interval and a threshold.

A failed request counts as infinitely slow, so an end that reaches one is open. The other end stays valid: an
interval with its lower end above a threshold is above it, whatever the failed requests' latencies. A decision
that needs the open end is undetermined.
"""

from collections.abc import Callable

from connector_tax.base.documents.aggregate import Effect, Outcome
from connector_tax.base.documents.aggregate import effect_of as effect_of
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.p_values import p_of

SUPPORTED: Outcome = "supported"
REFUTED: Outcome = "refuted"
UNDETERMINED: Outcome = "undetermined"
NOT_TESTABLE: Outcome = "not testable"
TAX: Effect = "tax"
GAIN: Effect = "gain"
NO_TAX_FOUND: Effect = "no_tax_found"

# Lower and upper end of an interval, None if unbounded -> outcome.
Judge = Callable[[float | None, float | None], Outcome]


def against(
    threshold: float, low: float | None, high: float | None, *, above: Outcome, below: Outcome
) -> Outcome:
    """Return ``above`` or ``below`` if the whole interval lies on one side of the threshold."""
    if low is not None and low >= threshold:
        return above
    return below if high is not None and high < threshold else UNDETERMINED


def inside(bounds: tuple[float, float], low: float | None, high: float | None) -> Outcome:
    """Return supported if the whole interval lies in the range, refuted if outside, else undetermined."""
    if low is not None and high is not None and bounds[0] <= low and high <= bounds[1]:
        return SUPPORTED
    if (low is not None and low > bounds[1]) or (high is not None and high < bounds[0]):
        return REFUTED
    return UNDETERMINED


def grows(low: float | None, high: float | None) -> Outcome:
    """Return supported for a slope above zero, refuted for one below, else undetermined."""
    return {TAX: SUPPORTED, GAIN: REFUTED}.get(effect_of(low, high), UNDETERMINED)


def p_of_outcome(
    estimate: Estimate,
    confidence: float,
    judge: Judge,
    outcome: Outcome,
    *,
    where_a_tax: Estimate | None = None,
) -> float | None:
    """Return the p of an outcome; None if it is undetermined.

    Args:
        where_a_tax: a tax that must be significant as well; the larger p is then the outcome's.
    """
    if outcome == UNDETERMINED:
        return None
    p_values = [p_of(estimate, confidence, lambda *ends: judge(*ends) == outcome)]
    if where_a_tax is not None:
        p_values.append(p_of(where_a_tax, confidence, lambda *ends: effect_of(*ends) == TAX))
    return max(p for p in p_values if p is not None)
