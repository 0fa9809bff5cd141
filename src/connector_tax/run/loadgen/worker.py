"""Load-generator worker: one process that serves any number of cells.

Talks to its coordinator over a ZeroMQ pair, and ends when the coordinator's end closes its standard input.
"""

import argparse
import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import monotonic_ns, process_time_ns
from typing import Any

import psutil
import uvloop
import zmq

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import read_sessions
from connector_tax.run.loadgen.descriptors import in_flight, raise_limit
from connector_tax.run.loadgen.generator import LoadGenerator, Part, Reports, Workload
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import TURN_S, EventLog, StallWatch, handler_for
from connector_tax.run.loadgen.messages import (
    Abandon,
    Batch,
    Counters,
    Finished,
    Go,
    Hello,
    Job,
    Ready,
    Stop,
    Stopped,
    ToCoordinator,
    ToWorker,
    decode_for_worker,
    encode,
)
from connector_tax.run.workload.arrivals import OPEN_LOOP
from connector_tax.run.workload.prompts import (
    ConversationRenderer,
    DatasetRenderer,
    RequestRenderer,
    read_prompts,
)
from connector_tax.run.workload.schedulers import Scheduler, SessionScheduler, Share, scheduler_for

# Limit on connections opened before T0; each takes about 0.2 ms.
MOST_FIRST = 4096
# ``EX_SOFTWARE`` of sysexits.h.
BROKEN = 70


class Mailbox:
    """A ZeroMQ pair on an event loop. Its descriptor signals once, so each signal drains it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: str, on_message: Callable[[ToWorker], None]
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        # Cell number of the last job; messages of other cells are late and ignored.
        self._cell = 0
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.linger = 1000
        self._socket.connect(endpoint)
        loop.add_reader(self._socket.fileno(), self._drain)
        loop.call_soon(self._drain)

    def send(self, message: ToCoordinator) -> None:
        if self._socket.closed:
            return  # told to end; nobody waits for what the loop still finishes
        self._socket.send(encode((self._cell, message)))
        # A send may consume the descriptor's edge of a message that arrived meanwhile.
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        while not self._socket.closed:
            try:
                cell, message = decode_for_worker(self._socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            if isinstance(message, Job):
                self._cell = cell
            if cell == self._cell:
                self._on_message(message)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._context.term()


@dataclass(slots=True)
class _Cell:
    """A running cell and what is measured of this process meanwhile."""

    generator: LoadGenerator
    stalls: StallWatch
    log: EventLog | None
    cpu_start_ns: int = 0


class Worker:
    """Runs one job after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: str, counters: Counters) -> None:
        self._loop = loop
        self._counters = counters
        self._cell: _Cell | None = None
        self.mailbox = Mailbox(loop, endpoint, self._handle)

    def _handle(self, message: ToWorker) -> None:
        if isinstance(message, Job):
            self._loop.create_task(self._prepare(message)).add_done_callback(_end_if_failed)
            return
        cell = self._cell
        if cell is None:
            return  # the cell ended while this message was in transit
        if isinstance(message, Go):
            cell.cpu_start_ns = process_time_ns()
            cell.stalls.begin(message.t0_ns)
            cell.generator.begin(message.t0_ns)
        elif isinstance(message, Stop):
            cell.generator.stop(message.at_ns)
        elif isinstance(message, Abandon):
            cell.generator.stop(0)
            # After a stall, answers lie in the sockets, which are served after messages.
            self._loop.call_later(TURN_S, cell.generator.abandon, message.status, message.reason)

    def on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an exception of a loop callback on standard error; the running cell ends and names it."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        # A transport's OSError ends a socket, and its connection is notified.
        of_a_socket = isinstance(error, OSError) and ("transport" in context or "protocol" in context)
        if self._cell is not None and error is not None and not of_a_socket:
            self._cell.generator.fail(f"the load generator failed: {type(error).__name__}: {error}")

    async def _prepare(self, job: Job) -> None:
        spec = CellSpec.from_json(job.spec)
        log = EventLog(Path(job.event_log), spec.cell_id) if job.event_log is not None else None
        share = Share(job.share_index, job.share_of)
        scheduler, workload = _what_to_send(spec, share, job)
        events = handler_for(log)
        # Requests in flight from T0 on must not wait for connections.
        at_once = 0 if spec.arrival in OPEN_LOOP else min(ceil(in_flight(spec) / share.of), MOST_FIRST)
        stalls = StallWatch(self._loop)
        issuer = HttpIssuer(
            job.target,
            spec.asked,
            events,
            first_connections=at_once,
            is_back=stalls.is_back,
        )
        generator = LoadGenerator(
            Part(spec, share, scheduler, issuer, workload, job.token_times),
            self._counters,
            Reports(
                on_batch=lambda ended: self.mailbox.send(Batch.of(ended)),
                on_stopped=lambda at_ns, exhausted: self.mailbox.send(
                    Stopped(at_ns, exhausted, monotonic_ns())
                ),
                on_idle=self._finish,
            ),
            stop_at_ns=job.stop_at_ns,
            log=log,
        )
        await generator.prepare()
        self._cell = _Cell(generator, stalls, log)
        self.mailbox.send(Ready())

    def _finish(self) -> None:
        cell, self._cell = self._cell, None
        if cell is None:
            return
        cpu_s = (process_time_ns() - cell.cpu_start_ns) / 1e9
        cell.stalls.close()
        # Deferred, since the last connection is still reporting its end.
        self._loop.call_soon(cell.generator.close)
        if cell.log is not None:
            cell.log.close()
        rss_mib = psutil.Process().memory_info().rss / 2**20
        stalls, failure = (
            cell.stalls,
            cell.generator.failure or (cell.log.failure if cell.log is not None else None),
        )
        self.mailbox.send(Finished(stalls.counts, stalls.max_us, cpu_s, rss_mib, stalls.away_ns, failure))


def _end_if_failed(preparing: "asyncio.Task[None]") -> None:
    """End a worker that failed to prepare a cell; its coordinator would wait for it."""
    if not preparing.cancelled() and (error := preparing.exception()) is not None:
        traceback.print_exception(error)
        os._exit(BROKEN)


def _what_to_send(spec: CellSpec, share: Share, job: Job) -> tuple[Scheduler, Workload]:
    if spec.prompts is not None:
        return scheduler_for(spec, share), DatasetRenderer(spec, job.target, read_prompts(Path(spec.prompts)))
    if spec.sessions is None:
        return scheduler_for(spec, share), RequestRenderer(spec, job.target)
    sessions = read_sessions(Path(spec.sessions))
    scheduler = SessionScheduler(spec, share, sessions, cancel_on_failure=not spec.keep_failed_sessions)
    renderer = ConversationRenderer(
        spec,
        job.target,
        turn_of=scheduler.turn_of,
        session_of=scheduler.session,
    )
    scheduler.on_over = renderer.forget
    return scheduler, renderer


async def _serve(endpoint: str, counters: Counters) -> None:
    loop = asyncio.get_running_loop()
    worker = Worker(loop, endpoint, counters)
    loop.set_exception_handler(worker.on_exception)
    worker.mailbox.send(Hello())
    stdin_closed = asyncio.Event()
    # Standard input is never written to: readable means closed.
    loop.add_reader(sys.stdin.fileno(), stdin_closed.set)
    await stdin_closed.wait()
    loop.remove_reader(sys.stdin.fileno())
    worker.mailbox.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--counters", type=Path, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--cpus", default="", help="logical CPUs to stay on, comma-separated")
    args = parser.parse_args()
    if args.cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in args.cpus.split(",")})
    raise_limit()
    uvloop.run(_serve(args.endpoint, Counters(args.counters, args.workers)))


if __name__ == "__main__":
    main()
