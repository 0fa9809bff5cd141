"""Arrival processes: (rate, seed) -> intended send times, known before the run and never recomputed.

Times are integer nanoseconds from the start of the cell, non-decreasing. Latency is counted from
them, so an engine that is slow, or a client that is, cannot hide by slowing the load down.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from connector_tax.seeds import stream
from connector_tax.units import NS_PER_S

# Gaps are drawn in blocks of this size, always from the start, so that reading one more arrival never
# changes an earlier one.
BLOCK = 1024

Offsets = NDArray[np.int64]


def fixed(rate_per_s: float, first: int, count: int, seed: int) -> Offsets:
    """Arrival k at k / rate exactly; no error adds up over a long cell."""
    k = np.arange(first, first + count, dtype=np.float64)
    return np.round(k * (NS_PER_S / rate_per_s)).astype(np.int64)


def poisson_gaps(rate_per_s: float, block: int, seed: int) -> Offsets:
    """Exponential gaps of one block; the first arrival comes one gap after the start."""
    rng = stream(seed, "arrivals", block)
    return np.round(rng.exponential(NS_PER_S / rate_per_s, BLOCK)).astype(np.int64)


class Schedule:
    """Intended send times of one cell, drawn lazily block by block.

    ``schedule[k]`` is the offset of arrival k in nanoseconds; the same for a given (arrival, rate,
    seed), however far and in whatever order it is read.
    """

    def __init__(self, arrival: str, rate_per_s: float, seed: int) -> None:
        self._next_block: Callable[[], Offsets] = {"fixed": self._fixed, "poisson": self._poisson}[arrival]
        self._rate_per_s = rate_per_s
        self._seed = seed
        self._offsets: list[int] = []

    def __getitem__(self, k: int) -> int:
        while k >= len(self._offsets):
            self._offsets.extend(self._next_block().tolist())
        return self._offsets[k]

    def _fixed(self) -> Offsets:
        return fixed(self._rate_per_s, len(self._offsets), BLOCK, self._seed)

    def _poisson(self) -> Offsets:
        last = self._offsets[-1] if self._offsets else 0
        return last + np.cumsum(poisson_gaps(self._rate_per_s, len(self._offsets) // BLOCK, self._seed))
