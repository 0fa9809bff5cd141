"""One line on a terminal that says how a cell is going, over and over; nothing where standard error is no terminal."""

import sys
from collections import Counter, deque
from statistics import median
from time import monotonic_ns

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
        self._start_ns = self._next_ns = monotonic_ns()
        self._ended: Counter[str] = Counter()
        self._ttft_ms: deque[float] = deque(maxlen=RECENT)

    def ended(self, request: Ended) -> None:
        self._ended[request.status] += 1
        if request.status == "ok" and (ttft := ttft_ns(request)) is not None:
            self._ttft_ms.append(ttft / 1e6)

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
        parts = [f"{n} {status}" for status, n in self._ended.items()]
        parts.append(f"{max(sent - self._ended.total(), 0)} in flight")
        ttft = f"{median(self._ttft_ms):.1f} ms" if self._ttft_ms else "-"
        seconds = (now_ns - self._start_ns) / 1e9
        return f"{self._cell_id}  {seconds:.0f} s  {', '.join(parts)}  TTFT p50 {ttft} (last {len(self._ttft_ms)})"

    def close(self) -> None:
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
