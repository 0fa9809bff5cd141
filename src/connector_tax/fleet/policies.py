"""What comes to a fleet, and its policies: which waiting request goes next, and to which instance."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connector_tax.base.units import s_to_ns

# Kinds of requests that arrive at a fleet.
#
# A pattern is one kind of request. A profile is the rate at which one instance serves it within the SLO,
# and the E2E latency at that rate. By Little's law their product is the number in flight: the instance's
# capacity for this pattern. One request is one part of that many of its load.
# Source: the AIBrix proposal of load-aware routing with profiles (vllm-project/aibrix issue 642).


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of request.

    Attributes:
        rate_per_s: arrivals at the whole fleet.
        slo_s: longest allowed E2E latency, from the arrival.
    """

    name: str
    input_tokens: int
    output_tokens: int
    rate_per_s: float
    slo_s: float


@dataclass(slots=True)
class Request:
    """One simulated request; times are virtual nanoseconds.

    Attributes:
        expected_ns: E2E latency by the profile, all that a gateway knows of its duration.
        t_start_ns: on an instance by profile, when service begins; on an engine, its first token.
    """

    seq: int
    pattern: Pattern
    t_sched_ns: int
    expected_ns: int
    instance: int | None = None
    t_start_ns: int | None = None
    t_end_ns: int | None = None

    @property
    def slo_ns(self) -> int:
        return s_to_ns(self.pattern.slo_s)

    def excess_ns(self, now_ns: int) -> int:
        """Return by how much it would miss its SLO if started now; the largest is the most urgent."""
        return now_ns - self.t_sched_ns + self.expected_ns - self.slo_ns


# Queues of waiting requests: ``heads`` names the first request of each line, the most urgent first.


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


# Routers: choose an instance for a request, given each instance's load with and without it.
#
# A pushing router always names an instance, and the request waits there. A pulling router names only
# instances with room, and the request waits at the gateway. An idle instance has room for any request.

# Tolerance, since loads are sums of floats: ten times 0.1 must still fit.
FULL = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate: one request on one instance, as the gateway sees it.

    Attributes:
        urgency: index among the queue's heads, 0 first.
        load, load_after: of unfinished requests sent to the instance, without and with this one.
    """

    request: Request
    urgency: int
    instance: int
    load: float
    load_after: float

    @property
    def fits(self) -> bool:
        return self.load_after <= FULL or self.load == 0.0


Choose = Callable[[Sequence[Placement], random.Random], Placement]


@dataclass(frozen=True, slots=True)
class Router:
    """A router; ``choose`` gets all placements, or if ``pulls`` only those that fit."""

    pulls: bool
    choose: Choose


def anywhere(placements: Sequence[Placement], rng: random.Random) -> Placement:
    return placements[rng.randrange(len(placements))]


def least_load(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """Choose the most urgent request and its least loaded instance."""
    return min(placements, key=lambda p: (p.urgency, p.load_after, p.instance))


def best_fit(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """Choose the request and the instance that leave the least room."""
    return min(placements, key=lambda p: (-p.load_after, p.urgency, p.instance))


ROUTERS = {
    "random_push": Router(False, anywhere),
    "least_load_push": Router(False, least_load),
    "least_load_pull": Router(True, least_load),
    "binpack_pull": Router(True, best_fit),
}
