"""What launches of plain differ by: from one to the next, over a campaign, and so what tax a campaign can find."""

import math

import numpy as np

from connector_tax.base.documents.aggregate import Bounds, Drift
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.drift import line_through_blocks
from connector_tax.base.statistics.laws import chi_square_quantile
from connector_tax.read.stats.launches import Launches, log_ratios, plains
from connector_tax.read.stats.power import MOST_LOG, found_by_blocks


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
