"""What coordinator and workers say to each other, as MessagePack arrays over ZeroMQ.

Nothing here lies between a deadline and a socket: the job tells a worker everything it will send, and
records come back in batches. Each message goes with the number of its cell, so that what comes late is taken
for no other's.
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

# What a cell left behind in its coordinator: records, and what the client spent on them.


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What happened, and the client's own cost while it did.

    Attributes:
        requests: by ``seq``; one for every sample scheduled before ``window.t_stop_ns``.
        token_ns: by ``seq``, where ``Observe.token_times`` asked for it.
        stall_counts: heartbeats by lateness, all workers together; see ``stalls.EDGES_US``.
        away_ns: of each worker, from when to when it was away, each time.
        worker_cpu_s: one per worker, while the cell ran.
        aborted: why the cell was ended from outside, at once or in order; None where it was not.
        deaths: workers that ended or broke in the middle, and how.
        given_up: why it ended itself before its time; None where it did not.
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
    # Of a core, one per worker, while the window lasted.
    worker_cpu_share: list[float] = field(default_factory=list)

    @property
    def client_cpu_s(self) -> float:
        """Of all of the client's processes."""
        return sum(self.worker_cpu_s) + self.coordinator_cpu_s


# Numbers that all workers see at once, in a mapped file: no message, no lock, no waiting.

LINE_BYTES = 64
_INFLIGHT, _TAKEN, _FIELDS = 0, 1, LINE_BYTES // 8


class Counters:
    """In flight now, and samples taken from the schedule so far, by worker."""

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
        """Everything to 0; only while no worker runs a cell."""
        for index in range(len(self._values)):
            self._values[index] = 0

    def add_inflight(self, worker: int, change: int) -> None:
        self._values[worker * _FIELDS + _INFLIGHT] += change

    def count_taken(self, worker: int) -> None:
        self._values[worker * _FIELDS + _TAKEN] += 1

    def inflight(self) -> int:
        """Over all workers."""
        if self._workers == 1:
            return self._values[_INFLIGHT]
        return sum(self._values[w * _FIELDS + _INFLIGHT] for w in range(self._workers))

    def taken(self, worker: int) -> int:
        return self._values[worker * _FIELDS + _TAKEN]

    def close(self) -> None:
        self._values.release()
        self._map.close()


# So often at most, and with ``Stopped``, a worker tells of requests that ended.
BATCH_S = 0.2


class Job(msgspec.Struct, array_like=True, tag=1):
    """One cell, to be begun at ``t0_ns``.

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
    """T0; sent when every worker is ready."""

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
    """One request that ended; fields as in ``RequestRecord``, token times as native 64-bit integers, and
    ``Flight.came_ns``."""

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
    """Requests that ended since the last batch: a list of ``Ended``, left encoded, since it is kept so."""

    ended: msgspec.Raw

    @classmethod
    def of(cls, ended: list[Ended]) -> "Batch":
        return cls(msgspec.Raw(encode(ended)))


class Stopped(msgspec.Struct, array_like=True, tag=13):
    """Sending is over; nothing due at or after ``t_stop_ns`` was sent, and what had ended by then was told
    before.

    Attributes:
        exhausted: all that this worker had to send was sent, so it stopped before anybody told it to.
        told_ns: when this was said: later than ``t_stop_ns`` where the worker was away then, and sent its
            last requests since.
    """

    t_stop_ns: int
    exhausted: bool = False
    told_ns: int = 0


class Finished(msgspec.Struct, array_like=True, tag=14):
    """Nothing is in flight any more; all batches are out. Microseconds and seconds are in the names.

    Attributes:
        away_ns: from when to when the worker was away, each time.
        failure: what of the worker's own broke and ended its share of the cell; None where nothing did.
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
# The number of the cell, and the message.
decode_for_worker = msgspec.msgpack.Decoder(tuple[int, ToWorker]).decode
decode_ended = msgspec.msgpack.Decoder(list[Ended]).decode
decode_for_coordinator = msgspec.msgpack.Decoder(tuple[int, ToCoordinator]).decode


# What a cell is watched with while it runs, and what is kept of it beside its records.

# Asked while a cell runs: (monotonic ns, requests waiting in the engine) of samples since it was asked last.
Queue = Callable[[], Iterable[tuple[int, float]]]


def unseen() -> Iterable[tuple[int, float]]:
    """Nobody samples the engine's queue, so no cell is ended for it."""
    return ()


class Watcher(Protocol):
    """Told how a cell is going, on the coordinator's thread."""

    def ended(self, request: Ended) -> None: ...

    def tick(self, sent: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Observe:
    """What is kept beside the records: every token's time, a log of every event. Both cost. ``watcher`` sees
    requests end."""

    token_times: bool = False
    event_log: Path | None = None
    watcher: Watcher | None = None


NOTHING = Observe()
