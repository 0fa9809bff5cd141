"""Resamples the same arrivals in every cell of one schedule.

Configurations get the same requests at the same times, so all cells see the same bursts, which mostly cancel
in a ratio of two cells. Blocks that begin at the same arrivals make intervals reflect that;
``tests/perf/coverage.py`` counts their coverage and how much narrower they are.
"""

import math
from dataclasses import dataclass

import numpy as np

from connector_tax.base.seeds import stream
from connector_tax.base.statistics.resampling import Ints

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
