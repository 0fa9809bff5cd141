"""Confidence intervals by resampling blocks, because requests of one cell queue behind each other.

Circular block bootstrap (Politis & Romano 1992) with percentile intervals. The block length is
ceil(n^(1/3)), the rate at which the bias and the variance of the method balance (Hall, Horowitz &
Jing 1995). A resample is held as how often it has each observation: one draw of such counts serves
every metric and every percentile of a cell, and keeps them joint.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.summary.percentiles import percentile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.signedinteger[Any]]

# Counts (observations x draws) held at once; 4 MB stay in the cache, which is four times faster than not.
COUNTS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its resamples.

    Attributes:
        point: None where it is unavailable; ``reason`` then says why.
        replicates: shape (draws,). +infinity where a resample's percentile met an unfinished request;
            NaN where two such met, so that their ratio or difference is anything.
        n: observations behind it.
    """

    point: float | None
    replicates: Floats
    n: int
    reason: str | None = None

    def interval(self, confidence: float) -> tuple[float | None, float | None]:
        """Equal-tailed; a bound that is not finite is None.

        A resample that could be anything counts as lowest for the lower bound and as highest for the
        upper one: it makes the interval wider, never narrower.
        """
        if self.point is None or self.replicates.size == 0:
            return None, None
        tail = (1 - confidence) / 2
        unknown = np.isnan(self.replicates)
        # Order statistics, not interpolation: half of infinity is not a bound.
        low = np.quantile(np.where(unknown, -np.inf, self.replicates), tail, method="nearest")
        high = np.quantile(np.where(unknown, np.inf, self.replicates), 1 - tail, method="nearest")
        return _finite(low), _finite(high)

    def to_json(self, confidence: float) -> dict[str, Any]:
        low, high = self.interval(confidence)
        value: dict[str, Any] = {"point": self.point, "low": low, "high": high, "n": self.n}
        if self.reason is not None:
            value["reason"] = self.reason
        elif high is None or low is None:
            value["reason"] = "the interval reaches requests that failed or did not finish"
        return value


def unavailable(reason: str, n: int = 0) -> Estimate:
    return Estimate(None, np.empty(0), n, reason)


def block_length(n: int) -> int:
    return max(1, math.ceil(math.cbrt(n)))


def block_counts(n: int, draws: int, rng: np.random.Generator) -> Counts:
    """How often each of ``n`` observations, in time order, is in each resample; shape (n, draws).

    Every column sums to ``n``: the last block is cut to fit. Blocks wrap around the end, so no
    observation is rarer than another.
    """
    return _counts_of(_draw_starts(n, draws, rng), n)


def _draw_starts(n: int, draws: int, rng: np.random.Generator) -> Ints:
    """Where the blocks of each resample begin; shape (blocks, draws)."""
    return rng.integers(0, n, size=(math.ceil(n / block_length(n)), draws))


def _counts_of(starts: Ints, n: int) -> Counts:
    (blocks, draws), length = starts.shape, block_length(n)
    ends = starts + length
    ends[-1] += n - length * blocks
    wraps = ends >= n
    ends[wraps] -= n
    # +1 where a block begins, -1 behind its end; the running sum is how many blocks cover a place.
    column = np.arange(draws)
    kind = _counting_type(n)
    changes = np.bincount((starts * draws + column).ravel(), minlength=n * draws).astype(kind)
    changes -= np.bincount((ends * draws + column).ravel(), minlength=n * draws).astype(kind)
    counts: Counts = changes.reshape(n, draws)
    counts[0] += wraps.sum(axis=0, dtype=kind)
    return np.cumsum(counts, axis=0, dtype=kind, out=counts)


def _counting_type(n: int) -> type[np.signedinteger[Any]]:
    """What holds a count of ``n`` observations: half the bytes take half the time."""
    return np.int16 if n <= np.iinfo(np.int16).max else np.int32


def resampled_percentiles(values: Floats, counts: Counts, qs: tuple[float, ...]) -> dict[float, Floats]:
    """Each percentile of each resample; linear between order statistics, +infinity if it touches one.

    Args:
        values: shape (n,), in time order; +infinity for unfinished requests.
        counts: shape (n, draws).

    Returns:
        For each q an array of shape (draws,).
    """
    column = _Column.of(values, qs, window=False)
    return {q: column.percentiles(q, counts, None) for q in qs}


@dataclass(frozen=True, slots=True)
class _Near:
    """Sorted places around one percentile, in which nearly every resample has it.

    Attributes:
        rank, weight: the percentile lies so far between this order statistic and the next.
        low, high: the places, [low, high).
        under, under_last: of a block that starts here, how many observations lie below ``low``; shape (n,).
            The last block is shorter.
    """

    rank: int
    weight: float
    low: int
    high: int
    under: Ints | None = None
    under_last: Ints | None = None

    def below(self, starts: Ints | None) -> Ints | int:
        """How many observations of each resample lie below ``low``; shape (draws,)."""
        if self.under is None or self.under_last is None or starts is None:
            return 0
        found: Ints = self.under[starts[:-1]].sum(axis=0) + self.under_last[starts[-1]]
        return found


@dataclass(frozen=True, slots=True)
class _Column:
    """Values of one column, sorted once for all resamples.

    Attributes:
        order: places in time of the sorted values.
        near: percentile -> where to look for it.
    """

    order: Ints
    ordered: Floats
    near: dict[float, _Near]

    @classmethod
    def of(cls, values: Floats, qs: tuple[float, ...], *, window: bool = True) -> "_Column":
        order = np.argsort(values, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        return cls(order, values[order], {q: _near(place, q, window) for q in qs})

    def percentiles(self, q: float, counts: Counts, starts: Ints | None) -> Floats:
        """Of each resample; shape (draws,)."""
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


def _near(place: Ints, q: float, window: bool) -> _Near:
    """Five standard deviations of how many observations of a resample lie below the percentile, to either side."""
    n = place.size
    position = (n - 1) * q / 100
    rank = math.floor(position)
    length = block_length(n)
    blocks = math.ceil(n / length)
    spread = _in_blocks(place <= rank, length).std() * math.sqrt(blocks)
    low, high = rank - math.ceil(5 * spread) - 2, rank + math.ceil(5 * spread) + 2
    if not window or high - low > n // 2:
        return _Near(rank, position - rank, 0, n)
    low, high = max(0, low), min(n, high)
    under, last = place < low, n - length * (blocks - 1)
    return _Near(rank, position - rank, low, high, _in_blocks(under, length), _in_blocks(under, last))


def _in_blocks(chosen: NDArray[np.bool_], length: int) -> Ints:
    """How many of ``length`` observations from each on are chosen, around the end; shape (n,)."""
    n = chosen.size
    running = np.concatenate([[0], np.cumsum(np.concatenate([chosen, chosen[:length]]), dtype=np.int64)])
    found: Ints = running[length : length + n] - running[:n]
    return found


def _first_above(cumulative: NDArray[np.int32], rank: int) -> Ints:
    """For each column, which never falls, how many entries are at most ``rank``: bisection of all of them at once."""
    n, draws = cumulative.shape
    column = np.arange(draws)
    found = np.zeros(draws, dtype=np.int64)
    for bit in reversed(range(n.bit_length())):
        reach = found + (1 << bit)
        inside = reach <= n
        found[inside] = np.where(
            cumulative[reach[inside] - 1, column[inside]] <= rank, reach[inside], found[inside]
        )
    return found


def estimate_jointly(
    columns: Mapping[str, Floats], qs: tuple[float, ...], draws: int, rng: np.random.Generator
) -> dict[tuple[str, float], Estimate]:
    """Point and resamples of each percentile of each column; replicate i of all is the same resample.

    Args:
        columns: each of shape (n,), row i of all from the same request or step, in time order.
    """
    n = next(iter(columns.values())).size if columns else 0
    if n == 0:
        return {(name, q): unavailable("no observations") for name in columns for q in qs}
    at_once = max(1, min(draws, COUNTS_AT_ONCE // n))
    parts: dict[tuple[str, float], list[Floats]] = {(name, q): [] for name in columns for q in qs}
    sorted_columns = {name: _Column.of(values, qs) for name, values in columns.items()}
    for first in range(0, draws, at_once):
        starts = _draw_starts(n, min(at_once, draws - first), rng)
        counts = _counts_of(starts, n)
        for name, column in sorted_columns.items():
            for q in qs:
                parts[name, q].append(column.percentiles(q, counts, starts))
    return {
        (name, q): _estimate(columns[name], q, np.concatenate(found)) for (name, q), found in parts.items()
    }


def estimate_percentiles(
    values: Floats, qs: tuple[float, ...], draws: int, rng: np.random.Generator
) -> dict[float, Estimate]:
    """``estimate_jointly`` for one column."""
    return {q: found for (_, q), found in estimate_jointly({"": values}, qs, draws, rng).items()}


def _estimate(values: Floats, q: float, replicates: Floats) -> Estimate:
    point = percentile(values, q)
    reason = None if point is not None else f"p{q:g} falls on requests that failed or did not finish"
    return Estimate(point, replicates, int(values.size), reason)


def combine(*parts: Estimate) -> tuple[list[Floats], int]:
    """Replicates of several estimates cut to the same number of draws, and the smallest n."""
    draws = min(p.replicates.size for p in parts)
    return [p.replicates[:draws] for p in parts], min(p.n for p in parts)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
