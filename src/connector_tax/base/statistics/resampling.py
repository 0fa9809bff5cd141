"""Percentiles of block resamples, from counts of each observation instead of the drawn observations.

One draw of counts serves every column and percentile of a cell. Each column is sorted once, and a percentile
is searched near the sample's own.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.seeds import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.signedinteger[Any]]


def block_counts(n: int, draws: int, rng: np.random.Generator, length: int) -> Counts:
    """Count how often each of ``n`` observations, in time order, is in each resample; shape (n, draws).

    Every column sums to ``n``: the last block is cut to fit. Blocks wrap around the end, so that all
    observations are equally likely.
    """
    return counts_of(draw_starts(n, draws, rng, length), n, length)


def draw_starts(n: int, draws: int, rng: np.random.Generator, length: int) -> Ints:
    """Draw where the blocks of each resample begin; shape (blocks, draws)."""
    return rng.integers(0, n, size=(math.ceil(n / length), draws))


def counts_of(starts: Ints, n: int, length: int) -> Counts:
    """Return ``block_counts`` for blocks with these starts."""
    blocks, draws = starts.shape
    ends = starts + length
    ends[-1] += n - length * blocks
    wraps = ends >= n
    ends[wraps] -= n
    # +1 at a block's start, -1 behind its end; the running sum counts the blocks over a place.
    column = np.arange(draws)
    # Half the bytes take half the time.
    kind: type[np.signedinteger[Any]] = np.int16 if n <= np.iinfo(np.int16).max else np.int32
    changes = np.bincount((starts * draws + column).ravel(), minlength=n * draws).astype(kind)
    changes -= np.bincount((ends * draws + column).ravel(), minlength=n * draws).astype(kind)
    counts: Counts = changes.reshape(n, draws)
    counts[0] += wraps.sum(axis=0, dtype=kind)
    return np.cumsum(counts, axis=0, dtype=kind, out=counts)


@dataclass(frozen=True, slots=True)
class _Near:
    """Sorted places around one percentile, which contain it in nearly every resample.

    Attributes:
        rank, weight: the percentile lies at this fraction between this order statistic and the next.
        low, high: the places, [low, high).
        under, under_last: number of observations below ``low`` in a block that starts here; shape (n,). The
            last block is shorter.
    """

    rank: int
    weight: float
    low: int
    high: int
    under: Ints | None = None
    under_last: Ints | None = None

    def below(self, starts: Ints | None) -> Ints | int:
        """Count the observations of each resample that lie below ``low``; shape (draws,)."""
        if self.under is None or self.under_last is None or starts is None:
            return 0
        n_below: Ints = self.under[starts[:-1]].sum(axis=0) + self.under_last[starts[-1]]
        return n_below


@dataclass(frozen=True, slots=True)
class SortedColumn:
    """Values of one column, sorted once for all resamples.

    Attributes:
        order: places in time of the sorted values.
        near: percentile -> where to search it.
    """

    order: Ints
    ordered: Floats
    near: dict[float, _Near]

    @classmethod
    def of(cls, values: Floats, qs: tuple[float, ...], length: int | None = None) -> "SortedColumn":
        """Sort a column; ``length`` is of the blocks, None: search percentiles everywhere."""
        order = np.argsort(values, kind="stable")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        return cls(order, values[order], {q: _near(ranks, q, length) for q in qs})

    def percentiles(self, q: float, counts: Counts, starts: Ints | None) -> Floats:
        """Return the percentile of each resample; shape (draws,)."""
        near, n = self.near[q], self.order.size
        if self.ordered[0] == self.ordered[-1]:
            return np.full(counts.shape[1], self.ordered[0])
        below = near.below(starts)
        cumulative = np.cumsum(counts[self.order[near.low : near.high]], axis=0, dtype=np.int32)
        cumulative += np.asarray(below, dtype=np.int32)
        first, second = (near.low + _first_above(cumulative, r) for r in (near.rank, near.rank + 1))
        outside = (np.asarray(below) > near.rank) | (cumulative[-1] <= near.rank + 1)
        if near.high - near.low < n and outside.any():
            everything = np.cumsum(counts[:, outside][self.order], axis=0, dtype=np.int32)
            first[outside] = _first_above(everything, near.rank)
            second[outside] = _first_above(everything, near.rank + 1)
        low = self.ordered[first]
        if near.weight == 0:
            return low
        high = self.ordered[np.minimum(second, n - 1)]
        with np.errstate(invalid="ignore"):
            between = low + near.weight * (high - low)
        return np.where(np.isinf(high), np.inf, between)


def _near(ranks: Ints, q: float, length: int | None) -> _Near:
    """Return the places within five standard deviations of a resample's count below the percentile."""
    n = ranks.size
    position = (n - 1) * q / 100
    rank = math.floor(position)
    everywhere = _Near(rank, position - rank, 0, n)
    if length is None:
        return everywhere
    blocks = math.ceil(n / length)
    spread = _in_blocks(ranks <= rank, length).std() * math.sqrt(blocks)
    reach = math.ceil(5 * spread) + 2
    if 2 * reach > n // 2:
        return everywhere
    low, high = max(0, rank - reach), min(n, rank + reach)
    under, last = ranks < low, n - length * (blocks - 1)
    return _Near(rank, position - rank, low, high, _in_blocks(under, length), _in_blocks(under, last))


def _in_blocks(chosen: NDArray[np.bool_], length: int) -> Ints:
    """Count the chosen among the ``length`` observations from each place on, with wrap-around; shape (n,)."""
    n = chosen.size
    running = np.concatenate([[0], np.cumsum(np.concatenate([chosen, chosen[:length]]), dtype=np.int64)])
    counts: Ints = running[length : length + n] - running[:n]
    return counts


def _first_above(cumulative: NDArray[np.int32], rank: int) -> Ints:
    """Count the entries at most ``rank`` in each non-decreasing column, by bisection of all at once."""
    n, draws = cumulative.shape
    column = np.arange(draws)
    counts = np.zeros(draws, dtype=np.int64)
    for bit in reversed(range(n.bit_length())):
        candidates = counts + (1 << bit)
        inside = candidates <= n
        counts[inside] = np.where(
            cumulative[candidates[inside] - 1, column[inside]] <= rank, candidates[inside], counts[inside]
        )
    return counts


# Resamples the same arrivals in every cell of one schedule.
#
# Configurations get the same requests at the same times, so all cells see the same bursts, which mostly
# cancel in a ratio of two cells. Blocks that begin at the same arrivals make intervals reflect that;
# ``tests/perf/coverage.py`` counts their coverage and how much narrower they are.

# Windows of one schedule differ by a few requests, since warm-up ends with the first completion: with 98 of
# 100 arrivals in a cell, three candidates miss it once in 125,000 times. With stopping rules one window may
# be a sixteenth of another; 60 % of its blocks are then its own, and its taxes wider than necessary.
TRIES = 8


@dataclass(frozen=True, slots=True)
class CommonArrivals:
    """Draws a cell's blocks as the other cells of its schedule do, in place of ``draw_starts``.

    Attributes:
        seed, names: of the random streams that those cells share.
        axis: arrivals in any of their windows, [first, last).
        seqs: arrivals of this cell, in order; shape (n,).
    """

    seed: int
    names: tuple[str, ...]
    axis: tuple[int, int]
    seqs: Ints

    def __call__(self, n: int, draws: int, rng: np.random.Generator, length: int) -> Ints:
        """Return where the blocks of each resample begin, as rows of this cell; shape (blocks, draws).

        Candidates are drawn among the arrivals of all cells, and a block begins at the first that this cell
        has. All rows are equally likely, whatever the other cells have; the more arrivals two cells share,
        the more of their blocks begin together. Starts that no candidate found come from ``rng``.
        """
        first, last = self.axis
        row_of = np.full(last - first, -1, dtype=np.int64)
        row_of[self.seqs - first] = np.arange(n)
        starts = np.full((math.ceil(n / length), draws), -1, dtype=np.int64)
        for k in range(TRIES):
            # A stream per try: a cell with more blocks draws the others' first.
            candidates = stream(self.seed, "arrivals", *self.names, k).integers(0, last - first, starts.shape)
            starts = np.where(starts < 0, row_of[candidates], starts)
            if starts.min() >= 0:
                return starts
        unmatched = starts < 0
        starts[unmatched] = rng.integers(0, n, int(unmatched.sum()))
        return starts
