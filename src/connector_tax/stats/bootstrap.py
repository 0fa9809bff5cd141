"""Confidence intervals by resampling blocks, because requests of one cell queue behind each other.

Circular block bootstrap (Politis & Romano 1992) with percentile intervals. The block length is
ceil(n^(1/3)), the rate at which the bias and the variance of the method balance (Hall, Horowitz &
Jing 1995). Resamples are held as counts per observation: one draw of counts serves every metric and
every percentile of a cell, and keeps them joint.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.summary.percentiles import percentile

Floats = NDArray[np.float64]
Counts = NDArray[np.int32]

# Draws x observations that are held at once; 4e7 counts are 160 MB.
MAX_COUNTS = 40_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its resamples.

    Attributes:
        point: None where it is unavailable; ``reason`` then says why.
        replicates: shape (draws,); may hold +infinity where a resample met unfinished requests.
        n: observations behind it.
    """

    point: float | None
    replicates: Floats
    n: int
    reason: str | None = None

    def interval(self, confidence: float) -> tuple[float | None, float | None]:
        """Equal-tailed; a bound that is not finite is None."""
        if self.point is None or self.replicates.size == 0:
            return None, None
        tail = (1 - confidence) / 2
        # Order statistics, not interpolation: half of infinity is not a bound.
        low, high = np.quantile(self.replicates, [tail, 1 - tail], method="nearest")
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
    """How often each of ``n`` observations, in time order, is in each resample; shape (draws, n).

    Every row sums to ``n``. Blocks wrap around the end, so no observation is rarer than another.
    """
    length = block_length(n)
    blocks = math.ceil(n / length)
    starts = rng.integers(0, n, size=(draws, blocks))
    lengths = np.full(blocks, length)
    lengths[-1] = n - length * (blocks - 1)
    # +1 where a block begins, -1 behind its end, over two laps; running sums then count coverage.
    rows = np.repeat(np.arange(draws), blocks) * (2 * n + 1)
    flat_starts = starts.ravel()
    flat_ends = (starts + lengths).ravel()
    size = draws * (2 * n + 1)
    steps = np.bincount(rows + flat_starts, minlength=size) - np.bincount(rows + flat_ends, minlength=size)
    covered = np.cumsum(steps.reshape(draws, 2 * n + 1), axis=1)
    counts: Counts = (covered[:, :n] + covered[:, n : 2 * n]).astype(np.int32)
    return counts


def resampled_percentiles(values: Floats, counts: Counts, qs: tuple[float, ...]) -> dict[float, Floats]:
    """Each percentile of each resample; linear between order statistics, +infinity if it touches one.

    Args:
        values: shape (n,), in time order; +infinity for unfinished requests.
        counts: shape (draws, n).

    Returns:
        For each q an array of shape (draws,).
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cumulative = np.cumsum(counts[:, order], axis=1)
    n = values.size
    out = {}
    for q in qs:
        position = (n - 1) * q / 100
        rank = math.floor(position)
        weight = position - rank
        low = ordered[(cumulative <= rank).sum(axis=1)]
        if weight == 0:
            out[q] = low
            continue
        high = ordered[np.minimum((cumulative <= rank + 1).sum(axis=1), n - 1)]
        with np.errstate(invalid="ignore"):
            between = low + weight * (high - low)
        out[q] = np.where(np.isinf(high), np.inf, between)
    return out


def estimate_percentiles(
    values: Floats, qs: tuple[float, ...], draws: int, rng: np.random.Generator, counts: Counts | None = None
) -> dict[float, Estimate]:
    """Point and resamples of each percentile.

    Args:
        counts: resamples to use, shape (draws, n); drawn anew if None.
    """
    n = int(values.size)
    if n == 0:
        return {q: unavailable("no observations") for q in qs}
    if counts is None:
        draws = max(200, min(draws, MAX_COUNTS // n))
        counts = block_counts(n, draws, rng)
    replicates = resampled_percentiles(values, counts, qs)
    out = {}
    for q in qs:
        point = percentile(values, q)
        reason = None if point is not None else f"p{q:g} falls on requests that failed or did not finish"
        out[q] = Estimate(point, replicates[q], n, reason)
    return out


def combine(*parts: Estimate) -> tuple[list[Floats], int]:
    """Replicates of several estimates cut to the same number of draws, and the smallest n."""
    draws = min(p.replicates.size for p in parts)
    return [p.replicates[:draws] for p in parts], min(p.n for p in parts)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
