"""Messages between coordinator and workers: MessagePack arrays over ZeroMQ.

No message lies between a deadline and a socket: a job tells a worker everything it will send, and records
return in batches. Each message carries its cell's number, so late ones are ignored.
"""

import mmap
import os
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord, Status
from connector_tax.base.records.target import Target

# A cell's outcome in its coordinator: records, and the client's own cost.


@dataclass(frozen=True, slots=True)
class SessionResult:
    """A cell's records, and the client's cost of measuring them.

    Attributes:
        requests: by ``seq``; one for every sample scheduled before ``window.t_stop_ns``.
        token_ns: by ``seq``, if ``Observe.token_times`` is set.
        stall_counts: heartbeats of all workers by lateness; see ``issuer.EDGES_US``.
        away_ns: each worker's stalls, (start, end).
        worker_cpu_s: one per worker, during the cell.
        aborted: why the cell was ended from outside, at once or in order; else None.
        deaths: workers that ended or failed during the cell, and how.
        given_up: why the cell ended itself early; else None.
    """

    window: CellWindow
    requests: list[RequestRecord]
    token_ns: "dict[int, array[int]]"
    stall_counts: list[int]
    stall_max_us: float
    worker_cpu_s: list[float]
    coordinator_cpu_s: float
    worker_rss_mib: list[float]
    wall_s: float
    aborted: str | None
    deaths: list[str]
    given_up: str | None = None
    away_ns: list[list[tuple[int, int]]] = field(default_factory=list)
    # Share of a core used by each worker during the window.
    worker_cpu_share: list[float] = field(default_factory=list)

    @property
    def client_cpu_s(self) -> float:
        return sum(self.worker_cpu_s) + self.coordinator_cpu_s


# Counters that all workers see at once, in a mapped file: no message, no lock, no waiting.

LINE_BYTES = 64
_INFLIGHT, _TAKEN, _FIELDS = 0, 1, LINE_BYTES // 8


class Counters:
    """Requests in flight, and samples taken from the schedule, by worker."""

    def __init__(self, path: Path, workers: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, LINE_BYTES * workers)
            self._map = mmap.mmap(fd, LINE_BYTES * workers)
        finally:
            os.close(fd)
        self._values = memoryview(self._map).cast("q")
        self._workers = workers

    def reset(self) -> None:
        """Set all counters to 0; only while no worker runs a cell."""
        for index in range(len(self._values)):
            self._values[index] = 0

    def add_inflight(self, worker: int, change: int) -> None:
        self._values[worker * _FIELDS + _INFLIGHT] += change

    def count_taken(self, worker: int) -> None:
        self._values[worker * _FIELDS + _TAKEN] += 1

    def inflight(self) -> int:
        if self._workers == 1:
            return self._values[_INFLIGHT]
        return sum(self._values[w * _FIELDS + _INFLIGHT] for w in range(self._workers))

    def taken(self, worker: int) -> int:
        return self._values[worker * _FIELDS + _TAKEN]

    def close(self) -> None:
        self._values.release()
        self._map.close()


# Longest interval between reports of ended requests; ``Stopped`` also sends them.
BATCH_S = 0.2


class Job(msgspec.Struct, array_like=True, tag=1):
    """One cell, to begin at ``t0_ns``.

    Attributes:
        spec: ``CellSpec.to_json()``.
        stop_at_ns: samples due from here on are not sent; ``Stop`` may bring it forward.
        token_times: keep the time of every token of every request.
        event_log: a file for this worker's sample events; None for none.
    """

    spec: dict[str, object]
    target: Target
    share_index: int
    share_of: int
    stop_at_ns: int
    token_times: bool = False
    event_log: str | None = None


class Go(msgspec.Struct, array_like=True, tag=2):
    """T0, sent once every worker is ready."""

    t0_ns: int


class Stop(msgspec.Struct, array_like=True, tag=3):
    """Send nothing that is due at or after this time."""

    at_ns: int


class Abandon(msgspec.Struct, array_like=True, tag=4):
    """End what is still in flight, and the cell."""

    status: Status
    reason: str


class Hello(msgspec.Struct, array_like=True, tag=10):
    """The worker is up and takes jobs."""


class Ready(msgspec.Struct, array_like=True, tag=11):
    """Connections are open and the first prompts rendered."""


class Ended(msgspec.Struct, array_like=True):
    """One ended request; fields as in ``RequestRecord`` and ``Flight``, token times as native int64."""

    seq: int
    t_sched_ns: int
    t_send_ns: int | None
    t_first_token_ns: int | None
    t_last_token_ns: int | None
    t_end_ns: int | None
    status: Status
    prompt_tokens: int | None
    completion_tokens: int | None
    inflight_at_send: int
    error: str | None
    token_ns: bytes | None = None
    session: int | None = None
    turn: int | None = None
    resends: int = 0
    came_ns: int | None = None


class Batch(msgspec.Struct, array_like=True, tag=12):
    """Requests that ended since the last batch: a list of ``Ended``, kept encoded."""

    ended: msgspec.Raw

    @classmethod
    def of(cls, ended: list[Ended]) -> "Batch":
        return cls(msgspec.Raw(encode(ended)))


class Stopped(msgspec.Struct, array_like=True, tag=13):
    """Sending is over: nothing due at or after ``t_stop_ns`` was sent, and ended requests were reported.

    Attributes:
        exhausted: the worker stopped by itself, with nothing left to send.
        told_ns: time of this message. Later than ``t_stop_ns`` if the worker was stalled and
            sent its last requests since.
    """

    t_stop_ns: int
    exhausted: bool = False
    told_ns: int = 0


class Finished(msgspec.Struct, array_like=True, tag=14):
    """Nothing is in flight and all batches are sent.

    Attributes:
        away_ns: (start, end) of each stall of the worker.
        failure: what failed in the worker and ended its share of the cell; else None.
    """

    stall_counts: list[int]
    stall_max_us: float
    cpu_s: float
    rss_mib: float
    away_ns: list[tuple[int, int]]
    failure: str | None = None


ToWorker = Job | Go | Stop | Abandon
ToCoordinator = Hello | Ready | Batch | Stopped | Finished

encode = msgspec.msgpack.Encoder().encode
# (cell number, message)
decode_for_worker = msgspec.msgpack.Decoder(tuple[int, ToWorker]).decode
decode_ended = msgspec.msgpack.Decoder(list[Ended]).decode
decode_for_coordinator = msgspec.msgpack.Decoder(tuple[int, ToCoordinator]).decode


# Observation of a running cell, and what is kept beside its records.

# Called while a cell runs: returns (monotonic ns, requests waiting in the engine) of new samples.
Queue = Callable[[], Iterable[tuple[int, float]]]


def unseen() -> Iterable[tuple[int, float]]:
    """Return no samples: nobody observes the engine's queue, so no cell ends because of it."""
    return ()


class Watcher(Protocol):
    """Receives a cell's progress on the coordinator's thread."""

    def ended(self, request: Ended) -> None: ...

    def tick(self, sent: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Observe:
    """What to keep beside the records, at a cost: token times, event log. ``watcher`` sees requests end."""

    token_times: bool = False
    event_log: Path | None = None
    watcher: Watcher | None = None


NOTHING = Observe()
