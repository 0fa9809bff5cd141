"""Step timing as the pipeline sees it: whether it fits this vLLM, and whether vLLM's files are free of earlier versions of it.

Both are asked of a stand-alone script (``patches/``) that any Python can run; it is run here as one. The engine's own process brings
step timing in when it starts (``launch/plugins/vllm_serve.py``), in memory.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import EngineError
from connector_tax.base.steptime.heard import unheard
from connector_tax.base.steptime.raw import headers_of
from connector_tax.run.engine.command import engine_python
from connector_tax.run.engine.container import interpreter

PATCHER = PROJECT_ROOT / "patches" / "scheduler_step_timing.py"


class Report(msgspec.Struct, frozen=True):
    """What a script says of a vLLM that is installed, as one line of JSON.

    Attributes:
        reason: why it does not fit; None where it does.
        state: of what an earlier version wrote into vLLM's files; None without vLLM.
        vllm: its folder.
    """

    reason: str | None = None
    step_timing_available: bool = False
    state: str | None = None
    vllm: str | None = None


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Whether step records can be had from this engine, and if not, why."""

    available: bool
    reason: str | None


def step_timing_of(engine: EngineConfig) -> StepTiming:
    """Whether it fits this release; the embedded engine writes its records by itself.

    Raises:
        EngineError: an earlier version is written into vLLM's files, and would record in this one's place.
    """
    if not engine.step_timing:
        return StepTiming(False, "engine.step_timing is false")
    if engine.kind == "emulator":
        return StepTiming(True, None)
    report = _run(engine)
    if report.state not in ("unpatched", None):
        raise EngineError(str(report.reason))
    return StepTiming(report.step_timing_available, report.reason)


def recorder_heard(step_log: Path, stderr_log: Path, *, connector: bool = False) -> StepTiming:
    """Whether an engine that has served requests wrote step records, as an engine in which step timing works does.

    Args:
        step_log: AGENTIC_STEP_LOG_PATH of its launch.
        stderr_log: of its launch, where step timing says what it wraps.
        connector: whether it has one, whose hooks then have to be in the records, those of its workers as well.
    """
    said = [line.partition("connector-tax: ")[2] for line in _lines(stderr_log) if "connector-tax: " in line]
    last = said[-1] if said else "nothing about step timing in its log"
    if not any(step_log.parent.glob(f"{step_log.stem}.scheduler.*.jsonl")):
        return StepTiming(False, f"the engine served requests and recorded no step; it says: {last}")
    raw = sorted(step_log.parent.glob(f"{step_log.stem}.*.jsonl"))
    codes = unheard(h for path in raw for h in headers_of(path)).values() if connector else ()
    silent = ", ".join(code.replace("_", " ") for code in codes)
    refused = [line for line in said if line.startswith("no step records")]
    says = f"hook times are not known: {silent}; the engine says: {(refused or [last])[-1]}"
    return StepTiming(not silent, says if silent else None)


def vllm_folder(engine: EngineConfig) -> Path:
    """The folder of the package ``vllm`` that the engine's interpreter would import; it is not imported.

    Raises:
        EngineError: there is none, or the interpreter does not run.
    """
    report = _run(engine, "--status")
    if report.vllm is None:
        raise EngineError(
            f"engine.python: {report.reason}. Give the interpreter that has vLLM: export ENGINE_PYTHON=/path/to/venv/bin/python"
        )
    return Path(report.vllm)


def revert(engine: EngineConfig) -> str:
    """Take out of vLLM's files what earlier versions wrote there; says in words what is there now.

    Raises:
        EngineError: something stays, or the files cannot be looked at; says what to do.
    """
    if engine.kind == "emulator":
        return "the embedded engine has no vLLM"
    if engine.container is not None:
        return "the engine's vLLM is in an image, which nothing here changes"
    report = _run(engine, "--revert")
    if report.state != "unpatched":
        raise EngineError(f"vLLM's files: {report.reason}")
    return f"{report.vllm} holds nothing of connector-tax"


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []


def _run(engine: EngineConfig, *flags: str) -> Report:
    # In an image the script looks at what lies there, and is run by the interpreter that it asks about.
    python = ["--engine-python", engine_python(engine)]
    command = [
        *(interpreter(engine) if engine.container is not None else [sys.executable]),
        str(PATCHER),
        *python,
        *flags,
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    try:
        return msgspec.json.decode(found.stdout, type=Report)
    except ValueError as error:  # msgspec's errors are
        raise EngineError(f"{' '.join(command)} failed: {found.stderr.strip() or found.stdout}") from error
