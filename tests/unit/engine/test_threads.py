"""Threads of an engine are told from plain's and rearranged, on stand-in processes of known habits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from connector_tax.run.engine.process import LaunchRequest, RunningEngine
from connector_tax.run.engine.threads import (
    Alike,
    Thread,
    alone_on_a_core,
    census,
    helpers,
    kept,
    on_all_cpus,
    only_on_free_cores,
    threads_of,
)

# Two threads beside the main one; all say that they are up.
SLEEPERS = """
import ctypes, threading, time
up = threading.Barrier(3)
def sleep():
    ctypes.CDLL(None).prctl(15, b"helper", 0, 0, 0)
    up.wait()
    time.sleep(600)
for _ in range(2):
    threading.Thread(target=sleep, daemon=True).start()
up.wait()
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def engine() -> Iterator[RunningEngine]:
    """A supervisor (a shell) with one child of three threads."""
    command = ["sh", "-c", '"$0" -c "$1" & wait', sys.executable, SLEEPERS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        running = RunningEngine(LaunchRequest(None, None, None, None), 0, supervisor)  # type: ignore[arg-type]
        children = list(running.processes().values())
        try:
            yield running
        finally:
            for child in children:
                child.kill()
            supervisor.kill()


def thread(name: str, tid: int, cpu_s: float = 0.0, pid: int = 1) -> Thread:
    return Thread("engine_core", name, pid, tid, cpu_s)


def test_helpers_are_the_threads_that_plain_has_not_by_name() -> None:
    own = [thread("main", 1), thread("zmq", 2), thread("poller", 3)]
    assert [t.name for t in helpers(own, census(own[:2]))] == ["poller"]
    assert helpers(own, census(own)) == ()


def test_of_threads_with_one_name_those_that_ran_longest_are_the_helpers_and_never_the_main_one() -> None:
    """Native code names no threads: they have their process's name, as the main thread has, which runs most."""
    own = [thread("core", 1, 50.0), thread("core", 2, 0.1), thread("core", 3, 9.0), thread("core", 4, 3.0)]
    plain = {("engine_core", "core"): Alike(1, 0.2)}
    assert [t.tid for t in helpers(own, plain)] == [3, 4]
    assert [t.tid for t in helpers(own, {})] == [3, 4, 2]


def test_a_thread_that_ran_no_longer_than_plains_is_taken_for_one_of_vllms() -> None:
    """Three more that sleep, and one that spins: vLLM's own of that name stay as they are."""
    own = [thread("core", tid, cpu_s) for tid, cpu_s in ((1, 50.0), (2, 1.5), (3, 9.0), (4, 0.0), (5, 0.0))]
    assert [t.tid for t in helpers(own, {("engine_core", "core"): Alike(1, 1.0)})] == [3]


def test_helpers_of_another_process_are_not_plains(engine: RunningEngine) -> None:
    own = threads_of(engine)
    assert sorted(t.name == "helper" for t in own) == [False, True, True]
    assert {t.name for t in helpers(own, {("api_server", "helper"): Alike(2, 9.0)})} >= {"helper"}


def test_idle_helpers_run_only_on_free_cores_and_the_others_stay_as_they_are(engine: RunningEngine) -> None:
    own = threads_of(engine)
    (main,) = [t for t in own if t.is_main]
    before = os.sched_getscheduler(main.tid)
    chosen = [t for t in own if not t.is_main]
    gone = replace(chosen[0], tid=2**22 - 1)
    assert only_on_free_cores([*chosen, gone]) == tuple(chosen)
    assert {os.sched_getscheduler(t.tid) for t in chosen} == {os.SCHED_IDLE}
    assert os.sched_getscheduler(main.tid) == before


@pytest.fixture
def two_cpus() -> tuple[int, int]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    return cpus[0], cpus[-1]


def test_the_engine_is_alone_on_a_core_and_everything_goes_back(
    engine: RunningEngine, two_cpus: tuple[int, int]
) -> None:
    """Also what began meanwhile, and what had been kept to that core alone."""
    own = threads_of(engine)
    (main,) = [t for t in own if t.is_main]
    first, *_ = others = [t for t in own if not t.is_main]
    os.sched_setaffinity(first.tid, {two_cpus[1]})
    before = {t.tid: os.sched_getaffinity(t.tid) for t in own}
    mine = os.sched_getaffinity(0)
    with alone_on_a_core(main) as core:
        assert os.sched_getaffinity(main.tid) == core
        assert all(not os.sched_getaffinity(t.tid) & core for t in others)
        assert not os.sched_getaffinity(0) & core
        late = subprocess.Popen(["sleep", "60"])
        assert not os.sched_getaffinity(late.pid) & core
    assert {t.tid: os.sched_getaffinity(t.tid) for t in own} == before
    assert os.sched_getaffinity(0) == mine == os.sched_getaffinity(late.pid)
    late.kill()
    late.wait()


def test_nobody_is_alone_where_there_is_one_cpu(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector_tax.run.engine.threads.os.sched_getaffinity", lambda tid: {3})
    monkeypatch.setattr("connector_tax.run.engine.threads._pin", lambda cpus: pytest.fail("it was done"))
    with pytest.raises(ValueError, match="CPU 3 alone"):
        with alone_on_a_core(threads_of(engine)[0]):
            pass


def test_threads_that_are_kept_to_some_cpus_may_use_all_and_go_back(
    engine: RunningEngine, two_cpus: tuple[int, int]
) -> None:
    """NIXL keeps the engine's main thread to a core where the platform says that it is a CPU."""
    own = threads_of(engine)
    (main,) = [t for t in own if t.is_main]
    assert kept(own) == {}
    os.sched_setaffinity(main.tid, {two_cpus[1]})
    assert kept(own) == {main: frozenset({two_cpus[1]})}
    with on_all_cpus(own):
        assert len({frozenset(os.sched_getaffinity(t.tid)) for t in own}) == 1
        assert set(two_cpus) <= os.sched_getaffinity(main.tid)
    assert os.sched_getaffinity(main.tid) == {two_cpus[1]}
