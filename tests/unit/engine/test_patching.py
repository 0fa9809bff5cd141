"""Step timing as the pipeline asks for it: a stand-in interpreter, a stand-in vLLM, the real patcher."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from stand_in_vllm import SCHEDULER, stand_in, tree, write_blocks

from connector_tax.base.config import EngineConfig, load_campaign
from connector_tax.base.errors import EngineError
from connector_tax.run.engine.settings import PATCHER, recorder_heard, revert, step_timing_of

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "vllm")


@pytest.fixture
def engine(vllm: Path, tmp_path: Path) -> EngineConfig:
    """An engine whose interpreter, asked for vLLM's folder, names the stand-in."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "Welcome to the cluster"\necho "$3{vllm}"\necho Bye\n')
    python.chmod(0o755)
    return replace(load_campaign(CONFIG / "demo.yaml").engine, kind="vllm", python=str(python))


def state_of(engine: EngineConfig) -> str:
    """``patched``, ``unpatched`` or ``half``, as the script reports it."""
    command = [sys.executable, str(PATCHER), "--engine-python", str(engine.python), "--status"]
    done = subprocess.run(command, capture_output=True, text=True)
    return str(json.loads(done.stdout)["state"])


def test_asking_changes_nothing(engine: EngineConfig, vllm: Path) -> None:
    before = tree(vllm)
    assert step_timing_of(engine).available
    assert state_of(engine) == "unpatched"
    assert revert(engine) == f"{vllm} holds nothing of connector-tax"
    assert tree(vllm) == before


def test_a_vllm_that_does_not_fit_is_a_reason_and_no_error(engine: EngineConfig, vllm: Path) -> None:
    """The campaign goes on without step records, and says why."""
    (vllm / SCHEDULER).write_text("class Another: ...\n")
    timing = step_timing_of(engine)
    assert not timing.available
    assert "has no 'class Scheduler'" in str(timing.reason)


def test_what_an_earlier_version_wrote_is_in_the_way_until_it_is_taken_out(
    engine: EngineConfig, vllm: Path
) -> None:
    before = tree(vllm)
    write_blocks(vllm)
    assert state_of(engine) == "patched"
    with pytest.raises(EngineError, match="an earlier version of connector-tax wrote its step timing into"):
        step_timing_of(engine)
    revert(engine)
    assert tree(vllm) == before


def test_a_revert_that_could_not_look_is_an_error(engine: EngineConfig, tmp_path: Path) -> None:
    """Nobody looked at vLLM's files, so nobody says what is in them."""
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(EngineError, match="does not run Python code"):
        revert(engine)


def test_step_timing_can_be_switched_off(engine: EngineConfig) -> None:
    timing = step_timing_of(replace(engine, step_timing=False))
    assert (timing.available, timing.reason) == (False, "engine.step_timing is false")


def test_an_engine_that_recorded_no_step_has_no_step_timing(tmp_path: Path) -> None:
    """It fits by the source files, and something else was imported: the engine's own word counts."""
    log, stderr = tmp_path / "steps" / "engine_step.jsonl", tmp_path / "vllm_stderr.log"
    log.parent.mkdir()
    heard = recorder_heard(log, stderr)
    assert (heard.available, heard.reason) == (
        False,
        "the engine served requests and recorded no step; it says: nothing about step timing in its log",
    )
    stderr.write_text(
        "(EngineCore pid=7) connector-tax: no step records: x.Scheduler has no schedule (process 7)\n"
    )
    assert str(recorder_heard(log, stderr).reason).endswith(
        "it says: no step records: x.Scheduler has no schedule (process 7)"
    )
    (log.parent / "engine_step.scheduler.7.jsonl").write_text("{}\n")
    assert recorder_heard(log, stderr).available


def header(process: str, *hooks: str) -> str:
    return json.dumps({"kind": "header", "process": process, "pid": 7, "hooks": hooks}) + "\n"


def test_a_connector_whose_hooks_nobody_recorded_was_not_heard(tmp_path: Path) -> None:
    """Its scheduler's steps are there; plain, of which nothing else is wanted, was heard."""
    log, stderr = tmp_path / "steps" / "engine_step.jsonl", tmp_path / "vllm_stderr.log"
    log.parent.mkdir()
    stderr.write_text(
        "connector-tax: no step records: x.KVConnectorFactory has no create_connector (process 7)\n"
        "connector-tax: step timing wraps x.Scheduler (process 7)\n"
    )
    scheduler, worker = (log.parent / f"engine_step.{p}.7.jsonl" for p in ("scheduler", "worker"))
    scheduler.write_text(header("scheduler"))
    assert recorder_heard(log, stderr).available
    assert recorder_heard(log, stderr, connector=True).reason == (
        "hook times are not known: scheduler without hooks, no worker; the engine says: no step records: x.KVConnectorFactory has no create_connector (process 7)"
    )
    scheduler.write_text(header("scheduler") + header("scheduler", "build_connector_meta"))
    assert "no worker" in str(recorder_heard(log, stderr, connector=True).reason)
    worker.write_text(header("worker"))
    assert "worker without hooks" in str(recorder_heard(log, stderr, connector=True).reason)
    worker.write_text(header("worker", "get_finished"))
    assert recorder_heard(log, stderr, connector=True).available
