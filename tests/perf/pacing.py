"""Where the metronome stands: three ways of firing at a deadline, under the same load, against the truth server.

    .venv/bin/python tests/perf/pacing.py [SECONDS]

ahead      the schedule lies with the worker, a timerfd on its own loop fires (what the project does)
metronome  a process of its own fires and sends each sample to the worker over ZeroMQ (ipc)
thread     a thread of the worker's process waits busily and wakes the loop (the performance seed's design)

Prints lateness against the schedule, TTFT error and CPU for each; docs/decisions/0006 quotes it.
"""

import asyncio
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np
import uvloop
import zmq

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import RequestForm, Target
from connector_tax.base.timer import DeadlineFd, DeadlineTimer
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import Flight
from connector_tax.run.selftest.__main__ import read_truth, truth_server
from connector_tax.run.workload.prompts import RequestRenderer

RATE, SHAPE = 32, (4096, 256)
GAP_NS = 1_000_000_000 // RATE
Send = Callable[[int], None]
Pacer = Callable[[asyncio.AbstractEventLoop, Send, int, int, str], None]


def ahead(loop: asyncio.AbstractEventLoop, send: Send, t0_ns: int, n: int, endpoint: str) -> None:
    due = iter(range(n))
    state = {"next": next(due)}

    def fire() -> None:
        while state["next"] < n and t0_ns + state["next"] * GAP_NS <= time.monotonic_ns():
            send(state["next"])
            state["next"] = next(due, n)
        if state["next"] < n:
            timer.arm(t0_ns + state["next"] * GAP_NS)

    timer = DeadlineTimer(loop, fire)
    fire()


def tick(endpoint: str, t0_ns: int, n: int) -> None:
    """The metronome's process."""
    socket = zmq.Context().socket(zmq.PAIR)
    socket.connect(endpoint)
    timer = DeadlineFd()
    import select

    for seq in range(n):
        timer.arm(t0_ns + seq * GAP_NS)
        select.select([timer.fd], [], [])
        timer.clear()
        socket.send(seq.to_bytes(4, "little"))
    socket.close(linger=2000)


def metronome(loop: asyncio.AbstractEventLoop, send: Send, t0_ns: int, n: int, endpoint: str) -> None:
    socket = zmq.Context().socket(zmq.PAIR)
    socket.bind(endpoint)

    def drain() -> None:
        while True:
            try:
                send(int.from_bytes(socket.recv(zmq.NOBLOCK), "little"))
            except zmq.Again:
                return

    loop.add_reader(socket.fileno(), drain)
    multiprocessing.get_context("spawn").Process(target=tick, args=(endpoint, t0_ns, n), daemon=True).start()


def thread(loop: asyncio.AbstractEventLoop, send: Send, t0_ns: int, n: int, endpoint: str) -> None:
    def spin() -> None:
        for seq in range(n):
            while time.monotonic_ns() < t0_ns + seq * GAP_NS:
                pass
            loop.call_soon_threadsafe(send, seq)

    threading.Thread(target=spin, daemon=True).start()


async def load(pacer: Pacer, spec: CellSpec, port: int, n: int, endpoint: str) -> list[Flight]:
    loop = asyncio.get_running_loop()
    renderer = RequestRenderer(spec, Target("127.0.0.1", port, "m"))
    payloads = {seq: renderer.render(seq) for seq in range(n)}  # the pacing is on trial, not the rendering
    flights: list[Flight] = []
    ended = asyncio.Event()
    left = [n]

    def on_end(flight: Flight) -> None:
        left[0] -= 1
        if not left[0]:
            ended.set()

    issuer = HttpIssuer(Target("127.0.0.1", port, "m"), RequestForm(), spare_connections=16)
    await issuer.start(on_end)
    t0_ns = time.monotonic_ns() + 2_000_000_000

    def send(seq: int) -> None:
        flights.append(Flight(seq, t0_ns + seq * GAP_NS, 0))
        issuer.issue(flights[-1], payloads.pop(seq))

    pacer(loop, send, t0_ns, n, endpoint)
    await ended.wait()
    issuer.shutdown()
    return flights


def cpu_s() -> float:
    return sum(u.ru_utime + u.ru_stime for u in (getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)))


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    n = round(seconds * RATE)
    spec = CellSpec("a", RATE, *SHAPE, "fixed", 0, 1, 1, 1, 1, 1, 1, 1000, 100_000)
    print(f"{RATE} req/s x {SHAPE[1]} tokens, {seconds:g} s each; microseconds")
    print(
        f"{'':10} {'late p50':>9} {'p99':>9} {'max':>9} {'TTFT error p50':>15} {'p99':>9} {'client CPU s':>13}"
    )
    for pacer in (ahead, metronome, thread):
        with tempfile.TemporaryDirectory() as folder:
            stamps = Path(folder) / "stamps"
            with truth_server(100, 10, stamps) as url:
                before = cpu_s()
                port = int(url.rpartition(":")[2])
                flights = uvloop.run(load(pacer, spec, port, n, f"ipc://{folder}/tick"))
                used = cpu_s() - before
            truth = read_truth(stamps)
        late = np.array([f.t_send_ns - f.t_sched_ns for f in flights]) / 1e3  # type: ignore[operator]
        error = []
        for flight in flights:
            true = truth[f"{spec.seed:x}-{flight.seq}"]
            assert flight.t_first_token_ns is not None and flight.t_send_ns is not None
            error.append(
                (flight.t_first_token_ns - flight.t_send_ns) - (true.writes_ns[0] - true.last_byte_ns)
            )
        late_p, error_p = np.percentile(late, (50, 99)), np.percentile(np.array(error) / 1e3, (50, 99))
        print(
            f"{pacer.__name__:10} {late_p[0]:9.1f} {late_p[1]:9.1f} {late.max():9.1f} "
            f"{error_p[0]:15.1f} {error_p[1]:9.1f} {used:13.2f}"
        )


if __name__ == "__main__":
    main()
