"""One line on a terminal that says how a cell is going, over and over; nothing where standard error is no
terminal."""

import sys
from collections import Counter
from time import monotonic_ns

from connector_tax.run.loadgen.messages import Ended

EVERY_NS = 500_000_000


class LiveLine:
    """Told of every request that ended, by the coordinator; writes twice a second."""

    def __init__(self, cell_id: str) -> None:
        self._stream = sys.stderr
        self._on = self._stream.isatty()
        self._cell_id = cell_id
        self._start_ns = self._next_ns = monotonic_ns()
        self._ended: Counter[str] = Counter()

    def ended(self, request: Ended) -> None:
        self._ended[request.status] += 1

    def tick(self, sent: int) -> None:
        """Asked a few times a second while the cell runs.

        Args:
            sent: requests taken from the schedule so far.
        """
        now_ns = monotonic_ns()
        if self._on and now_ns >= self._next_ns:
            self._next_ns = now_ns + EVERY_NS
            counts = (f"{n} {status}, " for status, n in self._ended.items())
            line = (
                f"{self._cell_id}  {(now_ns - self._start_ns) / 1e9:.0f} s "
                f" {''.join(counts)}{max(sent - self._ended.total(), 0)} in flight"
            )
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()

    def close(self) -> None:
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
