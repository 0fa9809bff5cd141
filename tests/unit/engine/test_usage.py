"""What engine processes take of the host, on stand-in processes of known habits."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from connector_tax.base.documents.cell import IdleUse
from connector_tax.run.engine.process import LaunchRequest, RunningEngine, cpu_seconds, idle_use, rss_mib

# One thread that never sleeps, beside a main thread that always does.
SPINNER = """
import ctypes, threading, time
def spin():
    ctypes.CDLL(None).prctl(15, b"poller", 0, 0, 0)
    while True: pass
threading.Thread(target=spin, daemon=True).start()
time.sleep(60)
"""
SLEEPER = "import time; time.sleep(60)"


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    """A supervisor (a shell) with one child that runs ``request.param``."""
    command = ["sh", "-c", '"$0" -c "$1" & echo up; wait', sys.executable, request.param]
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


@pytest.mark.parametrize("engine", [SPINNER], indirect=True)
def test_a_thread_that_spins_is_named(engine: RunningEngine) -> None:
    """A helper that polls takes a core that no latency shows."""
    # It has to start first, and a host may want its core for others for a while.
    use = next(u for u in (idle_use(engine, 1.0) for _ in range(30)) if u.spinning)
    (process,) = use.idle_share
    (spinning,) = use.spinning
    assert (spinning.process, spinning.thread) == (process, "poller")
    assert spinning.share <= 1.1


@pytest.mark.parametrize("engine", [SLEEPER], indirect=True)
def test_a_process_that_waits_takes_nothing(engine: RunningEngine) -> None:
    idle_use(engine, 0.5)
    use = idle_use(engine, 0.5)
    assert use.spinning == ()
    assert sum(use.idle_share.values()) < 0.1
    assert all(v > 1 for v in rss_mib(engine).values())


@pytest.mark.parametrize("engine", [SLEEPER], indirect=True)
def test_an_engine_that_is_gone_has_no_figures(engine: RunningEngine) -> None:
    engine.supervisor.kill()
    engine.supervisor.wait()
    assert cpu_seconds(engine) == {}
    assert idle_use(engine, 0.01) == IdleUse(idle_share={}, spinning=())
