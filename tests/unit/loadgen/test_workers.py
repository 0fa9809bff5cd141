"""Several processes share a cell; none of them may hang it, lose a request or move the schedule."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop
import zmq

sys.path.insert(0, str(Path(__file__).parents[2]))
import self_signed
from families import alive, within
from truth_server import Reply, answer_well, token_event, truth_server, usage_event

from connector_tax.base.errors import EngineError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import RequestForm, target_of
from connector_tax.run.loadgen import coordinator
from connector_tax.run.loadgen.cell import CellOutcome, measure_cell
from connector_tax.run.loadgen.coordinator import WorkerPool, worker_pool
from connector_tax.run.loadgen.descriptors import Placement
from connector_tax.run.loadgen.health import STALL_US
from connector_tax.run.loadgen.issuer import StallWatch
from connector_tax.run.loadgen.messages import (
    NOTHING,
    Abandon,
    Ended,
    Hello,
    Job,
    Observe,
    Stopped,
    decode_for_coordinator,
)
from connector_tax.run.loadgen.worker import Mailbox

SPEC = CellSpec("a", 100.0, 8, 4, "fixed", 0.05, 0.4, 10, 3.0, 1.0, 64, 1, 10, 100)


def measure(
    pool: WorkerPool,
    script: Any = answer_well,
    observe: Observe = NOTHING,
    cert: tuple[Path, Path] | None = None,
    **changes: Any,
) -> CellOutcome:
    spec = replace(SPEC, workers=pool.n, **changes)
    with truth_server(script, tls=self_signed.serving(*cert) if cert else None) as url:
        target = target_of(url, "m", ca_file=str(cert[0]) if cert else None)
        return measure_cell(spec, target, pool=pool, observe=observe)


def after(seconds: float, act: Any) -> None:
    threading.Timer(seconds, act).start()


def suspend(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    after(seconds, lambda: os.kill(pid, signal.SIGCONT))


def at_request(number: int, script: Any, act: Any) -> Any:
    """``script``, and ``act`` when that request arrives."""

    async def both(reply: Reply, request: dict[str, Any], this: int) -> None:
        if this == number:
            act()
        await script(reply, request, this)

    return both


def answers_after(seconds: float) -> Any:
    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(seconds)
        await answer_well(reply, request, number)

    return script


late = answers_after(0.1)


def measure_with_a_stop(
    script: Any, *, at: int, since_s: float, away_s: float, **changes: Any
) -> CellOutcome:
    """The only worker is stopped (SIGSTOP) for ``away_s``, from ``since_s`` after request ``at`` arrived."""
    with worker_pool(1) as pool:
        pool.revive()
        stop = partial(after, since_s, partial(suspend, pool.pid(0), away_s))
        return measure(pool, at_request(at, script, stop), **changes)


def statuses(outcome: CellOutcome) -> Counter[str]:
    return Counter(r.status for r in outcome.requests)


# A cell of so many requests, however long it takes.
NUMBER: dict[str, Any] = {"warmup_s": 0.0, "duration_s": 0.0, "min_completed": 0, "max_cell_s": 10.0}


def grid_ns(outcome: CellOutcome) -> list[int]:
    return [r.t_sched_ns - outcome.requests[0].t_sched_ns for r in outcome.requests]


def test_two_workers_send_one_schedule() -> None:
    """Every arrival once, on its grid, every second one by each; the cap counts over both."""
    with worker_pool(2) as pool:
        outcome = measure(pool, late)
        assert {r.status for r in outcome.requests} == {"ok"}
        assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
        assert grid_ns(outcome) == [k * 10_000_000 for k in range(len(outcome.requests))]
        assert [r.worker for r in outcome.requests[:4]] == [0, 1, 0, 1]
        assert max(r.inflight_at_send for r in outcome.requests) > 5
        capped = measure(pool, late, inflight_cap=4)
    assert Counter(r.status for r in capped.requests)["dropped"] > 10
    assert max(r.inflight_at_send for r in capped.requests) == 4


def test_a_killed_worker_is_noticed_and_nothing_is_lost() -> None:
    """The cell ends soon, each request that the dead one had or should have sent is there, and says why."""
    with worker_pool(2) as pool:
        pool.revive()
        after(0.6, lambda: os.kill(pool.pid(1), signal.SIGKILL))
        outcome = measure(pool, late, duration_s=20, max_cell_s=60)
        assert outcome.window.window_s < 10
        assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
        lost = [r for r in outcome.requests if r.status == "aborted"]
        assert lost and {r.worker for r in lost} == {1}
        assert {r.error for r in lost} == {"load-generator worker 1 ended by signal 9"}
        # The other one may be late as well, where the host is busy.
        assert "load-generator worker 1 ended by signal 9" in outcome.health.bottleneck
        # The next cell has two workers again.
        assert {r.status for r in measure(pool).requests} == {"ok"}


def test_a_worker_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped for good in the middle of a cell: the cell ends and says so, and the next one has all workers."""
    monkeypatch.setattr(coordinator, "ANSWER_TIMEOUT_S", 1.0)
    with worker_pool(2) as pool:
        pool.revive()
        pid = pool.pid(1)
        script = at_request(40, late, lambda: os.kill(pid, signal.SIGSTOP))
        outcome = measure(pool, script, duration_s=1.0, min_completed=1, max_cell_s=2.0)
        assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
        silent = "load-generator worker 1 does not answer"
        assert silent in outcome.health.bottleneck
        assert {r.error for r in outcome.requests if r.status == "aborted"} == {silent}
        following = measure(pool)
        assert pool.pid(1) != pid
    assert [r.seq for r in following.requests] == list(range(len(following.requests)))
    assert {r.status for r in following.requests} == {"ok"}


def test_what_a_worker_says_of_an_earlier_cell_is_not_heard_in_the_next() -> None:
    with worker_pool(1) as pool:
        pool.revive()
        list(pool.receive(0.0))
        pool.next_cell()
        pool.send(
            0, Job(SPEC.to_json(), target_of("http://127.0.0.1:9", "m"), 0, 1, time.monotonic_ns() + 10**12)
        )
        # Ready has come, too late.
        assert pool._members[0].socket.poll(60_000)
        pool.next_cell()
        assert list(pool.receive(0.0)) == []
        pool.send(0, Abandon("aborted", "for another cell"))
        assert not pool._members[0].socket.poll(500), "it answers to the end of its own cell only"


def test_two_workers_end_at_one_time_and_no_arrival_is_lost() -> None:
    """One of them is away when the cell ends: it ends where it was told to, and so does the other."""
    with worker_pool(2) as pool:
        pool.revive()
        pid = pool.pid(1)
        script = at_request(40, answer_well, lambda: suspend(pid, 0.8))
        outcome = measure(pool, script, max_cell_s=0.8, min_completed=1000)
    assert outcome.window.t_stop_ns - outcome.window.t0_ns == 800_000_000
    assert [r.seq for r in outcome.requests] == list(range(80))
    assert {r.status for r in outcome.requests} == {"ok"}


def test_arrivals_between_the_ends_of_two_workers_have_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told of its end too late, a worker goes on a little: what the other had to send until then is there."""
    monkeypatch.setattr(coordinator, "STOP_LEAD_NS", 0)
    stop = threading.Event()
    with worker_pool(2) as pool:
        pool.revive()
        pid = pool.pid(1)
        with truth_server(at_request(60, answer_well, lambda: (suspend(pid, 0.8), stop.set()))) as url:
            outcome = measure_cell(
                replace(SPEC, workers=2, duration_s=20, max_cell_s=60),
                target_of(url, "m"),
                pool=pool,
                should_abort=lambda: "enough" if stop.is_set() else None,
            )
    n = len(outcome.requests)
    assert [r.seq for r in outcome.requests] == list(range(n))
    assert n == -(-(outcome.window.t_stop_ns - outcome.window.t0_ns) // 10_000_000)


def test_cpu_is_a_share_of_the_window_and_not_of_the_drain() -> None:
    """Answers that take 2 s longer than sending: the workers wait, and are no less busy for it while they send."""

    async def slow(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0 if number == 1 else 2.5)
        await answer_well(reply, request, number)

    with worker_pool(1) as pool:
        outcome = measure(
            pool,
            slow,
            rate_per_s=500.0,
            input_tokens=2000,
            min_completed=10**6,
            max_cell_s=0.5,
            drain_timeout_s=10.0,
            inflight_cap=1000,
        )
    over_all = outcome.session.worker_cpu_s[0] / outcome.session.wall_s
    assert outcome.session.worker_cpu_share[0] > 1.5 * over_all


def test_a_stalled_worker_is_back_on_its_grid_at_once() -> None:
    """What fell into the 100 ms goes out together and late, the rest on time, and the cell tells."""
    outcome = measure_with_a_stop(late, at=40, since_s=0.05, away_s=0.1, duration_s=0.8, min_completed=60)
    assert grid_ns(outcome) == [k * 10_000_000 for k in range(len(outcome.requests))]
    late_ms = [(r.t_send_ns - r.t_sched_ns) / 1e6 for r in outcome.requests if r.t_send_ns is not None]
    first = max(range(len(late_ms)), key=late_ms.__getitem__)
    assert late_ms[first] > 50
    # Arrivals 10 ms apart that go out together: each is 10 ms less late. A grid that moved by the stall would keep all as late.
    assert min(late_ms[first:]) < late_ms[first] / 2
    assert outcome.health.loop_stall_max_us > 50_000
    assert outcome.health.client_stalled
    assert outcome.health.bottleneck == ()


def test_answers_that_came_while_the_client_was_away_are_no_time_outs() -> None:
    """Away for 0.6 s where a request may take 0.4: the server answered each in 0.1."""
    form = RequestForm(timeout_s=0.4)
    timing = {"duration_s": 1.4, "min_completed": 60, "inflight_cap": 200}
    outcome = measure_with_a_stop(late, at=40, since_s=0.05, away_s=0.6, **timing, form=form)
    assert statuses(outcome) == {"ok": len(outcome.requests)}
    assert any(r.t_end_ns - r.t_send_ns > 400_000_000 for r in outcome.requests)  # type: ignore[operator]
    assert outcome.health.client_stalled


@pytest.mark.parametrize("away_at", [40, 119], ids=["over the cell's end", "in the drain"])
def test_answers_that_came_while_the_client_was_away_are_not_abandoned(away_at: int) -> None:
    """Away for 2.2 s where the drain may take 0.9: the server answers each in 0.1."""
    timing = {"warmup_s": 0.3, "duration_s": 0.9, "max_cell_s": 1.2, "drain_timeout_s": 0.9}
    outcome = measure_with_a_stop(late, at=away_at, since_s=0.05, away_s=2.2, **timing, inflight_cap=300)
    assert statuses(outcome) == {"ok": 120}
    assert outcome.health.client_stalled


def test_answers_that_came_after_the_drain_while_the_client_was_away_are_time_outs() -> None:
    """Each takes 0.9 s where the drain may take 0.3; the worker is away from 0.1 s after the last send until all have come."""
    timing = {"warmup_s": 0.0, "duration_s": 0.3, "max_cell_s": 0.3, "min_completed": 1}
    outcome = measure_with_a_stop(
        answers_after(0.9), at=30, since_s=0.1, away_s=1.4, **timing, drain_timeout_s=0.3, inflight_cap=100
    )
    assert statuses(outcome) == {"timeout": 30}
    assert outcome.health.client_stalled


def test_a_stop_behind_which_the_last_answer_waits_is_seen() -> None:
    """The answer ends the cell before the heartbeat has had its turn."""
    outcome = measure_with_a_stop(
        answers_after(0.055), at=3, since_s=0.05, away_s=0.5, **NUMBER, num_requests=3, rate_per_s=1000.0
    )
    assert max(r.t_end_ns - r.t_sched_ns for r in outcome.requests) > 400_000_000  # type: ignore[operator]
    assert outcome.health.client_stalled and outcome.health.loop_stall_max_us > 300_000


def test_a_time_out_that_fires_a_little_late_takes_the_answers_that_are_here() -> None:
    """Away from before the answer until some 20 ms after the request's time was over: too short a delay to tell a stop by."""
    form = RequestForm(timeout_s=0.4)
    outcome = measure_with_a_stop(late, at=1, since_s=0.02, away_s=0.4, **NUMBER, num_requests=1, form=form)
    assert statuses(outcome) == {"ok": 1}


@pytest.mark.parametrize(
    ("away_s", "tls"), [(0.5, False), (0.57, True)], ids=["came while it was away", "came just after, TLS"]
)
def test_answers_that_came_too_late_while_the_client_was_away_are_time_outs(
    away_s: float, tls: bool, tmp_path: Path
) -> None:
    """The kernel knows when they came: 0.6 s after requests that may take 0.4. The client is away from 0.1 or 0.03 s on."""
    outcome = measure_with_a_stop(
        answers_after(0.6),
        at=10,
        since_s=0.67 - away_s,
        away_s=away_s,
        **NUMBER,
        num_requests=10,
        rate_per_s=2000.0,
        form=RequestForm(timeout_s=0.4),
        cert=self_signed.certificate(tmp_path, "IP:127.0.0.1") if tls else None,
    )
    assert statuses(outcome) == {"timeout": 10}
    assert outcome.health.client_stalled


def test_an_answer_that_ends_by_closing_just_after_its_time_is_a_time_out(tmp_path: Path) -> None:
    """TLS has no socket left to ask by then. Nobody is stopped; the limit is looked for every 50 ms."""

    async def until_close(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0.38)
        reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        reply.raw(token_event() * 4)
        await asyncio.sleep(0.05)
        reply.raw(usage_event(len(request["prompt"]), 4))
        reply.writer.close()

    cert = self_signed.certificate(tmp_path, "IP:127.0.0.1")
    more = {"num_requests": 40, "rate_per_s": 200.0, "form": RequestForm(timeout_s=0.4)}
    with worker_pool(1) as pool:
        outcome = measure(pool, until_close, cert=cert, **NUMBER, **more)
    assert outcome.session.aborted is None and not outcome.session.deaths
    # Without [DONE] it is broken off, whenever it is.
    assert {r.status for r in outcome.requests} <= {"timeout", "truncated"}
    assert len(outcome.requests) == 40


class Away:
    """A watcher in which the coordinator is once away, from when so many requests have been sent."""

    def __init__(self, sent: int, seconds: float) -> None:
        self._sent = sent
        self._seconds = seconds

    def ended(self, request: Ended) -> None: ...

    def tick(self, sent: int) -> None:
        if sent >= self._sent:
            time.sleep(self._seconds)
            self._seconds = 0.0


def test_the_drain_begins_with_the_last_send_also_where_the_coordinator_was_away() -> None:
    """The last one is sent after 0.6 s, and the drain may take 0.3. Each answer takes 1.4 s, and all have come when it is back."""

    with worker_pool(1) as pool:
        timing = {"max_cell_s": 0.6, "min_completed": 1000, "drain_timeout_s": 0.3}
        outcome = measure(
            pool, answers_after(1.4), Observe(watcher=Away(20, 2.2)), **timing, inflight_cap=100
        )
    assert Counter(r.status for r in outcome.requests) == {"timeout": 60}
    assert {r.error for r in outcome.requests} == {"unfinished 0.3 s after the last send"}


def test_a_worker_that_has_been_told_to_end_says_nothing_and_reads_nothing_more(tmp_path: Path) -> None:
    """Its loop has turns left then: a reading that a send put off, and requests that end."""
    failures: list[dict[str, Any]] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: failures.append(context))
        mailbox = Mailbox(loop, endpoint, lambda message: None)
        mailbox.send(Hello())
        mailbox.close()
        mailbox.send(Stopped(0))
        await asyncio.sleep(0.01)

    endpoint = f"ipc://{tmp_path}/line"
    with zmq.Context() as context, context.socket(zmq.PAIR) as line:
        line.bind(endpoint)
        uvloop.run(serve())
        assert line.poll(5000)
        assert decode_for_coordinator(line.recv()) == (0, Hello())
        assert not line.poll(50)
    assert failures == []


def test_a_stop_before_the_cell_begins_is_none_of_the_cell() -> None:
    """One worker is ready and stopped while the other one is not ready yet: nothing is sent or stamped then."""
    with worker_pool(2) as pool:
        pool.revive()
        ready, last = pool.pid(0), pool.pid(1)
        suspend(last, 1.2)
        after(0.5, partial(suspend, ready, 0.4))
        outcome = measure(pool)
    assert {r.status for r in outcome.requests} == {"ok"}
    assert outcome.health.loop_stall_max_us < 250_000


@pytest.mark.parametrize("phase_ms", (0, 12))
def test_a_stall_of_40_ms_is_seen_whenever_it_comes(phase_ms: int) -> None:
    async def run() -> float:
        stalls = StallWatch(asyncio.get_running_loop())
        stalls.begin(time.monotonic_ns())
        await asyncio.sleep(0.04 + phase_ms / 1000)
        time.sleep(0.04)
        await asyncio.sleep(0.03)
        stalls.close()
        return stalls.max_us

    assert uvloop.run(run()) > STALL_US


def test_every_event_is_in_the_log_once(tmp_path: Path) -> None:
    with worker_pool(2) as pool:
        outcome = measure(pool, observe=Observe(token_times=True, event_log=tmp_path))
    rows = [
        json.loads(line) for path in tmp_path.glob("events_*.jsonl") for line in path.read_text().splitlines()
    ]
    n = len(outcome.requests)
    counts = Counter(row["event"] for row in rows)
    assert {k: v for k, v in counts.items() if k != "LOADGEN_DATA_LOAD"} == {
        "TEST_STARTED": 1,
        "STOP_PERFORMANCE_TRACKING": 1,
        "LOADGEN_STOP": 1,
        "TEST_ENDED": 1,
        "LOADGEN_ISSUE_CALLED": n,
        "HTTP_REQUEST_ISSUED": n,
        "FIRST_CHUNK": n,
        "NON_FIRST_CHUNK": 3 * n,
        "HTTP_RESPONSE_COMPLETED": n,
        "COMPLETE": n,
    }
    loaded = Counter(row["seq"] for row in rows if row["event"] == "LOADGEN_DATA_LOAD")
    assert set(loaded.values()) == {1} and loaded.keys() >= set(range(n))
    assert {row["cell"] for row in rows} == {"r100_8x4"}
    sent = {row["seq"]: row["t_ns"] for row in rows if row["event"] == "HTTP_REQUEST_ISSUED"}
    assert sent == {r.seq: r.t_send_ns for r in outcome.requests}
    assert all(len(times) == 4 for times in outcome.session.token_ns.values())


def test_the_sockets_folder_is_private_and_goes() -> None:
    """Workers are groups of their own, so that Ctrl-C in the terminal does not reach them; they end with the pool."""
    with worker_pool(1) as pool:
        folder = pool._folder
        assert folder.stat().st_mode & 0o777 == 0o700
        pid = pool.pid(0)
        assert os.getpgid(pid) == pid
    assert not folder.exists()
    assert not psutil.pid_exists(pid)


def test_workers_go_with_their_coordinator() -> None:
    """kill -9 of the process that measures: the kernel closes the lifeline, the workers end."""
    code = (
        "import sys, time\n"
        "from connector_tax.run.loadgen.coordinator import worker_pool\n"
        "with worker_pool(2) as pool:\n"
        "    pool.revive()\n"
        "    print(pool.pid(0), pool.pid(1), flush=True)\n"
        "    time.sleep(600)\n"
    )
    coordinator = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert coordinator.stdout is not None
    pids = [int(p) for p in coordinator.stdout.readline().split()]
    coordinator.kill()
    coordinator.wait()
    assert within(10, lambda: not any(map(alive, pids)))


def test_workers_stay_on_the_cores_they_are_given() -> None:
    cpu = min(os.sched_getaffinity(0))
    with worker_pool(1, Placement((), ((cpu,),), (), None)) as pool:
        pool.revive()
        assert psutil.Process(pool.pid(0)).cpu_affinity() == [cpu]


def test_a_worker_that_cannot_start_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with worker_pool(1) as pool, pytest.raises(EngineError, match="exit code 1 before it was up"):
        pool.revive()


def test_an_interrupt_while_workers_are_ended_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped one is waited for; whoever does not want to wait must not leave it behind, nor its socket."""
    waits = 0

    def interrupted(process: Any, timeout: float | None = None) -> int:
        nonlocal waits
        waits += 1
        if waits == 1:
            raise KeyboardInterrupt
        return int(wait(process, timeout))

    with pytest.raises(KeyboardInterrupt), worker_pool(2) as pool:
        pids = [pool.pid(0), pool.pid(1)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait = type(pool._members[0].process).wait
        monkeypatch.setattr(type(pool._members[0].process), "wait", interrupted)
    assert waits > 1
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
