"""What can be observed of a run, under the names of the load-generator specification.

Hooks are given before a run and stay. Where nobody listens there is nothing to call: the hot path asks for
None once per event and goes on.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from connector_tax.run.loadgen.issuer import Flight

Hook = Callable[[Flight, int], None]


class SessionEvent(StrEnum):
    """Of a whole cell."""

    TEST_STARTED = "TEST_STARTED"
    STOP_PERFORMANCE_TRACKING = "STOP_PERFORMANCE_TRACKING"
    LOADGEN_STOP = "LOADGEN_STOP"
    TEST_ENDED = "TEST_ENDED"
    LOADGEN_ISSUE_CALLED = "LOADGEN_ISSUE_CALLED"
    LOADGEN_DATA_LOAD = "LOADGEN_DATA_LOAD"


class SampleEvent(StrEnum):
    """Of one request."""

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
    """JSONL of one cell's events, ``{"t_ns", "cell", "event", "seq"}``, written when ``flush`` is called and never in between.

    Further cells go on in the same file. A log that cannot be written any more is given up, and says why in ``failure``: a full
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
        """A hook that notes ``event``."""
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
    """What a worker listens to: nothing, or the log."""
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
    """The coordinator's, in ``folder``; one that keeps nothing where there is none."""
    return EventLog(folder / "events_session.jsonl", cell_id) if folder is not None else _NoLog()
