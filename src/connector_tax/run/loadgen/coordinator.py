"""Drives one cell over a pool of workers: plan -> jobs -> batches of ended requests -> the cell's records.

The coordinator decides when the window begins and when sending ends; no request passes through it.
"""

import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic_ns, thread_time_ns

import msgspec
import zmq

from connector_tax.base.errors import EngineError
from connector_tax.base.files import printable, socket_folder
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import Target
from connector_tax.base.units import s_to_ns
from connector_tax.run.loadgen.descriptors import CpuMeter, Placement
from connector_tax.run.loadgen.issuer import SessionEvent, session_log
from connector_tax.run.loadgen.messages import (
    BATCH_S,
    Abandon,
    Batch,
    Counters,
    Ended,
    Finished,
    Go,
    Job,
    Observe,
    Queue,
    Ready,
    SessionResult,
    Stop,
    Stopped,
    ToCoordinator,
    ToWorker,
    decode_ended,
    decode_for_coordinator,
    encode,
)
from connector_tax.run.workload.arrivals import OFFLINE, OPEN_LOOP
from connector_tax.run.workload.protocol import CellProtocol, rule_of
from connector_tax.run.workload.schedulers import Scheduler, Share, scheduler_for

# Worker processes: started, messaged, watched. A dead or silent one is replaced before the next cell.

STOP_WAIT_S = 2.0
# Time for a worker's start: an interpreter and its imports.
UP_WITHIN_S = 60.0
POLL_MS = 50


@dataclass(slots=True)
class _Member:
    """One worker process and its socket."""

    process: "subprocess.Popen[bytes]"
    socket: "zmq.Socket[bytes]"
    up: bool = False


class WorkerPool:
    """``n`` workers, numbered from 0. Use ``worker_pool`` to make one."""

    def __init__(self, n: int, folder: Path, placement: Placement | None) -> None:
        self.n = n
        self._folder = folder
        self.placement = placement
        self.counters = Counters(folder / "counters", n)
        self._context = zmq.Context(io_threads=1)
        self._generation = 0
        self._cell = 0
        self._members = [self._start(index) for index in range(n)]

    def revive(self) -> None:
        """Replace dead workers and wait until all are up; called between cells only.

        Raises:
            EngineError: one does not come up.
        """
        for index in self.dead():
            self._members[index].socket.close()
            self._members[index] = self._start(index)
        deadline_s = time.monotonic() + UP_WITHIN_S
        for index, member in enumerate(self._members):
            while not member.up:
                member.up = bool(member.socket.poll(POLL_MS))
                if member.process.poll() is not None:
                    raise EngineError(f"{self.dead()[index]} before it was up; its words are above.")
                if not member.up and time.monotonic() > deadline_s:
                    self.kill(index)
                    raise EngineError(f"load-generator worker {index} was not up after {UP_WITHIN_S:g} s.")

    def next_cell(self) -> None:
        """Begin a new cell: late messages of earlier cells are dropped."""
        self._cell += 1

    def kill(self, index: int) -> None:
        """Kill a worker that does not answer; ``revive`` replaces it."""
        self._members[index].process.kill()
        self._members[index].process.wait()

    def kill_all(self) -> None:
        for index in range(self.n):
            self.kill(index)

    def dead(self) -> dict[int, str]:
        """Return the workers whose process has ended, and how."""
        exit_codes = {index: member.process.poll() for index, member in enumerate(self._members)}
        return {
            index: f"load-generator worker {index} ended "
            + (f"by signal {-code}" if code < 0 else f"with exit code {code}")
            for index, code in exit_codes.items()
            if code is not None
        }

    def send(self, index: int, message: ToWorker) -> None:
        # A dead worker takes no messages; dead() reports it, and the cell goes on without it.
        if self._members[index].process.poll() is None:
            self._members[index].socket.send(encode((self._cell, message)), zmq.NOBLOCK)

    def receive(self, timeout_s: float) -> Iterator[tuple[int, ToCoordinator]]:
        """Yield this cell's messages, waiting up to ``timeout_s`` for the first."""
        poller = zmq.Poller()
        for member in self._members:
            poller.register(member.socket, zmq.POLLIN)
        poller.poll(max(round(timeout_s * 1000), 0))
        for index, member in enumerate(self._members):
            while True:
                try:
                    cell, message = decode_for_coordinator(member.socket.recv(zmq.NOBLOCK))
                except zmq.Again:
                    break
                if cell == self._cell:
                    yield index, message

    def pid(self, index: int) -> int:
        return self._members[index].process.pid

    def close(self, wait_s: float = STOP_WAIT_S) -> None:
        """End the workers: each ends with its standard input, or is killed after ``wait_s``."""
        for member in self._members:
            assert member.process.stdin is not None
            member.process.stdin.close()
        try:
            for member in self._members:
                with suppress(subprocess.TimeoutExpired):
                    member.process.wait(wait_s)
        finally:
            # Also after an interrupt: an open socket would keep this process alive.
            for member in self._members:
                member.process.kill()  # no effect on one that has ended
                member.process.wait()
                member.socket.close(linger=0)
            self._context.term()
            self.counters.close()

    def _start(self, index: int) -> _Member:
        self._generation += 1
        endpoint = f"ipc://{self._folder}/{index}.{self._generation}"
        socket = self._context.socket(zmq.PAIR)
        socket.linger = 0
        socket.bind(endpoint)
        command = [sys.executable, "-m", "connector_tax.run.loadgen.worker", "--endpoint", endpoint]
        command += ["--counters", str(self._folder / "counters"), "--workers", str(self.n)]
        if self.placement is not None and self.placement.workers[index]:
            command += ["--cpus", ",".join(map(str, self.placement.workers[index]))]
        # NumPy's BLAS would start a thread per core in vain.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # A process group of its own, so that Ctrl-C reaches only us; a worker ends with its standard input.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env, process_group=0)
        return _Member(process, socket)


@contextmanager
def worker_pool(n: int, placement: Placement | None = None) -> Iterator[WorkerPool]:
    """Yield workers for the body; their sockets lie in a folder that only this user may enter."""
    with socket_folder() as folder:
        pool = WorkerPool(n, Path(folder), placement)
        wait_s = STOP_WAIT_S
        try:
            yield pool
        except KeyboardInterrupt:
            wait_s = 0.0
            raise
        finally:
            pool.close(wait_s)


# Workers' reports, and reconstruction for dead workers -> a record for every scheduled request.


def record_of(ended: Ended, window: CellWindow, worker: int) -> RequestRecord:
    fields = msgspec.structs.asdict(ended)
    for name in ("token_ns", "came_ns"):  # not kept in the cell's record
        del fields[name]
    return RequestRecord(**fields, worker=worker, phase=window.phase_of(ended.t_sched_ns))


def in_time(ended: Ended, drain_end: tuple[int, str] | None) -> Ended:
    """Return ``ended``, as a time-out if its answer arrived after the drain.

    Nobody may have ended it then: the worker was stalled and read it before the message, or the coordinator
    was stalled and sent none.

    Args:
        drain_end: time, and the error text for unfinished requests; None if it was cut.
    """
    came_ns = ended.t_end_ns if ended.came_ns is None else ended.came_ns
    if drain_end is None or ended.status != "ok" or came_ns is None or came_ns <= drain_end[0]:
        return ended
    return msgspec.structs.replace(ended, status="timeout", error=drain_end[1])


def lost_records(
    spec: CellSpec,
    share: Share,
    window: CellWindow,
    *,
    taken: int,
    known: Collection[int],
    reason: str,
) -> list[RequestRecord]:
    """Return ``aborted`` records for requests of a dead worker that it did not report.

    Args:
        taken: samples that it took from its schedule.
        known: ``seq`` of every reported request.
    """
    if _is_known_ahead(spec):
        due = _scheduled(scheduler_for(spec, share), window)
    else:
        # Only the worker knows when a closed loop or a conversation would have sent.
        n_reported = sum(seq % share.of == share.index for seq in known)
        unreported = (seq for seq in count(share.index, share.of) if seq not in known)
        due = {next(unreported): window.t_stop_ns for _ in range(max(taken - n_reported, 0))}
    return [
        RequestRecord(
            seq=seq,
            t_sched_ns=t_sched_ns,
            t_send_ns=None,
            t_first_token_ns=None,
            t_last_token_ns=None,
            t_end_ns=None,
            status="aborted",
            prompt_tokens=None,
            completion_tokens=None,
            inflight_at_send=0,
            worker=share.index,
            phase=window.phase_of(t_sched_ns),
            error=reason,
        )
        for seq, t_sched_ns in due.items()
        if seq not in known
    ]


def never_sent(
    spec: CellSpec,
    n_workers: int,
    window: CellWindow,
    stop_ns_by_worker: Mapping[int, int],
    known: Collection[int],
) -> list[RequestRecord]:
    """Return ``aborted`` records for requests due before the cell's end of workers that stopped earlier.

    They exist only if the workers learned of the end too late to stop together, or stopped within a batch.

    Args:
        stop_ns_by_worker: each worker's stop time; it reported everything due before.
    """
    records: list[RequestRecord] = []
    for index, stop_ns in stop_ns_by_worker.items():
        early_ms = (window.t_stop_ns - stop_ns) / 1e6
        if _is_known_ahead(spec) and (early_ms > 0 or spec.arrival == OFFLINE):
            reason = f"not sent: worker {index} stopped {early_ms:.3f} ms before the last one"
            if spec.arrival == OFFLINE:
                reason = f"not sent: worker {index} was stopped in the middle of the batch"
            records += lost_records(
                spec, Share(index, n_workers), window, taken=0, known=known, reason=reason
            )
    return records


def _is_known_ahead(spec: CellSpec) -> bool:
    """Return whether due times were known before the cell; an offline batch is due at T0."""
    return spec.sessions is None and spec.arrival in (*OPEN_LOOP, OFFLINE)


def _scheduled(scheduler: Scheduler, window: CellWindow) -> dict[int, int]:
    due: dict[int, int] = {}
    while scheduler.next_due_ns() is not None:
        sample = scheduler.take()
        if window.t0_ns + sample.offset_ns >= window.t_stop_ns:
            break
        due[sample.seq] = window.t0_ns + sample.offset_ns
    return due


POLL_S = 0.25
ABORT_POLL_NS = 250_000_000
READY_TIMEOUT_S = 60.0
# Time for a worker to answer a Stop or an Abandon; it is busy for milliseconds at most.
ANSWER_TIMEOUT_S = 30.0
# From readiness of the workers to the first arrival.
LEAD_NS = 20_000_000
# Ends are reported in batches; those older than this have been.
UNTOLD_NS = 2 * s_to_ns(BATCH_S)
# A longer gap between two polls means that the coordinator was stalled; it then first reads its messages.
AWAY_NS = 2 * s_to_ns(POLL_S)
# Lead time with which several workers stop at the same time.
STOP_LEAD_NS = 10_000_000


class WorkerLost(EngineError):
    """A worker ended before the cell began: nothing was sent, and the next cell gets another one."""


@dataclass(slots=True)
class _WorkerReports:
    """The workers' messages so far."""

    ready: set[int] = field(default_factory=set)
    stopped: dict[int, int] = field(default_factory=dict)
    exhausted: set[int] = field(default_factory=set)
    # Actual time of the last stop, which a stalled worker reaches after the cell's end.
    sent_ns: int = 0
    finished: dict[int, Finished] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    # Kept encoded: a cell of an hour has a hundred thousand requests.
    batches: list[bytes] = field(default_factory=list)


class Coordinator:
    """The state of a running cell, on a thread of its own."""

    def __init__(
        self,
        spec: CellSpec,
        target: Target,
        pool: WorkerPool,
        abort_reason: Callable[[], str | None],
        stop_reason: Callable[[], str | None],
        observe: Observe,
        queue: Queue,
    ) -> None:
        self._spec = spec
        self._target = target
        self._pool = pool
        self._abort_reason = abort_reason
        self._stop_reason = stop_reason
        self._observe = observe
        self._queue = queue
        self._heard = _WorkerReports()
        self._aborted: str | None = None
        self._interrupted: str | None = None
        self._given_up: str | None = None
        # End of the drain and the error text for unfinished requests; None if the drain was cut short.
        self._over: tuple[int, str] | None = None
        # Further problems of the cell.
        self._said: list[str] = []
        self._next_abort_poll_ns = 0
        self._meter = CpuMeter(())
        self._rule = rule_of(spec)
        self._protocol = CellProtocol(spec, 0, self._rule)

    def drive(self) -> SessionResult:
        if self._pool.placement is not None and self._pool.placement.coordinator:
            os.sched_setaffinity(threading.get_native_id(), self._pool.placement.coordinator)
        log = session_log(self._observe.event_log, self._spec.cell_id)
        cpu_start_ns = thread_time_ns()
        self._pool.revive()
        self._pool.counters.reset()
        self._hand_out()
        t0_ns = monotonic_ns() + LEAD_NS
        self._protocol = CellProtocol(self._spec, t0_ns, self._rule)
        self._tell(Go(t0_ns))
        log.note(SessionEvent.TEST_STARTED, t0_ns)
        self._meter = CpuMeter(map(self._pool.pid, range(self._pool.n)))
        self._send_phase()
        cpu_share = self._meter.shares()
        t_stop_ns = self._stop_phase()
        log.note(SessionEvent.STOP_PERFORMANCE_TRACKING, t_stop_ns)
        log.note(SessionEvent.LOADGEN_STOP, t_stop_ns)
        self._drain_phase(t_stop_ns)
        drained_ns = monotonic_ns()
        if self._spec.num_requests is not None:
            # A fixed number of requests is also measured after its last send.
            cpu_share = self._meter.shares()
        log.note(SessionEvent.TEST_ENDED, drained_ns)
        log.close()
        if log.failure is not None:
            self._said.append(log.failure)
        cpu_s = (thread_time_ns() - cpu_start_ns) / 1e9
        return self._result(self._protocol.window(drained_ns), cpu_s, cpu_share)

    def _hand_out(self) -> None:
        self._pool.next_cell()
        for index in range(self._pool.n):
            log = self._observe.event_log
            job = Job(
                self._spec.to_json(),
                self._target,
                share_index=index,
                share_of=self._pool.n,
                stop_at_ns=monotonic_ns() + s_to_ns(READY_TIMEOUT_S + self._spec.max_cell_s),
                token_times=self._observe.token_times,
                event_log=None if log is None else str(log / f"events_worker{index}.jsonl"),
            )
            self._pool.send(index, job)
        in_time = self._listen_until(
            lambda: len(self._heard.ready) == self._pool.n or bool(self._heard.dead), READY_TIMEOUT_S
        )
        if in_time and not self._heard.dead:
            return
        dead = list(self._heard.dead.values())
        # Ready workers drop their job; the others are replaced before the next cell.
        self._kill_silent(self._heard.ready)
        self._tell(Abandon("aborted", "the cell was called off"))
        if not in_time:
            raise EngineError(f"the load generator's workers were not ready after {READY_TIMEOUT_S:g} s.")
        raise WorkerLost(f"{dead[0]} before the cell began; see above.")

    def _send_phase(self) -> None:
        """Wait until sending ends, and decide when."""
        announced_ns: int | None = None
        looked_ns = monotonic_ns()
        while True:
            before_ns, looked_ns = looked_ns, monotonic_ns()
            if looked_ns - before_ns > AWAY_NS:
                self._listen(POLL_S)
                # Otherwise a wait without messages would count as a stall, repeatedly.
                looked_ns = monotonic_ns()
            now_ns = monotonic_ns()
            self._meter.count_from(self._protocol.window_start_ns)
            self._poll_abort(now_ns)
            if not self._heard.dead and self._living() <= self._heard.exhausted:
                return
            # A worker that stopped early with requests left has failed, and says so when it has finished.
            stopped = {
                index: stop_ns
                for index, stop_ns in self._heard.stopped.items()
                if index not in self._heard.exhausted
            }
            failed = any(announced_ns is None or at_ns < announced_ns for at_ns in stopped.values())
            if self._aborted or self._interrupted or self._heard.dead or failed:
                self._tell(Stop(now_ns))
                return
            for t_ns, n_waiting in self._queue():
                self._protocol.sampled(t_ns, n_waiting)
            self._given_up = self._protocol.gives_up(now_ns, now_ns - UNTOLD_NS)
            if self._given_up is not None:
                self._tell(Stop(now_ns))
                return
            end_ns = self._protocol.end_ns() or self._protocol.give_up_ns
            if end_ns != announced_ns:
                announced_ns = end_ns
                self._tell(Stop(end_ns))
            if now_ns >= end_ns:
                return
            self._listen(min(POLL_S, (end_ns - now_ns) / 1e9))

    def _stop_phase(self) -> int:
        """Wait until every living worker has stopped; return the last stop time."""
        if not self._listen_until(lambda: self._living() <= self._heard.stopped.keys(), ANSWER_TIMEOUT_S):
            self._kill_silent(self._heard.stopped)
        t_stop_ns = max(self._heard.stopped.values(), default=monotonic_ns())
        cut_short = self._aborted or self._interrupted or self._heard.dead
        if not cut_short and (self._given_up is None or self._protocol.overloaded(t_stop_ns)):
            # By now every worker has reported what had ended at its stop. An overloaded
            # cell need not be drained.
            self._given_up = self._protocol.overloaded_at_end(t_stop_ns)
        all_sent = not self._heard.dead and self._living() <= self._heard.exhausted
        self._protocol.stop(t_stop_ns, all_sent=all_sent)
        return t_stop_ns

    def _drain_phase(self, t_stop_ns: int) -> None:
        def done() -> bool:
            return self._living() <= self._heard.finished.keys()

        # By the workers' clock, since this process may have been stalled since then.
        sent_ns = max(t_stop_ns, self._heard.sent_ns)
        deadline_ns = sent_ns + s_to_ns(0.0 if self._given_up is not None else self._spec.drain_timeout_s)
        if self._spec.num_requests is not None and self._given_up is None:
            # All of a batch is sent at T0: a fixed number is bounded by its cell's time.
            deadline_ns = max(deadline_ns, self._protocol.give_up_ns)
        while not done() and self._aborted is None and monotonic_ns() < deadline_ns:
            self._poll_abort(monotonic_ns())
            self._listen(min(POLL_S, (deadline_ns - monotonic_ns()) / 1e9))
        reason = f"unfinished {(deadline_ns - sent_ns) / 1e9:.3g} s after the last send"
        if self._aborted is None and self._given_up is None:
            # Also if all has ended by now, since this process may have been stalled.
            self._over = (deadline_ns, reason)
        if done():
            return
        if self._aborted is not None:
            self._tell(Abandon("aborted", self._aborted))
        elif self._given_up is not None:
            self._tell(Abandon("aborted", f"given up: {self._given_up}"))
        else:
            self._tell(Abandon("timeout", reason))
        if not self._listen_until(done, ANSWER_TIMEOUT_S):
            self._kill_silent(self._heard.finished)

    def _kill_silent(self, answered: Collection[int]) -> None:
        """Kill the living workers that are not in ``answered``."""
        for index in sorted(self._living().difference(answered)):
            self._heard.dead[index] = f"load-generator worker {index} does not answer"
            self._pool.kill(index)

    def _listen(self, timeout_s: float) -> None:
        for index, message in self._pool.receive(timeout_s):
            if isinstance(message, Batch):
                self._heard.batches.append(bytes(message.ended))
                for ended in decode_ended(message.ended):
                    if self._observe.watcher is not None:
                        self._observe.watcher.ended(ended)
                    if self._rule is not None:
                        self._rule.note(ended)
                    end_ns = ended.t_end_ns if ended.t_end_ns is not None else ended.t_sched_ns
                    if ended.status == "dropped":
                        self._protocol.dropped(ended.t_sched_ns)
                    else:
                        ok = ended.status == "ok"
                        failure = "" if ok else f"{ended.status} ({printable(ended.error or '', 200)})"
                        self._protocol.ended(ended.t_sched_ns, ok, end_ns, failure)
            elif isinstance(message, Ready):
                self._heard.ready.add(index)
            elif isinstance(message, Stopped):
                self._heard.stopped[index] = message.t_stop_ns
                self._heard.sent_ns = max(self._heard.sent_ns, message.told_ns)
                if message.exhausted:
                    self._heard.exhausted.add(index)
            elif isinstance(message, Finished):
                self._heard.finished[index] = message
        self._heard.dead = {**self._pool.dead(), **self._heard.dead}
        if self._observe.watcher is not None:
            self._observe.watcher.tick(sum(map(self._pool.counters.taken, range(self._pool.n))))

    def _listen_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        deadline_ns = monotonic_ns() + s_to_ns(timeout_s)
        while not done() and not (self._heard.dead and not self._heard.ready):
            if monotonic_ns() >= deadline_ns:
                return False
            self._listen(POLL_S)
        return True

    def _living(self) -> set[int]:
        return set(range(self._pool.n)) - self._heard.dead.keys()

    def _tell(self, message: Go | Stop | Abandon) -> None:
        if isinstance(message, Stop) and self._pool.n > 1:
            message = Stop(max(message.at_ns, monotonic_ns() + STOP_LEAD_NS))
        for index in self._living():
            self._pool.send(index, message)

    def _poll_abort(self, now_ns: int) -> None:
        if self._aborted is None and now_ns >= self._next_abort_poll_ns:
            self._next_abort_poll_ns = now_ns + ABORT_POLL_NS
            self._aborted = self._abort_reason()
            self._interrupted = self._interrupted or self._stop_reason()

    def _result(
        self, window: CellWindow, coordinator_cpu_s: float, worker_cpu_share: list[float]
    ) -> SessionResult:
        requests = [
            in_time(request, self._over) for batch in self._heard.batches for request in decode_ended(batch)
        ]
        records = {
            request.seq: record_of(request, window, request.seq % self._pool.n) for request in requests
        }
        failures = {
            worker: f"worker {worker}: {report.failure}"
            for worker, report in self._heard.finished.items()
            if report.failure
        }
        faults = {**failures, **self._heard.dead}
        for index, reason in faults.items():
            taken = self._pool.counters.taken(index)
            share = Share(index, self._pool.n)
            missing_records = lost_records(
                self._spec, share, window, taken=taken, known=records.keys(), reason=reason
            )
            records |= {r.seq: r for r in missing_records}
        stop_ns_by_worker = {
            worker: at_ns for worker, at_ns in self._heard.stopped.items() if worker not in self._heard.dead
        }
        records |= {
            r.seq: r for r in never_sent(self._spec, self._pool.n, window, stop_ns_by_worker, records.keys())
        }
        reports = list(self._heard.finished.values())
        return SessionResult(
            window=window,
            requests=[records[seq] for seq in sorted(records)],
            token_ns={
                request.seq: array("q", request.token_ns)
                for request in requests
                if request.token_ns is not None
            },
            stall_counts=[sum(c) for c in zip(*(r.stall_counts for r in reports), strict=True)],
            stall_max_us=max((r.stall_max_us for r in reports), default=0.0),
            away_ns=[r.away_ns for r in reports],
            worker_cpu_s=[r.cpu_s for r in reports],
            worker_cpu_share=worker_cpu_share,
            coordinator_cpu_s=coordinator_cpu_s,
            worker_rss_mib=[r.rss_mib for r in reports],
            wall_s=(window.drained_ns - window.t0_ns) / 1e9,
            aborted=self._aborted or self._interrupted,
            deaths=[*faults.values(), *self._said],
            given_up=self._given_up,
        )
