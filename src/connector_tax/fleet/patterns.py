"""Kinds of requests that arrive at a fleet.

A pattern is one kind of request. A profile is the rate at which one instance serves it within the SLO, and
the E2E latency at that rate. By Little's law their product is the number in flight: the instance's capacity
for this pattern. One request is one part of that many of its load.
Source: the AIBrix proposal of load-aware routing with profiles (vllm-project/aibrix issue 642).
"""

from dataclasses import dataclass

from connector_tax.base.units import s_to_ns


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
