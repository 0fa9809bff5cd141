"""What launches of plain differ by, and the smallest tax that would be found: at 80 % power, by one launch and by so many blocks of launches.

What launches differ by is known from few blocks, and so is the tax that they would find: over blocks it has an interval.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from connector_tax.base.documents.aggregate import Bounds, Drift, Power, Repeats
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.drift import line_through_blocks
from connector_tax.base.statistics.laws import chi_square_quantile, normal_quantile, student_quantile
from connector_tax.read.stats.launches import Launches, log_ratios, plains
from connector_tax.read.stats.taxes import LATENCY_METRICS, Tax

POWER = 0.8
BLOCKS = (3, 5, 10, 20)
# Of a change of a latency: beyond it the number is none that anybody could use.
MOST_LOG = math.log(1e6)


def smallest_detectable(
    standard_error: float, *, freedom: int | None = None, confidence: float = 0.95, power: float = POWER
) -> float:
    """How far from zero the truth must lie for its two-sided interval to exclude zero with ``power``.

    Args:
        standard_error: of the estimate, on the scale on which it is near normal.
        freedom: degrees of freedom of Student's t; None for a normal estimate.
    """
    tail = (1 - confidence) / 2
    if freedom is None:
        return (normal_quantile(power) - normal_quantile(tail)) * standard_error
    critical = float(-student_quantile(tail, freedom))

    def found_at(distance: float) -> float:
        return 1 - float(special.nctdtr(freedom, distance, critical))

    low, high = 0.0, critical + 20.0
    # With two degrees of freedom and 99.99 % the critical value is 100, and power comes slowly.
    while found_at(high) < power:
        high *= 2
    # Halved until no number lies between; scipy.optimize takes longer to import.
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if found_at(middle) >= power else (middle, high)
    return high * standard_error


def found_by_blocks(sd: float, known_from: int, blocks: int, confidence: float) -> Bounds | None:
    """The tax that ``blocks`` blocks find with ``POWER``, as a ratio; ``low`` and ``high`` are the ends of an interval of ``confidence``.

    The deviation's own chi-square interval: a deviation of five blocks may be 0.6 or 2.9 times what it is taken for. ``point`` is as often above
    the truth as below it, which the deviation itself is not.

    Args:
        sd: of one block's log ratio, as it was estimated.
        known_from: how many blocks it was estimated from.
        blocks: of the campaign that is to find it.

    Returns:
        None where the upper end is a number that nobody could use.
    """
    freedom, tail = known_from - 1, (1 - confidence) / 2
    one = smallest_detectable(1 / math.sqrt(blocks), freedom=blocks - 1, confidence=confidence)
    low, point, high = (
        one * sd * math.sqrt(freedom / float(chi_square_quantile(q, freedom))) for q in (1 - tail, 0.5, tail)
    )
    if high > MOST_LOG:
        return None
    return Bounds(point=math.expm1(point), low=math.expm1(low), high=math.expm1(high))


def outlook(taxes: Sequence[Tax], repeats: Sequence[Repeats], confidence: float) -> list[Power]:
    """``power`` in ``aggregate.json``: of each main tax at ref_safe, what would have been found.

    ``one_launch`` knows nothing of what launches differ by; ``by_blocks`` does, and is there only where blocks were launched.

    Args:
        taxes: the chosen ones of one launch each.
    """
    spread = {
        (tax.config, entry.metric): (tax.sd, tax.n)
        for entry in repeats
        if entry.reference == "ref_safe"
        for tax in entry.taxes
    }
    found = []
    for tax in taxes:
        metric = next((m for m in LATENCY_METRICS if m == tax.metric), None)
        if tax.reference != "ref_safe" or metric is None:
            continue
        error = _log_error(tax.estimate)
        own = spread.get((tax.config, metric))
        found.append(
            Power(
                config=tax.config,
                metric=metric,
                power=POWER,
                one_launch=None
                if error is None
                else math.expm1(smallest_detectable(error, confidence=confidence)),
                by_blocks=None
                if own is None
                else {str(n): found_by_blocks(*own, n, confidence) for n in BLOCKS},
            )
        )
    return found


def _log_error(tax: Estimate) -> float | None:
    """Standard deviation of the log ratio over resamples; None where some are not finite."""
    ratios = 1 + tax.replicates
    if tax.point is None or ratios.size < 2 or not (np.isfinite(ratios) & (ratios > 0)).all():
        return None
    return float(np.log(ratios).std(ddof=1))


def found_four_times_in_five(launches: Launches, blocks: list[str], confidence: float) -> Bounds | None:
    """The tax that as many blocks find with 80 % power, if launches of a connector differ as those of plain do; see ``found_by_blocks``.

    A tax is taken against the mean of two launches of plain, so its variance is three quarters of that of plain against plain.
    """
    sd = math.sqrt(0.75) * float(log_ratios(launches, blocks, PLAIN_AGAIN).std(ddof=1))
    return found_by_blocks(sd, len(blocks), len(blocks), confidence)


def between_launches(launches: Launches, blocks: list[str], confidence: float) -> Bounds | None:
    """Standard deviation of one launch's log percentile beyond what its own requests leave open; None where the latter is not known.

    Of the difference of plain's two launches in each block; the interval is the chi-square one of its variance.
    """
    within = within_launches(launches, blocks)
    if within is None:
        return None
    differences = log_ratios(launches, blocks, PLAIN_AGAIN)
    freedom = differences.size - 1
    variance = float(differences.var(ddof=1))
    tail = (1 - confidence) / 2
    low, high = (variance * freedom / float(chi_square_quantile(q, freedom)) for q in (1 - tail, tail))
    # The difference of two launches holds twice the variance of one.
    point, low, high = (math.sqrt(max(0.0, v / 2 - within**2)) for v in (variance, low, high))
    return Bounds(point=point, low=low, high=high)


def within_launches(launches: Launches, blocks: list[str]) -> float | None:
    """Root mean square over plain's launches; None where one is not known."""
    within = [x.within_sd for x in plains(launches, blocks)]
    if any(math.isnan(w) for w in within):
        return None
    return math.sqrt(float(np.mean(np.square(within))))


def drift(launches: Launches, blocks: list[str], confidence: float) -> Drift | None:
    """How much plain's percentile changed from its first launch to its last, on a straight line; None where there is none that says so."""
    points = [(x.block, x.start_h, x.log_latency) for x in plains(launches, blocks)]
    line = line_through_blocks(points, confidence)
    if line is None or max(abs(line.low), abs(line.high)) > MOST_LOG:
        return None
    return Drift(
        change=Bounds(point=math.expm1(line.change), low=math.expm1(line.low), high=math.expm1(line.high)),
        p_value=line.p_value,
        hours=line.span_h,
    )
