"""Stopping rule: ended requests -> whether the cell's intervals are tight, at looks registered in the config.

Only the interval's width decides, never its position. The interval at a look is that of the analysis: blocks
of requests, widened for all looks (``intervals``).
"""

import math

import numpy as np

from connector_tax.base.records.cell import CellSpec, Look
from connector_tax.base.records.request import Answered, tpot_ns, ttft_ns
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import Estimate, estimate_jointly
from connector_tax.base.statistics.interim import interim_analyses, interim_factor

# The metrics of taxes: this percentile of TTFT and TPOT.
PERCENTILE = 90.0
CONFIDENCE = 0.95
# Interval ends repeat within about 3 % of the width; a look takes the coordinator about 20 ms.
DRAWS = 400


class StoppingRule:
    """Sees every request of a cell once, in the order of their ends.

    A look covers the requests of the window scheduled before the first one in flight, so that fast requests
    are not seen before slow ones.
    """

    def __init__(self, spec: CellSpec) -> None:
        assert spec.stop_half_width is not None, "the cell has no stopping rule"
        self._half_width = spec.stop_half_width
        self._looks = interim_analyses(spec)
        self._factor = interim_factor(spec, CONFIDENCE)
        self._rng = stream(spec.seed, "looks")
        self._waiting: dict[int, Answered] = {}
        self._next_seq = 0
        self._ttft_ns: list[float] = []
        self._tpot_ns: list[float] = []
        self._completed = 0
        self.taken: list[Look] = []

    def note(self, request: Answered) -> None:
        self._waiting[request.seq] = request

    def enough(self, window_start_ns: int) -> bool:
        """Return whether the cell may end; takes a look if one is due."""
        if self._is_over():
            return True
        self._advance(window_start_ns)
        due_looks = [n for n in self._looks if n <= self._completed]
        if due_looks and (not self.taken or self.taken[-1].n_planned < due_looks[-1]):
            self.taken.append(self._look(due_looks[-1]))
        return self._is_over()

    def _is_over(self) -> bool:
        return bool(self.taken) and (self.taken[-1].tight or self.taken[-1].n_planned == self._looks[-1])

    def _advance(self, window_start_ns: int) -> None:
        while (ended := self._waiting.pop(self._next_seq, None)) is not None:
            self._next_seq += 1
            if ended.t_sched_ns >= window_start_ns:
                self._ttft_ns.append(_or_infinity(ttft_ns(ended)))
                self._tpot_ns.append(_or_infinity(tpot_ns(ended)))
                self._completed += ended.status == "ok"

    def _look(self, n_planned: int) -> Look:
        columns = {"ttft_p90": np.array(self._ttft_ns), "tpot_p90": np.array(self._tpot_ns)}
        estimates = estimate_jointly(columns, (PERCENTILE,), DRAWS, self._rng, factor=self._factor)
        widths = {name: _half_width(estimates[name, PERCENTILE]) for name in columns}
        all_tight = all(width is not None and width <= self._half_width for width in widths.values())
        return Look(n_planned, len(self._ttft_ns), widths, all_tight)


def _half_width(estimate: Estimate) -> float | None:
    """Return the half width on the log scale, as a share; None if an end is unbounded."""
    low, high = estimate.interval(CONFIDENCE)
    return math.log(high / low) / 2 if low is not None and high is not None and low > 0 else None


def _or_infinity(value: float | None) -> float:
    return math.inf if value is None else float(value)
