"""Stopping an engine takes no exception's place."""

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from connector_tax.run.engine import asleep
from connector_tax.run.engine.process import LaunchError, RunningEngine


@pytest.fixture
def engine() -> Iterator[RunningEngine]:
    """A supervisor with one process below it."""
    with subprocess.Popen(["bash", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        request = SimpleNamespace(connector=SimpleNamespace(id="it"))
        below = psutil.Process(supervisor.pid).children()
        yield cast(
            RunningEngine, SimpleNamespace(supervisor=supervisor, root=supervisor.pid, request=request)
        )
        for process in below:
            process.kill()


def states(engine: RunningEngine) -> set[str]:
    return {p.status() for p in psutil.Process(engine.supervisor.pid).children()}


def test_it_is_awake_for_the_body_and_stands_still_before_and_after(engine: RunningEngine) -> None:
    asleep.put_to_sleep(engine)
    assert states(engine) == {psutil.STATUS_STOPPED}
    with asleep.awake(engine):
        assert psutil.STATUS_STOPPED not in states(engine)
    assert states(engine) == {psutil.STATUS_STOPPED}


def test_ctrl_c_stays_ctrl_c_where_the_engine_would_not_stop(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asleep, "_signal", lambda pids, signum: None)
    monkeypatch.setattr(asleep, "STOP_TIMEOUT_S", 0.05)
    with pytest.raises(KeyboardInterrupt), asleep.awake(engine):
        raise KeyboardInterrupt
    with pytest.raises(LaunchError, match="1 processes of the engine do not stop"), asleep.awake(engine):
        pass
