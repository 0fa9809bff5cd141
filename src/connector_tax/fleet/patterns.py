"""What comes to a fleet, and what one instance can do for it within its SLO.

A pattern is one kind of request: so many tokens in, so many out. A profile says how often one instance can
take it with the SLO kept, and how long each then takes; by Little's law that many are in flight, which is the
instance's capacity for this pattern, and one request is one part in so many of its load.
Source: the AIBrix proposal of load-aware routing with profiles (vllm-project/aibrix issue 642).
"""

from dataclasses import dataclass

from connector_tax.base.units import s_to_ns


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of request.

    Attributes:
        rate_per_s: arrivals at the whole fleet.
        slo_s: E2E latency that must not be exceeded, counted from the arrival.
    """

    name: str
    input_tokens: int
    output_tokens: int
    rate_per_s: float
    slo_s: float


@dataclass(slots=True)
class Request:
    """One request on its way; times are virtual nanoseconds.

    Attributes:
        expected_ns: E2E latency by the profile, which is all a gateway knows of the time it will take.
        t_start_ns: when an instance began to work on it.
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
        """By how much its SLO is missed if it starts now and takes as long as expected; the more, the more
        urgent."""
        return now_ns - self.t_sched_ns + self.expected_ns - self.slo_ns
