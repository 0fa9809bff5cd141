"""Decisions from intervals: the outcome and p of a hypothesis, shares of a tax, differences."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from connector_tax.base.documents.aggregate import Effect, Outcome
from connector_tax.base.documents.aggregate import effect_of as effect_of
from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.base.statistics.resampling import Floats

# Decides outcome and p of a hypothesis, from an interval and a threshold.
#
# A failed request counts as infinitely slow, so an end that reaches one is open. The other end stays valid:
# an interval with its lower end above a threshold is above it, whatever the failed requests' latencies. A
# decision that needs the open end is undetermined.

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


# Computes the p of a decision by inverting the deciding interval.

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


# The share of one tax in a connector's, for instance the no-op connector's.


def share_of(part: Estimate, whole: Estimate, confidence: float) -> Estimate:
    """Return ``part / whole``, both of which have a number; a gain has no shares."""
    combined = combine(part, whole)
    assert part.point is not None and whole.point is not None
    if not whole.point:
        return unavailable("zero", combined.n)
    if effect_of(*whole.interval(confidence)) == GAIN:
        return unavailable("no_tax", combined.n)
    share = combined.estimate(part.point / whole.point, shares(*combined.replicates))
    # Open ends of part and whole have their own reason.
    known = None not in (*part.interval(confidence), *whole.interval(confidence))
    open_end = known and None in share.interval(confidence)
    return replace(share, reason="open_tax") if open_end else share


def shares(part: Floats, whole: Floats) -> Floats:
    """Return resamples of a share of a tax; infinite, with the part's sign, if the tax is not positive.

    A share grows without bound as the whole shrinks to zero. Below zero the quotient would return from the
    other side, as small or negative shares, and the interval would end too low.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = np.where(part == 0, np.nan, np.copysign(np.inf, part))
        ratios: Floats = np.where(whole > 0, part / whole, beyond)
    ratios[np.isnan(part) | np.isnan(whole)] = np.nan
    return ratios


# Computes the difference of two independent numbers from their intervals alone, without resamples.
#
# MOVER, the method of variance estimates recovery: the distance from a point to its bound is its
# uncertainty on that side, and such distances of independent numbers add in squares. Skewed intervals stay
# skewed.
# Source: Zou & Donner 2008, Statistics in Medicine 27, 1693-1702.

# Point, lower and upper end; an end that is None is unbounded.
Bounded = tuple[float, float | None, float | None]


def independent_difference(first: Bounded, second: Bounded) -> Bounded:
    """Return ``second - first``; both intervals and the result have one confidence.

    The lower end is unbounded if the second's lower or the first's upper end is; the upper end likewise.
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    point = b - a
    low = None if b_low is None or a_high is None else point - math.hypot(b - b_low, a_high - a)
    high = None if b_high is None or a_low is None else point + math.hypot(b_high - b, a - a_low)
    return point, low, high
