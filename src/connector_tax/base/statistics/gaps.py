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
    gaps = [answer_gaps for answer_gaps in gaps if answer_gaps.size]
    n = len(gaps)
    if not n:
        return {q: unavailable("no_token_times") for q in qs}
    all_gaps = np.concatenate(gaps)
    points = {q: float(np.percentile(all_gaps, q)) for q in qs}
    if n < FEWEST_ANSWERS:
        return {q: Estimate(points[q], np.empty(0), all_gaps.size, "few_answers") for q in qs}
    length = min(length, n // 5)
    edges = _edges(all_gaps)
    # Counts of each request's gaps per bin.
    answer_index = np.repeat(np.arange(n), [g.size for g in gaps])
    bins = np.searchsorted(edges, all_gaps)
    table = np.bincount(answer_index * edges.size + bins, minlength=n * edges.size).reshape(n, edges.size)
    cumulative_counts = np.cumsum(table, axis=1).astype(np.float64)
    widening = small_sample_factor(n, length, confidence)
    percentiles: dict[float, list[Floats]] = {q: [] for q in qs}
    starts = draw_starts(n, draws, rng, length)
    at_once = max(1, min(draws, COUNTS_AT_ONCE // max(n, edges.size)))
    for first in range(0, draws, at_once):
        counts = counts_of(starts[:, first : first + at_once].copy(), n, length).T.astype(np.float64)
        drawn_counts = counts @ cumulative_counts
        for q in qs:
            rank = drawn_counts[:, -1:] * (q / 100)
            percentiles[q].append(edges[np.argmax(drawn_counts >= rank, axis=1)])
    freedom = freedom_of(n, length)
    return {
        q: Estimate(
            points[q],
            widened(points[q], np.concatenate(percentiles[q]), widening),
            all_gaps.size,
            widened_by=student_factor(freedom, confidence),
            freedom=freedom,
            confidence=confidence,
        )
        for q in qs
    }


def _edges(all_gaps: Floats) -> Floats:
    """Return the upper edges of the bins; the last one is the largest gap."""
    lower = np.linspace(0, 90, LOWER_BINS, endpoint=False)
    upper = np.linspace(90, 100, UPPER_BINS + 1)
    edges: Floats = np.unique(np.percentile(all_gaps, np.concatenate([lower, upper]), method="higher"))
    return edges
