"""The order of a check, and how it ends before its end; nothing is launched."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from made import NOOP, model_in, virtual_time

from connector_tax.base.errors import EngineError
from connector_tax.check import command
from connector_tax.check.document import Fault, Launched, RealTime
from connector_tax.commands.check import COMMAND

ASYNC = "scheduler_config.async_scheduling"
SERVES = Launched(None, answered=16, sent=16, settings={ASYNC: True})


class Stages:
    """What stands in for the parts of a check; each part is noted when it begins.

    Attributes:
        told: a signal that comes while this part is under way.
        known: whether virtual time knows something when it is stopped.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.fault: Fault | None = None
        self.launched = SERVES
        self.told: tuple[str, int] | None = None
        self.known = True
        self.tax = 0.01

    def _begin(self, part: str) -> None:
        self.begun.append(part)
        if self.told is not None and self.told[0] == part:
            os.kill(os.getpid(), self.told[1])

    def early_fault(self, *args: Any) -> Fault | None:
        self._begin("early")
        return self.fault

    def launch_once(self, *args: Any) -> tuple[Launched, str]:
        self._begin("launch")
        return self.launched, ""

    def measure_real_time(self, *args: Any) -> RealTime:
        self._begin("real_time")
        return RealTime((), ("checked: late",), None)

    def in_virtual_time(self, config: Any, own: str, scheduling: str, stop: Event, say: Any) -> Any:
        self._begin(scheduling)
        if stop.is_set() and not self.known:
            raise EngineError("stopped before anything was known")
        return virtual_time(self.tax, scheduling=scheduling), {ASYNC: True}, {ASYNC: True, "x": 1}


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    found = Stages()
    for name in ("early_fault", "launch_once", "measure_real_time"):
        monkeypatch.setattr(command, name, getattr(found, name))
    monkeypatch.setattr(command, "_in_virtual_time", found.in_virtual_time)
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = {signum: signal.getsignal(signum) for signum in signals}
    yield found
    signal.setitimer(signal.ITIMER_REAL, 0)
    for signum, handler in before.items():
        signal.signal(signum, handler)


def checked(folder: Path, *arguments: str) -> int:
    asked = [
        "--kv-transfer-config",
        NOOP,
        "--engine-python",
        "/bin/true",
        "--model-config",
        str(model_in(folder)),
    ]
    return COMMAND.call([*asked, *arguments])


def test_parts_come_in_order_and_each_is_printed_as_it_ends(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path) == 0
    assert stages.begun == ["early", "launch", "async"]
    lines = capsys.readouterr().out.splitlines()
    begins = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert begins[1:3] == ["host", "vLLM and the connector import"]
    assert [line for line in begins if line in ("serves", "engine settings switched", "verdict")] == [
        "serves",
        "engine settings switched",
        "verdict",
    ]
    assert "  x: plain None, connector 1" in lines


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_an_engine_says_is_printed_without_secrets(
    tmp_path: Path,
    stages: Stages,
    form: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "planted-4711-secret")
    stages.fault = Fault("broken", "redis", said="AuthError: planted-4711-secret")
    assert checked(tmp_path, *form) == 2
    said = capsys.readouterr()
    assert "planted-4711-secret" not in said.out + said.err
    assert "AuthError: <redacted>" in said.out


def test_both_ways_of_scheduling_are_measured_where_they_are_asked_for(
    tmp_path: Path, stages: Stages
) -> None:
    assert checked(tmp_path, "--both") == 0
    assert stages.begun == ["early", "launch", "async", "sync"]


def test_an_engine_that_resolves_to_synchronous_scheduling_is_measured_so(
    tmp_path: Path, stages: Stages
) -> None:
    stages.launched = Launched(None, answered=16, sent=16, settings={ASYNC: False})
    assert checked(tmp_path, "--both") == 0
    assert stages.begun == ["early", "launch", "sync"]


def test_nothing_is_launched_of_what_does_not_load(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    stages.fault = Fault("no_vllm", "vllm")
    assert checked(tmp_path) == 2
    assert stages.begun == ["early"]
    assert "/bin/true has no vLLM" in capsys.readouterr().out


def test_what_does_not_serve_is_not_measured(tmp_path: Path, stages: Stages) -> None:
    stages.launched = Launched("RuntimeError: boom")
    assert checked(tmp_path) == 2
    assert stages.begun == ["early", "launch"]


def test_real_time_is_a_campaign_in_place_of_both(tmp_path: Path, stages: Stages) -> None:
    assert checked(tmp_path, "--real-time") == 2, "its cell does not count"
    assert stages.begun == ["early", "real_time"]


@pytest.mark.parametrize(
    ("part", "signum"), [("early", signal.SIGHUP), ("launch", signal.SIGTERM), ("async", signal.SIGTERM)]
)
def test_a_check_that_is_told_to_end_prints_what_it_knows(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str], signum: int, part: str
) -> None:
    stages.told = (part, signum)
    assert checked(tmp_path, "--both", "--json", "--fail-above", "5%") == 2
    found = json.loads(capsys.readouterr().out)
    assert stages.begun[-1] == part
    assert found["verdict"]["why"] == "ended"
    assert bool(found["found"]["launched"]) == (part == "async") == bool(found["found"]["virtual_time"])


def test_what_is_decided_by_then_is_judged(tmp_path: Path, stages: Stages) -> None:
    stages.told, stages.tax = ("async", signal.SIGTERM), 0.2
    assert checked(tmp_path, "--both", "--fail-above", "5%") == 1


def test_virtual_time_that_knows_nothing_yet_ends_as_well(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    stages.told, stages.known = ("async", signal.SIGTERM), False
    assert checked(tmp_path) == 2
    assert "not judged: ended by a signal" in capsys.readouterr().out


def test_the_minutes_may_be_over(tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]) -> None:
    stages.told = ("launch", signal.SIGALRM)
    assert checked(tmp_path, "--max-minutes", "60") == 2
    assert "not judged: --max-minutes are over" in capsys.readouterr().out


def test_reports_are_written_for_ci_whatever_the_code(tmp_path: Path, stages: Stages) -> None:
    """GitHub's summary holds what other steps wrote before."""
    stages.fault = Fault("no_vllm", "vllm")
    (tmp_path / "summary.md").write_text("before\n")
    assert (
        checked(tmp_path, "--markdown", str(tmp_path / "summary.md"), "--junit", str(tmp_path / "j.xml")) == 2
    )
    assert (tmp_path / "summary.md").read_text().startswith("before\n### connector-tax check")
    assert 'name="loads"' in (tmp_path / "j.xml").read_text()
    assert checked(tmp_path, "--markdown", str(tmp_path / "new" / "summary.md")) == 2
    assert (tmp_path / "new" / "summary.md").exists()


def test_what_the_host_spoils_is_not_judged_and_said(
    tmp_path: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*args: Any) -> None:
        raise EngineError("the port was taken")

    monkeypatch.setattr(command, "launch_once", fails)
    assert checked(tmp_path) == 2
    assert "not judged: the port was taken" in capsys.readouterr().out
