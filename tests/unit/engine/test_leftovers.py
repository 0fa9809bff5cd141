"""An engine whose supervisor was killed outright, or whose whole run was, is found and ended; and nobody else is."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from families import alive, within

from connector_tax.base.artifacts.supervisor import RECORD, record_supervisor
from connector_tax.base.config import load_campaign
from connector_tax.run.engine import process, supervised
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.engine.supervised import (
    VARIABLE,
    Marked,
    end_all_leftovers,
    end_leftovers,
    start_supervised,
    stop_supervised,
)

CONFIG = Path(__file__).parents[3] / "config"
MARK = "0123456789abcdef"
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


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "KILL_AFTER_S", 0.5)


@pytest.fixture
def family() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    founder = subprocess.Popen(
        [sys.executable, "-c", FOUNDER],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, VARIABLE: MARK},
    )
    assert founder.stdout is not None
    child = int(founder.stdout.readline())
    yield founder, child
    for pid in (founder.pid, child):
        if alive(pid):
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
    assert pids and not any(map(alive, pids))
    assert not (tmp_path / RECORD).exists()


def test_an_engine_that_was_killed_for_memory_is_said_to_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel's own count; a SIGKILL of somebody else leaves that as it was."""
    counts = iter([3, 4])
    monkeypatch.setattr(process, "oom_kills", lambda: next(counts))
    campaign = load_campaign(CONFIG / "demo.yaml")
    with running_engine(LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)) as engine:
        engine.wait_ready()
        engine.supervisor.kill()
        assert engine.death(within_s=5) == (
            "killed by SIGKILL; the log gives no reason; meanwhile the kernel killed a process of this host for want of memory"
        )


def test_the_kernels_count_of_processes_killed_for_memory_is_read() -> None:
    if "oom_kill " not in Path("/proc/vmstat").read_text():
        pytest.skip("this kernel does not count them")
    assert isinstance(process.oom_kills(), int)


def test_what_a_killed_run_recorded_is_ended(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    founder, child = family
    record_supervisor(tmp_path, founder.pid, MARK)
    assert end_leftovers(tmp_path, grace_s=0.2) == [founder.pid, child]
    assert not alive(founder.pid) and not alive(child)
    assert not (tmp_path / RECORD).exists()


def test_orphans_are_found_by_their_mark(family: tuple["subprocess.Popen[str]", int], tmp_path: Path) -> None:
    """The founder is gone; its child, which nobody's pid file names, still carries the launch's word."""
    founder, child = family
    record_supervisor(tmp_path, founder.pid, MARK)
    founder.kill()
    founder.wait()
    assert alive(child)
    assert end_leftovers(tmp_path, grace_s=0.2) == [child]
    assert not alive(child)


@pytest.mark.parametrize(
    "changed", [{"start_ticks": 1, "mark": "another"}, {"boot": "another boot"}, {"mark": None}]
)
def test_a_number_that_someone_else_has_by_now_is_left_alone(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path, changed: dict[str, object]
) -> None:
    founder, child = family
    record_supervisor(tmp_path, founder.pid, MARK)
    record = tmp_path / RECORD
    document = {**json.loads(record.read_text()), **changed}
    record.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    assert end_leftovers(tmp_path, grace_s=0.2) == []
    assert alive(founder.pid) and alive(child)
    assert not record.exists()


def test_a_strangers_worker_in_a_session_of_the_same_number_is_left_alone(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    """The kernel gave the number away, its new owner founded a session and ended, and its worker lives in there."""
    founder, child = family
    record_supervisor(tmp_path, founder.pid, "the mark of a launch that is over")
    founder.kill()
    founder.wait()
    assert os.getsid(child) == founder.pid
    assert end_leftovers(tmp_path, grace_s=0.2) == []
    assert alive(child)


def test_a_copy_of_a_campaign_ends_nothing_of_the_original(
    family: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    """The record is copied with it, and the original is measuring; one that was moved is the same campaign."""
    founder, child = family
    run = tmp_path / "demo" / "run"
    run.mkdir(parents=True)
    record_supervisor(run, founder.pid, MARK)
    shutil.copytree(tmp_path / "demo", tmp_path / "copy")
    assert end_all_leftovers(tmp_path / "copy", grace_s=0.2) == []
    assert alive(founder.pid) and alive(child)
    (tmp_path / "demo").rename(tmp_path / "moved")
    assert end_all_leftovers(tmp_path / "moved", grace_s=0.2) == [founder.pid, child]


# Forks twice, leaves its session and its logs, as a daemon does.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""
# What setproctitle does to an engine core: nothing is left of the environment that the kernel shows.
TITLED = """
import ctypes, os, sys, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""
# Forks the next of itself every 3 ms and ends: under another number each time.
HOPPER = """
import os, sys, time
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    while True:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(0.003)
        if os.fork():
            os._exit(0)
time.sleep(600)
"""


def started(folder: Path, code: str) -> "subprocess.Popen[bytes]":
    """``code`` under a supervisor, with the launch's logs; it has written its number by then."""
    with open(folder / "vllm_stdout.log", "ab") as out, open(folder / "vllm_stderr.log", "ab") as err:
        command = [sys.executable, "-c", code, str(folder / "pid")]
        environment = dict(os.environ)
        supervisor = start_supervised(
            command, folder=folder, environment=environment, grace_s=0.2, stdout=out, stderr=err
        )
    pid = folder / "pid"
    assert within(20, lambda: pid.exists() and pid.read_text()), (folder / "vllm_stderr.log").read_text()
    return supervisor


def of_launch(folder: Path) -> list[int]:
    return sorted(Marked(json.loads((folder / RECORD).read_text())["mark"], folder).living().ticks)


@pytest.mark.parametrize("code", [DAEMON, TITLED], ids=["daemon", "titled"])
def test_who_left_the_session_or_hides_its_environment_survives_no_next_start(
    tmp_path: Path, code: str
) -> None:
    """Both killed outright: the supervisor, and whoever would have looked after it."""
    run = tmp_path / "campaign" / "run"
    run.mkdir(parents=True)
    supervisor = started(run, code)
    escaped = int((run / "pid").read_text())
    if code is TITLED:
        assert Path(f"/proc/{escaped}/environ").read_bytes().strip(b"\0") == b""
    os.kill(supervisor.pid, signal.SIGSTOP)  # it cannot see the end of its input
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    if code is TITLED:
        # Without the front, which the kernel ends with the supervisor: here it is the process itself.
        assert escaped in of_launch(run)
    supervisor.kill()
    supervisor.wait()
    end_all_leftovers(tmp_path, grace_s=0.2)
    assert not alive(escaped)
    assert not (run / RECORD).exists()


@pytest.mark.parametrize("how", ["stop", "killed supervisor"])
def test_who_keeps_forking_is_ended_too(tmp_path: Path, how: str) -> None:
    supervisor = started(tmp_path, HOPPER)
    living = of_launch(tmp_path)
    assert len(living) >= 2
    if how == "stop":
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait(20)
        assert of_launch(tmp_path) == [], "the supervisor left it"
    else:
        supervisor.kill()
        supervisor.wait()
        end_leftovers(tmp_path, grace_s=0.0)
    last = (tmp_path / "pid").read_text()
    time.sleep(0.2)
    assert (tmp_path / "pid").read_text() == last


@pytest.mark.parametrize("content", ["{", '{"pid": 1}'])
def test_a_torn_record_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD).write_text(content)
    assert end_leftovers(tmp_path, grace_s=0.2) == []
    assert not (tmp_path / RECORD).exists()


def test_nothing_recorded_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited for {seconds} s"))
    assert end_leftovers(tmp_path, grace_s=5.0) == []


@pytest.mark.parametrize("target", ["shared.log", "/dev/null"])
def test_who_writes_where_a_link_leads_is_nobody_of_ours(tmp_path: Path, target: str) -> None:
    """A stranger's results may have a link in the log's place: to a daemon's log, or to where half the host writes."""
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "shared.log").touch()
    (run / "vllm_stdout.log").symlink_to(tmp_path / target if target == "shared.log" else target)
    with open(tmp_path / target if target == "shared.log" else target, "ab") as log:
        bystander = subprocess.Popen(["sleep", "60"], stdout=log, start_new_session=True)
    try:
        assert Marked("0" * 32, run).living().ticks == {}
        supervisor = start_supervised(["sleep", "30"], folder=run, environment=dict(os.environ), grace_s=1.0)
        stop_supervised(supervisor, run, grace_s=1.0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
