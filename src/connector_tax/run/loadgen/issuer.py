"""What a load generator needs of whatever sends its requests."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from connector_tax.base.records.request import Status

# What the error begins with of a request that could not be sent for want of descriptors, ports or memory. It is ``aborted``:
# a ``connect_error`` would be the server's.
NO_SOCKET = "the client has no socket left"
# In that time the loop reads all that lies in its sockets, which have their turn behind timers and messages.
TURN_S = 0.01


class Carrier(Protocol):
    """What a flight is on; it can be ended together with it."""

    @property
    def has_unread(self) -> bool: ...

    def take_flight(self) -> "Flight | None": ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Flight:
    """One request on its way; becomes a ``RequestRecord`` when it has ended.

    Attributes:
        output_ids: the answer's token ids; None where the workload does not need them.
        t_first_token_ns, t_last_token_ns: known once it has ended.
        token_ns: time of every token once it has ended; None where nobody asked for them.
        came_ns: the earliest time at which its end can have come; None where it was read as it came.
        resends: how often it went out once more, since its connection had been closed while it was idle.
        carrier: the connection that it is on.
    """

    seq: int
    t_sched_ns: int
    inflight_at_send: int
    t_send_ns: int | None = None
    t_first_token_ns: int | None = None
    t_last_token_ns: int | None = None
    t_end_ns: int | None = None
    status: Status | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None
    output_ids: list[int] | None = None
    token_ns: "array[int] | None" = None
    resends: int = 0
    came_ns: int | None = None
    carrier: "Carrier | None" = field(default=None, repr=False, compare=False)


class SampleIssuer(ABC):
    """Sends flights and reports each exactly once, through the callback given to ``start``."""

    @abstractmethod
    async def start(self, on_end: Callable[[Flight], None]) -> None:
        """Get ready to send; ``on_end`` is called on the loop's thread."""

    @abstractmethod
    def issue(self, flight: Flight, payload: bytes) -> None:
        """Send now; never blocks, never raises for what the other side does."""

    @abstractmethod
    def abandon(self, status: Status, reason: str) -> None:
        """End every flight still under way with ``status``."""

    @abstractmethod
    def shutdown(self) -> None:
        """Close everything; no flight may be under way."""
