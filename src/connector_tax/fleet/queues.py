"""Who of those who wait may go next: ``heads`` names one request per line that is kept, the most urgent first."""

from abc import ABC, abstractmethod
from collections import deque

from connector_tax.fleet.patterns import Request


class Queue(ABC):
    """Requests that wait."""

    @abstractmethod
    def put(self, request: Request) -> None: ...

    @abstractmethod
    def heads(self, now_ns: int) -> list[Request]:
        """Candidates in order of urgency; empty where nobody waits."""

    @abstractmethod
    def take(self, head: Request) -> None:
        """Remove one that ``heads`` named."""


class Fifo(Queue):
    """One line: whoever came first goes first, and all others wait until that one fits."""

    def __init__(self) -> None:
        self._line: deque[Request] = deque()

    def put(self, request: Request) -> None:
        self._line.append(request)

    def heads(self, now_ns: int) -> list[Request]:
        return [self._line[0]] if self._line else []

    def take(self, head: Request) -> None:
        assert self._line.popleft() is head


class ByPattern(Queue):
    """A line per pattern; the head whose SLO would be missed by most goes first, the next one if it does not fit."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Request]] = {}

    def put(self, request: Request) -> None:
        self._lines.setdefault(request.pattern.name, deque()).append(request)

    def heads(self, now_ns: int) -> list[Request]:
        heads = [line[0] for line in self._lines.values() if line]
        return sorted(heads, key=lambda r: (-r.excess_ns(now_ns), r.seq))

    def take(self, head: Request) -> None:
        assert self._lines[head.pattern.name].popleft() is head


QUEUES: dict[str, type[Queue]] = {"fifo": Fifo, "by_pattern": ByPattern}
