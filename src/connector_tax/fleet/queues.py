"""Who of those who wait may go next: ``heads`` names one request per line that is kept, the most urgent
first."""

from collections import deque
from collections.abc import Callable

from connector_tax.fleet.patterns import Request


class Queue:
    """Requests that wait in lines; in a line whoever came first goes first, and all others wait until that
    one fits.

    Args:
        line_of: the line that a request waits in.
    """

    def __init__(self, line_of: Callable[[Request], str]) -> None:
        self._line_of = line_of
        self._lines: dict[str, deque[Request]] = {}

    def put(self, request: Request) -> None:
        self._lines.setdefault(self._line_of(request), deque()).append(request)

    def heads(self, now_ns: int) -> list[Request]:
        """Candidates, the one first whose SLO would be missed by most; empty where nobody waits."""
        heads = [line[0] for line in self._lines.values() if line]
        return sorted(heads, key=lambda r: (-r.excess_ns(now_ns), r.seq))

    def take(self, head: Request) -> None:
        """Remove one that ``heads`` named."""
        assert self._lines[self._line_of(head)].popleft() is head


QUEUES: dict[str, Callable[[], Queue]] = {
    "fifo": lambda: Queue(lambda request: ""),
    "by_pattern": lambda: Queue(lambda request: request.pattern.name),
}
