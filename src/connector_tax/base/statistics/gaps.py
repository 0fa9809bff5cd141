"""ITL: percentiles of the gaps between reads, resampled by blocks of requests, since one answer's gaps depend
on each other.
"""

from collections.abc import Sequence

import numpy as np

from connector_tax.base.statistics.bootstrap import (
    COUNTS_AT_ONCE,
    Estimate,
    freedom_of,
    small_sample_factor,
    student_factor,
    unavailable,
    widened,
)
from connector_tax.base.statistics.resampling import Floats, counts_of, draw_starts

# Gaps are counted in bins whose edges are quantiles of all gaps, denser towards the top.
LOWER_BINS, UPPER_BINS = 1000, 1000
# With fewer, all resamples may lie on one side of the percentile.
FEWEST_ANSWERS = 10


def read_gaps_ms(token_ns: Sequence[int]) -> Floats:
    """Return the gaps between reads that brought tokens of one answer; tokens of one read have no gap.

    Args:
        token_ns: when each token was read.
    """
    gaps_ms: Floats = np.diff(np.asarray(token_ns, dtype=np.float64)) / 1e6
    return gaps_ms[gaps_ms > 0]


def gap_percentiles(
    gaps: Sequence[Floats],
    qs: tuple[float, ...],
    draws: int,
    rng: np.random.Generator,
    *,
    length: int,
    confidence: float,
) -> dict[float, Estimate]:
    """Return point and resamples of each percentile of all gaps together.

    Points are exact; a resample's percentile is the upper edge of its bin, one of two thousand.

    Args:
        gaps: one array per request, in time order; milliseconds; empty for an answer of one read.
        length: requests per block.
    """
    gaps = [of_one for of_one in gaps if of_one.size]
    n = len(gaps)
    if not n:
        return {q: unavailable("no_token_times") for q in qs}
    every = np.concatenate(gaps)
    points = {q: float(np.percentile(every, q)) for q in qs}
    if n < FEWEST_ANSWERS:
        return {q: Estimate(points[q], np.empty(0), every.size, "few_answers") for q in qs}
    length = min(length, n // 5)
    edges = _edges(every)
    # Counts of each request's gaps per bin.
    owner = np.repeat(np.arange(n), [g.size for g in gaps])
    bins = np.searchsorted(edges, every)
    table = np.bincount(owner * edges.size + bins, minlength=n * edges.size).reshape(n, edges.size)
    below = np.cumsum(table, axis=1).astype(np.float64)
    wider = small_sample_factor(n, length, confidence)
    found: dict[float, list[Floats]] = {q: [] for q in qs}
    starts = draw_starts(n, draws, rng, length)
    at_once = max(1, min(draws, COUNTS_AT_ONCE // max(n, edges.size)))
    for first in range(0, draws, at_once):
        counts = counts_of(starts[:, first : first + at_once].copy(), n, length).T.astype(np.float64)
        drawn = counts @ below
        for q in qs:
            rank = drawn[:, -1:] * (q / 100)
            found[q].append(edges[np.argmax(drawn >= rank, axis=1)])
    freedom = freedom_of(n, length)
    return {
        q: Estimate(
            points[q],
            widened(points[q], np.concatenate(found[q]), wider),
            every.size,
            widened_by=student_factor(freedom, confidence),
            freedom=freedom,
            confidence=confidence,
        )
        for q in qs
    }


def _edges(every: Floats) -> Floats:
    """Return the upper edges of the bins; the last one is the largest gap."""
    lower = np.linspace(0, 90, LOWER_BINS, endpoint=False)
    upper = np.linspace(90, 100, UPPER_BINS + 1)
    edges: Floats = np.unique(np.percentile(every, np.concatenate([lower, upper]), method="higher"))
    return edges
