"""An engine whose supervisor was killed outright, or whose whole run was, is found and ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from connector_tax.artifacts.supervisor import RECORD, record_supervisor
from connector_tax.config import load_campaign
from connector_tax.engine.leftovers import end_leftovers
from connector_tax.engine.process import LaunchRequest, running_engine

CONFIG = Path(__file__).parents[3] / "config"
# A founder of a session with one child in it that ignores SIGTERM, like an engine core in a long kernel.
FOUNDER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"],
    stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def family() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    founder = subprocess.Popen(
        [sys.executable, "-c", FOUNDER], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert founder.stdout is not None
    child = int(founder.stdout.readline())
    yield founder, child
    for pid in (founder.pid, child):
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)
    founder.wait()


def test_the_engine_goes_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the supervisor alone: the engine ends with it, and the reason says what happened."""
    campaign = load_campaign(CONFIG / "demo.yaml")
    with running_engine(LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)) as engine:
        engine.wait_ready()
        pids = [p.pid for p in psutil.Process(engine.supervisor.pid).children(recursive=True)]
        engine.supervisor.kill()
        engine.supervisor.wait()
        assert engine.death() == "killed by SIGKILL; the log gives no reason"
    assert pids and all(gone(pid) for pid in pids)
    assert not (tmp_path / RECORD).exists()


def test_what_a_killed_run_recorded_is_ended(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    founder, child = family
    record_supervisor(tmp_path, founder.pid)
    assert end_leftovers(tmp_path, grace_s=0.2) == [founder.pid, child]
    assert gone(founder.pid) and gone(child)
    assert not (tmp_path / RECORD).exists()


def test_orphans_are_found_by_their_session(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    """The founder is gone; its child, which nobody's pid file names, still carries the session's number."""
    founder, child = family
    record_supervisor(tmp_path, founder.pid)
    founder.kill()
    founder.wait()
    assert not gone(child)
    assert end_leftovers(tmp_path, grace_s=0.2) == [child]
    assert gone(child)


@pytest.mark.parametrize("changed", [{"start_ticks": 1}, {"boot": "another boot"}])
def test_a_number_that_someone_else_has_by_now_is_left_alone(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path, changed: dict[str, object]
) -> None:
    founder, child = family
    record_supervisor(tmp_path, founder.pid)
    record = tmp_path / RECORD
    record.write_text(json.dumps({**json.loads(record.read_text()), **changed}))
    assert end_leftovers(tmp_path, grace_s=0.2) == []
    assert not gone(founder.pid) and not gone(child)
    assert not record.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_record_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD).write_text(content)
    assert end_leftovers(tmp_path, grace_s=0.2) == []
    assert not (tmp_path / RECORD).exists()


def test_nothing_recorded_costs_nothing(tmp_path: Path) -> None:
    start = time.monotonic()
    assert end_leftovers(tmp_path, grace_s=5.0) == []
    assert time.monotonic() - start < 0.1
