"""The step-timing patch as the pipeline sees it: asked for before each launch, never during one.

The patcher is a stand-alone script (``patches/``) that any Python can run; it is run here as one.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from connector_tax.config import EngineConfig
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.engine.command import engine_python
from connector_tax.errors import EngineError

PATCHER = PROJECT_ROOT / "patches" / "scheduler_step_timing.py"


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Whether step records can be had from this engine, and if not, why."""

    available: bool
    reason: str | None


def ensure_patched(engine: EngineConfig) -> StepTiming:
    """Apply the patch if it is not there; the embedded engine writes its records without one."""
    if not engine.step_timing:
        return StepTiming(False, "engine.step_timing is false")
    if engine.kind == "emulator":
        return StepTiming(True, None)
    report = _run(engine_python(engine))
    return StepTiming(bool(report["step_timing_available"]), report["reason"])


def ensure_reverted(engine: EngineConfig) -> None:
    """Take the patch away.

    Raises:
        EngineError: a patched vLLM is left behind; says what to do.
    """
    if engine.kind == "emulator":
        return
    report = _run(engine_python(engine), "--revert")
    if report["state"] not in ("unpatched", None):
        raise EngineError(f"the step-timing patch could not be reverted: {report['reason']}")


def patch_state(engine: EngineConfig) -> str | None:
    """``patched``, ``unpatched``, ``half``, or None where there is no vLLM to patch."""
    if engine.kind == "emulator":
        return None
    state = _run(engine_python(engine), "--status")["state"]
    return None if state is None else str(state)


def _run(python: str, *flags: str) -> dict[str, Any]:
    command = [sys.executable, str(PATCHER), "--engine-python", python, *flags]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    try:
        report: dict[str, Any] = json.loads(found.stdout)
    except ValueError as error:
        raise EngineError(f"{' '.join(command)} failed: {found.stderr.strip() or found.stdout}") from error
    return report
