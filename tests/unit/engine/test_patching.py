"""The patch as the pipeline asks for it: a stand-in interpreter, a stand-in vLLM, the real patcher."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from connector_tax.config import EngineConfig, load_campaign
from connector_tax.engine.patching import ensure_patched, ensure_reverted, patch_state
from connector_tax.errors import EngineError

sys.path.insert(0, str(Path(__file__).parents[2]))
from stand_in_vllm import stand_in

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "vllm")


@pytest.fixture
def engine(vllm: Path, tmp_path: Path) -> EngineConfig:
    """An engine whose interpreter, asked for vLLM's folder, names the stand-in."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {vllm}\n")
    python.chmod(0o755)
    return replace(load_campaign(CONFIG / "demo.yaml").engine, kind="vllm", python=str(python))


def test_patched_then_reverted(engine: EngineConfig) -> None:
    assert patch_state(engine) == "unpatched"
    assert ensure_patched(engine).available
    assert patch_state(engine) == "patched"
    ensure_reverted(engine)
    assert patch_state(engine) == "unpatched"


def test_a_vllm_that_does_not_fit_is_a_reason_and_no_error(engine: EngineConfig, vllm: Path) -> None:
    """The campaign goes on without step records, and says why."""
    (vllm / "v1/core/sched/scheduler.py").write_text("class Another: ...\n")
    timing = ensure_patched(engine)
    assert not timing.available
    assert "has no 'class Scheduler'" in str(timing.reason)
    ensure_reverted(engine)


def test_a_patch_that_cannot_be_taken_away_is_heard(engine: EngineConfig, vllm: Path) -> None:
    """Silence here would leave a patched vLLM behind for everybody else."""
    ensure_patched(engine)
    scheduler = vllm / "v1/core/sched/scheduler.py"
    scheduler.write_text("# edited\n" + scheduler.read_text())
    with pytest.raises(EngineError, match="was edited after it was patched"):
        ensure_reverted(engine)


def test_step_timing_can_be_switched_off(engine: EngineConfig) -> None:
    timing = ensure_patched(replace(engine, step_timing=False))
    assert (timing.available, timing.reason) == (False, "engine.step_timing is false")
    assert patch_state(engine) == "unpatched"
