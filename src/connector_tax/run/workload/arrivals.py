"""Arrival processes: (rate, seed) -> intended send times, known before the run and never recomputed.

Times are integer nanoseconds from the start of the cell, non-decreasing. Latency is counted from them, so
neither a slow engine nor a slow client can hide by reducing the load.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.seeds import stream
from connector_tax.base.units import NS_PER_S, s_to_ns

# Gaps are drawn in blocks of this size from the start, so reading further never changes an earlier arrival.
BLOCK = 1024
OPEN_LOOP = ("fixed", "poisson", "gamma")
OFFLINE = "offline"

Offsets = NDArray[np.int64]


def fixed(rate_per_s: float, first: int, count: int) -> Offsets:
    """Return arrivals at exactly k / rate; errors do not accumulate."""
    k = np.arange(first, first + count, dtype=np.float64)
    return np.round(k * (NS_PER_S / rate_per_s)).astype(np.int64)


def gamma_gaps(rate_per_s: float, shape: float, block: int, seed: int) -> Offsets:
    """Return one block of gamma distributed gaps with mean 1 / rate; the first arrival comes after one gap.

    ``shape`` 1 is a Poisson process, above 1 more regular, below 1 more bursty (CV = shape ** -0.5).
    """
    rng = stream(seed, "arrivals", block)
    if shape == 1.0:
        return np.round(rng.exponential(NS_PER_S / rate_per_s, BLOCK)).astype(np.int64)
    return np.round(rng.gamma(shape, NS_PER_S / (rate_per_s * shape), BLOCK)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rate that changes linearly to another value and stays there.

    Attributes:
        from_per_s, to_per_s: requests per second, above 0.
        over_ns: duration of the change.
    """

    from_per_s: float
    to_per_s: float
    over_ns: int

    def warped(self, offsets: Offsets) -> Offsets:
        """Map arrivals of a process at ``to_per_s`` to the ramp; shape (n,), ns.

        Arrival k of the steady process comes when ``to_per_s * t`` arrivals are expected; the ramp's
        comes when as many are expected of it (inverse of the integrated rate; Cinlar 1975, time
        change of a Poisson process).
        """
        expected = offsets.astype(np.float64) * (self.to_per_s / NS_PER_S)
        over_s = self.over_ns / NS_PER_S
        slope = (self.to_per_s - self.from_per_s) / over_s
        ramp_total = (self.from_per_s + self.to_per_s) / 2 * over_s
        expected_in_ramp = np.minimum(expected, ramp_total)
        # Root of from * t + slope * t^2 / 2 = expected, in the form that stays exact for slopes near 0.
        root = np.sqrt(np.maximum(self.from_per_s**2 + 2 * slope * expected_in_ramp, 0.0))
        seconds = (
            2 * expected_in_ramp / (self.from_per_s + root) + (expected - expected_in_ramp) / self.to_per_s
        )
        return np.round(seconds * NS_PER_S).astype(np.int64)


class Schedule:
    """Intended send times of one cell, drawn block by block; two blocks are kept.

    ``schedule[k]`` is the offset of arrival k in nanoseconds, the same for a given (arrival, rate, seed) in
    whatever order it is read.
    """

    def __init__(
        self,
        arrival: str,
        rate_per_s: float,
        seed: int,
        *,
        shape: float | None = None,
        ramp: Ramp | None = None,
    ) -> None:
        draw: dict[str, Callable[[int], Offsets]] = {
            "fixed": self._fixed,
            "poisson": self._gamma,
            "gamma": self._gamma,
        }
        self._draw = draw[arrival]
        self._rate_per_s = rate_per_s
        self._seed = seed
        self._shape = shape if arrival == "gamma" and shape is not None else 1.0
        self._ramp = ramp
        # Last offset of each block so far: steady process, and ramp.
        self._steady_ends: list[int] = []
        self._ends: list[int] = []
        # The two blocks read last, since workers read ahead of what they send.
        self._kept: dict[int, Offsets] = {}

    def __getitem__(self, k: int) -> int:
        block, row = divmod(k, BLOCK)
        return int(self._block(block)[row])

    def count_before(self, offset_ns: int) -> int:
        """Return how many arrivals are due before ``offset_ns``."""
        while not self._ends or self._ends[-1] < offset_ns:
            self._block(len(self._ends))
        block = bisect_left(self._ends, offset_ns)
        return block * BLOCK + int(np.searchsorted(self._block(block), offset_ns))

    def _block(self, block: int) -> Offsets:
        offsets = self._kept.get(block)
        if offsets is not None:
            return offsets
        for index in range(min(block, len(self._ends)), block + 1):
            steady = self._draw(index)
            offsets = steady if self._ramp is None else self._ramp.warped(steady)
            if index == len(self._ends):
                self._steady_ends.append(int(steady[-1]))
                self._ends.append(int(offsets[-1]))
        assert offsets is not None
        if len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]
        self._kept[block] = offsets
        return offsets

    def _fixed(self, block: int) -> Offsets:
        return fixed(self._rate_per_s, block * BLOCK, BLOCK)

    def _gamma(self, block: int) -> Offsets:
        start = self._steady_ends[block - 1] if block else 0
        return start + np.cumsum(gamma_gaps(self._rate_per_s, self._shape, block, self._seed))


def schedule_of(spec: CellSpec) -> Schedule:
    """Return the arrivals of an open-loop cell."""
    ramp = None
    if spec.ramp_from_per_s is not None:
        ramp = Ramp(spec.ramp_from_per_s, spec.rate_per_s, s_to_ns(spec.ramp_up_s or 0.0))
    return Schedule(spec.arrival, spec.rate_per_s, spec.seed, shape=spec.gamma_shape, ramp=ramp)
