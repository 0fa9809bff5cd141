"""Arrival processes: (rate, seed) -> intended send times, known before the run and never recomputed.

Times are integer nanoseconds from the start of the cell, non-decreasing. Latency is counted from
them, so an engine that is slow, or a client that is, cannot hide by slowing the load down.
"""

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from connector_tax.seeds import stream
from connector_tax.units import NS_PER_S

# Gaps are drawn in blocks of this size, always from the start, so that reading one more arrival never
# changes an earlier one.
BLOCK = 1024
OPEN_LOOP = ("fixed", "poisson", "gamma")

Offsets = NDArray[np.int64]


def fixed(rate_per_s: float, first: int, count: int) -> Offsets:
    """Arrival k at k / rate exactly; no error adds up over a long cell."""
    k = np.arange(first, first + count, dtype=np.float64)
    return np.round(k * (NS_PER_S / rate_per_s)).astype(np.int64)


def gamma_gaps(rate_per_s: float, shape: float, block: int, seed: int) -> Offsets:
    """Gaps of one block, gamma distributed with mean 1 / rate; the first arrival comes one gap after the start.

    ``shape`` 1 is a Poisson process, above 1 more regular, below 1 more bursty (CV = shape ** -0.5).
    """
    rng = stream(seed, "arrivals", block)
    if shape == 1.0:
        return np.round(rng.exponential(NS_PER_S / rate_per_s, BLOCK)).astype(np.int64)
    return np.round(rng.gamma(shape, NS_PER_S / (rate_per_s * shape), BLOCK)).astype(np.int64)


class Schedule:
    """Intended send times of one cell, drawn lazily block by block.

    ``schedule[k]`` is the offset of arrival k in nanoseconds; the same for a given (arrival, rate,
    seed), however far and in whatever order it is read.
    """

    def __init__(self, arrival: str, rate_per_s: float, seed: int, *, shape: float | None = None) -> None:
        blocks: dict[str, Callable[[], Offsets]] = {
            "fixed": self._fixed,
            "poisson": self._gamma,
            "gamma": self._gamma,
        }
        self._next_block = blocks[arrival]
        self._rate_per_s = rate_per_s
        self._seed = seed
        self._shape = shape if arrival == "gamma" and shape is not None else 1.0
        self._offsets: list[int] = []

    def __getitem__(self, k: int) -> int:
        while k >= len(self._offsets):
            self._offsets.extend(self._next_block().tolist())
        return self._offsets[k]

    def count_before(self, offset_ns: int) -> int:
        """How many arrivals are due before ``offset_ns``."""
        while not self._offsets or self._offsets[-1] < offset_ns:
            self[len(self._offsets)]
        return bisect_left(self._offsets, offset_ns)

    def _fixed(self) -> Offsets:
        return fixed(self._rate_per_s, len(self._offsets), BLOCK)

    def _gamma(self) -> Offsets:
        last = self._offsets[-1] if self._offsets else 0
        block = len(self._offsets) // BLOCK
        return last + np.cumsum(gamma_gaps(self._rate_per_s, self._shape, block, self._seed))
