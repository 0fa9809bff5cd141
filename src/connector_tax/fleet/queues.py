"""Queues of waiting requests: ``heads`` names the first request of each line, the most urgent first."""

from collections import deque
from collections.abc import Callable

from connector_tax.fleet.patterns import Request


class Queue:
    """Waiting requests in FIFO lines; the head of a line blocks the rest of it until it fits.

    Args:
        line_of: the line that a request waits in.
    """

    def __init__(self, line_of: Callable[[Request], str]) -> None:
        self._line_of = line_of
        self._lines: dict[str, deque[Request]] = {}

    def put(self, request: Request) -> None:
        self._lines.setdefault(self._line_of(request), deque()).append(request)

    def heads(self, now_ns: int) -> list[Request]:
        """Return the head of each line, the one that would miss its SLO by most first."""
        heads = [line[0] for line in self._lines.values() if line]
        return sorted(heads, key=lambda r: (-r.excess_ns(now_ns), r.seq))

    def take(self, head: Request) -> None:
        assert self._lines[self._line_of(head)].popleft() is head


QUEUES: dict[str, Callable[[], Queue]] = {
    "fifo": lambda: Queue(lambda request: ""),
    "by_pattern": lambda: Queue(lambda request: request.pattern.name),
}
