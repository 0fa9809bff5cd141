"""The interface between a load generator and whatever sends its requests, with stall watch and event log."""

import asyncio
import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import monotonic_ns
from typing import Protocol, TextIO

from connector_tax.base.records.request import Status
from connector_tax.base.timer import DeadlineTimer

# Event-loop stalls: a heartbeat every 20 ms and its lateness.

PERIOD_NS = 20_000_000
# A heartbeat later than AWAY_NS indicates a stall; BACK_NS after it all sockets have been served.
AWAY_NS = 10_000_000
BACK_NS = 50_000_000
# Upper edges of the histogram in microseconds; the last bucket is open.
EDGES_US = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class StallWatch:
    """Measures heartbeats' lateness. A stamp taken during a stall is late by the rest of the stall."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.counts = [0] * (len(EDGES_US) + 1)
        self.max_us = 0.0
        # (start, end) of each stall.
        self.away_ns: list[tuple[int, int]] = []
        # Due time of the next heartbeat; None until the cell begins.
        self._due_ns: int | None = None
        # End of the last stall.
        self._back_ns = 0
        self._timer = DeadlineTimer(loop, self._beat)

    def begin(self, t0_ns: int) -> None:
        """Watch from ``t0_ns`` on: nothing is sent before, and other workers may still be starting."""
        # Half a period off, so that no heartbeat coincides with the first send.
        self._due_ns = t0_ns + PERIOD_NS // 2
        self._timer.arm(self._due_ns)

    def is_back(self, now_ns: int) -> bool:
        """Return whether this process was stalled until just now, so that data read now arrived earlier."""
        overdue = self._due_ns is not None and now_ns - self._due_ns > AWAY_NS
        return overdue or now_ns - self._back_ns < BACK_NS

    def close(self) -> None:
        """Stop watching; record a stall whose heartbeat is still pending."""
        self._timer.close()
        if self._due_ns is not None and (now_ns := monotonic_ns()) > self._due_ns:
            self._note(self._due_ns, now_ns)

    def _note(self, due_ns: int, now_ns: int) -> None:
        if now_ns - due_ns > AWAY_NS:
            self.away_ns.append((due_ns, now_ns))
        late_us = (now_ns - due_ns) / 1e3
        self.counts[sum(late_us > edge for edge in EDGES_US)] += 1
        self.max_us = max(self.max_us, late_us)

    def _beat(self) -> None:
        assert self._due_ns is not None, "the timer is armed by begin"
        now_ns = monotonic_ns()
        late_ns = now_ns - self._due_ns
        self._note(self._due_ns, now_ns)
        if late_ns > AWAY_NS:
            self._back_ns = monotonic_ns()
        # Skip missed beats: one stall is one entry.
        self._due_ns += PERIOD_NS * (1 + max(0, late_ns // PERIOD_NS))
        self._timer.arm(self._due_ns)


def histogram(counts: list[int]) -> dict[str, int]:
    """Return ``{"<=100us": n, ..., ">100000us": n}``."""
    labels = [f"<={edge}us" for edge in EDGES_US] + [f">{EDGES_US[-1]}us"]
    return dict(zip(labels, counts, strict=True)) if counts else {}


# Start of the error of a request that found no descriptor, port or memory. It is ``aborted``, since a
# ``connect_error`` would be the server's fault.
NO_SOCKET = "the client has no socket left"
# Time for the loop to read everything in its sockets, which are served after timers and messages.
TURN_S = 0.01


class Carrier(Protocol):
    """A flight's connection, which can be closed together with it."""

    @property
    def has_unread(self) -> bool: ...

    def take_flight(self) -> "Flight | None": ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Flight:
    """A request in flight; becomes a ``RequestRecord`` once it has ended.

    Attributes:
        output_ids: the answer's token ids; None unless the workload needs them.
        t_first_token_ns, t_last_token_ns: set when it has ended.
        token_ns: time of every token, set when it has ended; None unless requested.
        came_ns: earliest time at which its end can have arrived; None if it was read on arrival.
        resends: how often it was sent again because its idle connection had been closed.
        carrier: its connection.
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
    """Sends flights and reports each exactly once through ``start``'s callback."""

    @abstractmethod
    async def start(self, on_end: Callable[[Flight], None]) -> None:
        """Prepare to send; ``on_end`` is called on the loop's thread."""

    @abstractmethod
    def issue(self, flight: Flight, payload: bytes) -> None:
        """Send now. Never blocks, and never raises for the server's faults."""

    @abstractmethod
    def abandon(self, status: Status, reason: str) -> None:
        """End every flight in progress with ``status``."""

    @abstractmethod
    def shutdown(self) -> None:
        """Close everything; no flight may be in progress."""


# Events of a run, under the names of the load-generator specification.

Hook = Callable[[Flight, int], None]


class SessionEvent(StrEnum):
    TEST_STARTED = "TEST_STARTED"
    STOP_PERFORMANCE_TRACKING = "STOP_PERFORMANCE_TRACKING"
    LOADGEN_STOP = "LOADGEN_STOP"
    TEST_ENDED = "TEST_ENDED"
    LOADGEN_ISSUE_CALLED = "LOADGEN_ISSUE_CALLED"
    LOADGEN_DATA_LOAD = "LOADGEN_DATA_LOAD"


class SampleEvent(StrEnum):
    HTTP_REQUEST_ISSUED = "HTTP_REQUEST_ISSUED"
    HTTP_RESPONSE_COMPLETED = "HTTP_RESPONSE_COMPLETED"
    FIRST_CHUNK = "FIRST_CHUNK"
    NON_FIRST_CHUNK = "NON_FIRST_CHUNK"
    COMPLETE = "COMPLETE"


@dataclass(frozen=True, slots=True)
class SampleEventHandler:
    """One hook per sample event, called with the flight and the event's CLOCK_MONOTONIC time."""

    issued: Hook | None = None
    first_chunk: Hook | None = None
    non_first_chunk: Hook | None = None
    response_completed: Hook | None = None
    complete: Hook | None = None


SILENT = SampleEventHandler()


class EventLog:
    """JSONL of one cell's events, ``{"t_ns", "cell", "event", "seq"}``, written only on ``flush``.

    Further cells append to the same file. A write error ends the log and is kept in ``failure``, since a full
    disk must not end the cell.
    """

    def __init__(self, path: Path, cell_id: str) -> None:
        self._cell_id = cell_id
        self._stream: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open for the life of the log
        self._rows: list[tuple[int, str, int | None]] = []
        self.failure: str | None = None

    def note(self, event: SessionEvent | SampleEvent, t_ns: int, seq: int | None = None) -> None:
        self._rows.append((t_ns, event.value, seq))

    def hook(self, event: SampleEvent) -> Hook:
        rows, name = self._rows, event.value
        return lambda flight, t_ns: rows.append((t_ns, name, flight.seq))

    def flush(self) -> None:
        rows = [
            json.dumps(
                {"t_ns": t_ns, "cell": self._cell_id, "event": event} | ({} if seq is None else {"seq": seq})
            )
            for t_ns, event, seq in self._rows
        ]
        self._rows.clear()
        if self.failure is not None or not rows:
            return
        try:
            self._stream.write("\n".join([*rows, ""]))
            self._stream.flush()
        except OSError as error:
            self.failure = f"the event log ends early: {error}"

    def close(self) -> None:
        self.flush()
        try:
            self._stream.close()
        except OSError as error:
            self.failure = self.failure or f"the event log ends early: {error}"


def handler_for(log: EventLog | None) -> SampleEventHandler:
    """Return a worker's event handler: the log's hooks, or none."""
    if log is None:
        return SILENT
    return SampleEventHandler(
        issued=log.hook(SampleEvent.HTTP_REQUEST_ISSUED),
        first_chunk=log.hook(SampleEvent.FIRST_CHUNK),
        non_first_chunk=log.hook(SampleEvent.NON_FIRST_CHUNK),
        response_completed=log.hook(SampleEvent.HTTP_RESPONSE_COMPLETED),
        complete=log.hook(SampleEvent.COMPLETE),
    )


class _NoLog:
    failure: str | None = None

    def note(self, event: SessionEvent, t_ns: int) -> None: ...

    def close(self) -> None: ...


def session_log(folder: Path | None, cell_id: str) -> EventLog | _NoLog:
    """Return the coordinator's event log in ``folder``, or one that keeps nothing."""
    return EventLog(folder / "events_session.jsonl", cell_id) if folder is not None else _NoLog()
