"""Reads the settings that an engine resolved to, and returns the flags that match one engine to another.

Enabling a connector also changes engine settings. Most are read from the header of the step records, the rest
from the engine's start-up log.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import Change, Settings
from connector_tax.base.errors import EngineError
from connector_tax.base.steptime.hooks_recorded import unheard
from connector_tax.base.steptime.share import headers_of
from connector_tax.run.engine.command import engine_python
from connector_tax.run.engine.container import interpreter

# Step timing: does it fit this vLLM, and are vLLM's files free of its earlier versions?

PATCHER = PROJECT_ROOT / "patches" / "scheduler_step_timing.py"


class Report(msgspec.Struct, frozen=True):
    """A script's report on an installed vLLM, one line of JSON.

    Attributes:
        reason: why step timing does not fit; None if it does.
        state: of vLLM's files with regard to earlier versions; None without vLLM.
        vllm: its folder.
    """

    reason: str | None = None
    step_timing_available: bool = False
    state: str | None = None
    vllm: str | None = None


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Whether this engine yields step records, and if not, why."""

    available: bool
    reason: str | None


def step_timing_of(engine: EngineConfig) -> StepTiming:
    """Return whether step timing fits this release; the embedded engine records by itself.

    Raises:
        EngineError: vLLM's files contain an earlier version, which would record in place of this one.
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
    """Return whether an engine that has served requests wrote the expected step records.

    Args:
        step_log: AGENTIC_STEP_LOG_PATH of its launch.
        stderr_log: of its launch, where step timing logs what it wraps.
        connector: whether it has one; its hooks, also the workers', must then be in the records.
    """
    messages = [
        line.partition("connector-tax: ")[2] for line in _lines(stderr_log) if "connector-tax: " in line
    ]
    last_message = messages[-1] if messages else "nothing about step timing in its log"
    if not any(step_log.parent.glob(f"{step_log.stem}.scheduler.*.jsonl")):
        return StepTiming(False, f"the engine served requests and recorded no step; it says: {last_message}")
    raw = sorted(step_log.parent.glob(f"{step_log.stem}.*.jsonl"))
    codes = unheard(header for path in raw for header in headers_of(path)).values() if connector else ()
    missing_hooks = ", ".join(code.replace("_", " ") for code in codes)
    refused = [line for line in messages if line.startswith("no step records")]
    reason = f"hook times are not known: {missing_hooks}; the engine says: {(refused or [last_message])[-1]}"
    return StepTiming(not missing_hooks, reason if missing_hooks else None)


def vllm_folder(engine: EngineConfig) -> Path:
    """Return the folder of ``vllm`` that the engine's interpreter would import, without importing it.

    Raises:
        EngineError: there is none, or the interpreter does not run.
    """
    report = _run(engine, "--status")
    if report.vllm is None:
        raise EngineError(
            f"engine.python: {report.reason}. Give the interpreter that has vLLM: export"
            " ENGINE_PYTHON=/path/to/venv/bin/python"
        )
    return Path(report.vllm)


def revert(engine: EngineConfig) -> str:
    """Remove what earlier versions wrote into vLLM's files; return a sentence on what is there now.

    Raises:
        EngineError: something remains, or the files cannot be read; carries the remedy.
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
    # In an image its own interpreter runs the script.
    python = ["--engine-python", engine_python(engine)]
    command = [
        *(interpreter(engine) if engine.container is not None else [sys.executable]),
        str(PATCHER),
        *python,
        *flags,
    ]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    try:
        return msgspec.json.decode(process.stdout, type=Report)
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise EngineError(
            f"{' '.join(command)} failed: {process.stderr.strip() or process.stdout}"
        ) from error


# Transports and listening addresses of connectors, from the engine's log.

_TRANSPORTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mooncake", re.compile(r"\] installTransport, type=(\w+)")),
    ("mooncake", re.compile(r"\] (Tcp)Transport: listen on port \d+")),
    ("mooncake", re.compile(r"\] RDMA device: (?P<rdma>)\w+, LID")),
    ("mooncake", re.compile(r"\] Using (RDMA|TCP|MACA|NVLink|MUSA|Intra-Node NVLink)(?: host)? transport\b")),
    ("mooncake", re.compile(r"\] (EFA|TCP|CXI|HIP) transport installed\b")),
    ("mooncake", re.compile(r"\] MC_FORCE_TCP is set, using (TCP) transport only")),
    ("nixl", re.compile(r"Backend (\w+) was instantiated")),
)
_SIDE_CHANNELS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mooncake_bootstrap", re.compile(r"Mooncake Bootstrap Server started at (\S+:\d+)")),
    ("mooncake_rpc", re.compile(r"Transfer Engine RPC using [^,]+, listening on (\S+:\d+)")),
    ("mooncake_tcp_port", re.compile(r"TcpTransport: listen on port (\d+)")),
)


# Name -> logged values, each once, in order.
Logged = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CameUpWith:
    """A connector's transports and side channels; None where no line names any."""

    transports: Logged | None
    side_channels: Logged | None


def transports_of(log_text: str) -> CameUpWith:
    return CameUpWith(
        _values_logged(_TRANSPORTS, log_text, str.lower), _values_logged(_SIDE_CHANNELS, log_text, str)
    )


def _values_logged(
    patterns: tuple[tuple[str, re.Pattern[str]], ...], text: str, convert: Callable[[str], str]
) -> Logged | None:
    values_by_name: dict[str, list[str]] = {}
    for line in text.splitlines():
        for name, pattern in patterns:
            if match := pattern.search(line):
                value = convert(match.group(1) or "") or "rdma"
                if value not in values_by_name.setdefault(name, []):
                    values_by_name[name].append(value)
    return {name: tuple(values) for name, values in values_by_name.items()} or None


# (setting, pattern, value); value None: the pattern's group. The first match counts. Wordings: vLLM 0.11 to
# 0.32, on CUDA 0.25 to 0.32.
_LOGGED: tuple[tuple[str, str, Any], ...] = (
    # Before 0.29 a layout is logged only if a connector or a variable asks for it.
    ("log.kv_cache_layout", r"Using (\w+) KV cache layout|[Ss]etting KV cache layout to (\w+)", None),
    # Excludes backends of MoE layers, MLA prefill and vision, which are logged in similar words.
    (
        "log.attention_backend",
        r"Using (?:AttentionBackendEnum\.)?(\w+)(?: [Aa]ttention| MLA)? backend(?:\.| out of| on V1| \()",
        None,
    ),
    ("log.kv_cache_tokens", r"KV cache size: ([\d,]+) tokens", None),
    ("log.model_runner", r"Using (V2) Model Runner|using the (V1) model runner", None),
    # Nothing is logged where V1 is the default, but its file name precedes its log lines.
    ("log.model_runner", r"\bgpu_model_runner\.py:\d", "V1"),
    (
        # With the folder: another card's tiles may lie under this card's name in another folder.
        "log.moe_config",
        r"Using configuration from (?:.*/)?([^/\n]+/[^/\n]+) for MoE layer|Using (default) MoE config",
        None,
    ),
    # 0.32 logs neither; the step records' header has it in every release.
    ("scheduler_config.async_scheduling", r"Asynchronous scheduling is enabled", True),
    ("scheduler_config.async_scheduling", r"Asynchronous scheduling is disabled", False),
)


def resolved_settings(step_log: Path | None, log_text: str) -> Settings:
    """Return setting -> value from a launch's step records and log; the records take precedence.

    Args:
        step_log: AGENTIC_STEP_LOG_PATH of the launch, beside which each process writes its own file;
            None if step timing is off.
    """
    settings: Settings = {}
    for path in sorted(step_log.parent.glob(f"{step_log.stem}.*.jsonl")) if step_log is not None else ():
        for header in headers_of(path):
            settings |= {k: v for k, v in (header.get("settings") or {}).items() if v is not None}
    for name, pattern, value in _LOGGED:
        if name not in settings and (match := re.search(pattern, log_text)):
            settings[name] = value if value is not None else match.group(match.lastindex or 1)
    return settings


def pinned(plain_settings: Settings, connector_settings: Settings) -> dict[str, Change]:
    """Return the block-count change for a matched launch, so that both have the same number of KV blocks."""
    setting = "cache_config.num_gpu_blocks"
    if connector_settings.get(setting) is None or plain_settings.get(setting) == connector_settings[setting]:
        return {}
    return {setting: {"plain": plain_settings.get(setting), "own": connector_settings[setting]}}


def matching_flags(changes: dict[str, Change]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return (arguments, environment, settings without a flag) that match plain vLLM to the other launch."""
    arguments: list[str] = []
    environment: dict[str, str] = {}
    unmatched = []
    for setting, change in changes.items():
        value = change["own"]
        if setting in _SWITCHES and isinstance(value, bool):
            arguments.append(("--" if value else "--no-") + _SWITCHES[setting])
        elif setting in _VALUES and value is not None:
            arguments += ["--" + _VALUES[setting], str(value)]
        elif setting == "compilation_config.cudagraph_mode" and value is not None:
            arguments += [
                "--compilation-config",
                json.dumps({"cudagraph_mode": str(value).rpartition(".")[2]}),
            ]
        elif setting == "log.kv_cache_layout" and value is not None:
            environment["VLLM_KV_CACHE_LAYOUT"] = value
        else:
            unmatched.append(setting)
    return arguments, environment, unmatched


_SWITCHES = {
    "scheduler_config.disable_hybrid_kv_cache_manager": "disable-hybrid-kv-cache-manager",
    "scheduler_config.async_scheduling": "async-scheduling",
    "scheduler_config.enable_chunked_prefill": "enable-chunked-prefill",
    "cache_config.enable_prefix_caching": "enable-prefix-caching",
    "model_config.enforce_eager": "enforce-eager",
}
_VALUES = {
    "cache_config.num_gpu_blocks": "num-gpu-blocks-override",
    "cache_config.block_size": "block-size",
    "scheduler_config.max_num_seqs": "max-num-seqs",
    "scheduler_config.max_num_batched_tokens": "max-num-batched-tokens",
    "log.attention_backend": "attention-backend",
}
