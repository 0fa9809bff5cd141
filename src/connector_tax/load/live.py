"""One line on a terminal that says how a cell is going, over and over; nothing where standard error is no terminal."""

import sys
from collections import deque
from time import monotonic_ns

import numpy as np

from connector_tax.base.records.request import ttft_ns
from connector_tax.run.loadgen.messages import Ended

EVERY_NS = 500_000_000
# Of recent requests, TTFT is shown over so many.
RECENT = 200


class LiveLine:
    """Told of every request that ended, by the coordinator; writes twice a second."""

    def __init__(self, cell_id: str) -> None:
        self._stream = sys.stderr
        self._on = self._stream.isatty()
        self._cell_id = cell_id
        self._start_ns = monotonic_ns()
        self._next_ns = 0
        self._ok = self._failed = self._dropped = 0
        self._ends: deque[int] = deque(maxlen=RECENT)
        self._ttft_ms: deque[float] = deque(maxlen=RECENT)

    def ended(self, request: Ended) -> None:
        if request.status == "dropped":
            self._dropped += 1
        elif request.status == "ok":
            self._ok += 1
            self._ends.append(request.t_end_ns or 0)
            if (ttft := ttft_ns(request)) is not None:
                self._ttft_ms.append(ttft / 1e6)
        else:
            self._failed += 1

    def tick(self, sent: int) -> None:
        """Asked a few times a second while the cell runs.

        Args:
            sent: requests taken from the schedule so far.
        """
        now_ns = monotonic_ns()
        if self._on and now_ns >= self._next_ns:
            self._next_ns = now_ns + EVERY_NS
            self._stream.write(f"\r\x1b[K{self.text(now_ns, sent)}")
            self._stream.flush()

    def text(self, now_ns: int, sent: int) -> str:
        over_s = (self._ends[-1] - self._ends[0]) / 1e9 if len(self._ends) > 1 else 0.0
        rate = f"{(len(self._ends) - 1) / over_s:.1f} req/s" if over_s > 0 else "- req/s"
        ttft = f"{float(np.median(self._ttft_ms)):.1f} ms" if self._ttft_ms else "-"
        under_way = max(sent - self._ok - self._failed - self._dropped, 0)
        dropped = f", {self._dropped} dropped" if self._dropped else ""
        return (
            f"{self._cell_id}  {(now_ns - self._start_ns) / 1e9:.0f} s  {self._ok} ok, {self._failed} failed{dropped}, "
            f"{under_way} in flight  {rate}  TTFT p50 {ttft} (last {len(self._ttft_ms)})"
        )

    def close(self) -> None:
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
