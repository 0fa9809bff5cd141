"""Writes a launch's virtual GPU document, which the plugin inside vLLM reads, and places its clock's log.

The document stays in the launch's folder and names the clock's log by a relative path, so it can be passed
on. The engine gets a working copy with the absolute path.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.layout import DEVICE_CLOCK, VIRTUAL_GPU
from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import DeviceIdentity, GpuDocument, GpuFile
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import hash_of, read_json, write_json
from connector_tax.base.records.host import StepCosts, VirtualGpu
from connector_tax.base.vllm_model.shape import ModelShape, kv_cache_bytes, linear_costs, model_shape
from connector_tax.run.engine.command import model_folder
from connector_tax.run.engine.container import interpreter
from connector_tax.run.engine.gpus import cards_wanted
from connector_tax.run.engine.settings import vllm_folder

# Does the virtual GPU fit the engine's vLLM release? Decided from the release's source, before any launch.

PLUGINS = PROJECT_ROOT / "launch" / "plugins"
# Oldest and newest release that it was run on (docs/releases.md).
RUN_ON = ("0.27", "0.32")


def refuse_misfit(engine: EngineConfig, version: str | None) -> None:
    """Refuse a virtual GPU on a vLLM release that it does not fit.

    Args:
        version: of vLLM, as the interpreter reports it.

    Raises:
        EngineError: the release lacks what the virtual GPU needs or calls hooks in an unknown
            order, or there is no vLLM.
    """
    if engine.virtual_gpu is None:
        return
    folder = vllm_folder(engine)
    reason = misfit_of(folder, interpreter(engine) if engine.container is not None else [sys.executable])
    if reason is not None:
        raise EngineError(
            f"engine.kind: virtual_gpu does not fit vLLM {version or 'of an unknown version'} in {folder}:"
            f" {reason}. It was run on {RUN_ON[0]} to {RUN_ON[1]} (docs/releases.md): give engine.python one"
            " of these, or measure on a real GPU (engine.kind: vllm)."
        )


def note_on(engine: EngineConfig, version: str | None) -> str | None:
    """Return a note if the virtual GPU was never run on this release; else None."""
    if engine.virtual_gpu is None or version is None:
        return None
    if release_key(RUN_ON[0]) <= release_key(version) <= release_key(RUN_ON[1]):
        return None
    return (
        f"the virtual GPU was run on vLLM {RUN_ON[0]} to {RUN_ON[1]}, and this is {version}: its source has"
        " all that is needed, and hooks in a known order"
    )


def misfit_of(vllm: Path, python: Sequence[str] = (sys.executable,)) -> str | None:
    """Return why the virtual GPU cannot run with the release in ``vllm``; None if no reason is known.

    Args:
        python: an interpreter that sees the folder.

    Raises:
        EngineError: the check did not run.
    """
    # A container's interpreter has another current folder.
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(PLUGINS)!r}); runpy.run_module('virtual_gpu.needed',"
        " run_name='__main__', alter_sys=True)"
    )
    command = [*python, "-c", code, str(vllm)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, cwd=PLUGINS
    )
    try:
        reason: str | None = json.loads(process.stdout)["reason"]
    except ValueError as error:
        raise EngineError(
            f"{' '.join(command)} failed in {PLUGINS}: {process.stderr.strip() or process.stdout}"
        ) from error
    return reason


def release_key(version: str) -> tuple[int, ...]:
    """Return (0, 32) for ``0.32.1.dev3+cpu``."""
    numbers = [part for part in version.split(".")[:2] if part.isdigit()]
    return tuple(int(n) for n in numbers)


# Read by launch/plugins/virtual_gpu.
VARIABLE = "CONNECTOR_TAX_VIRTUAL_GPU"
_TWO_BYTES = ("auto", "bfloat16", "float16", "half")
# Engine arguments that change element sizes or placement, with prefixes of the values
# that the roofline covers.
KNOWN_VALUES: dict[str, tuple[str, ...]] = {
    "dtype": _TWO_BYTES,
    "kv_cache_dtype": (*_TWO_BYTES, "fp8"),
    **dict.fromkeys(("quantization", "cpu_offload_gb", "kv_cache_memory_bytes"), ()),
}


# The largest of vLLM's defaults: 0.9 in earlier releases, 0.92 in 0.32.
DEFAULT_UTILIZATION = 0.92


def memory_utilization(engine: EngineConfig) -> float:
    """Return vLLM's ``gpu_memory_utilization``, or its default.

    Raises:
        ConfigError: it is not above 0 and at most 1.
    """
    setting = engine.args.get("gpu_memory_utilization") or DEFAULT_UTILIZATION
    try:
        share = float(setting)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 < share <= 1:
        raise ConfigError(
            f"engine.args.gpu_memory_utilization: {setting!r}: wanted is a number above 0 and at most 1, such"
            " as 0.9."
        )
    return share


def gpu_document(engine: EngineConfig) -> GpuDocument | None:
    """Return the clock's parameters for this model, without its log's path; None without a virtual GPU.

    Raises:
        ConfigError: the step time cannot be computed, or the model does not fit on
            this GPU; carries the remedy.
    """
    gpu = engine.virtual_gpu
    if gpu is None:
        return None
    step, kv_bytes = _step_and_kv_bytes(engine, gpu)
    return GpuDocument(
        name=gpu.name,
        compute_capability=gpu.compute_capability,
        memory_bytes=gpu.memory_bytes,
        kv_cache_bytes=kv_bytes,
        host_link_bytes_per_s=round(gpu.host_link_gb_per_s * 1e9),
        step=step,
        host=gpu.host,
    )


def gpu_identity(engine: EngineConfig) -> DeviceIdentity | None:
    """Return the document with its profile and hash, for the identity; None without a virtual GPU."""
    document = gpu_document(engine)
    if document is None or engine.virtual_gpu is None:
        return None
    return DeviceIdentity(
        profile=engine.virtual_gpu.profile,
        sha256=hash_of(msgspec.to_builtins(document)),
        **msgspec.structs.asdict(document),
    )


def step_costs(engine: EngineConfig) -> StepCosts | None:
    """Return the virtual GPU's step costs with this model, for a rehearsal; None without one.

    Raises:
        ConfigError: as ``gpu_document``.
    """
    document = gpu_document(engine)
    return None if document is None else document.step


def kv_blocks(engine: EngineConfig, block_size: int) -> int | None:
    """Return how many KV blocks the virtual GPU holds; None if the model's ``config.json`` does not tell."""
    document, shape = gpu_document(engine), _shape(engine, needed=False)
    if document is None or shape is None:
        return None
    return document.kv_cache_bytes // (shape.kv_values * _kv_element_bytes(engine) * block_size)


def write_gpu(engine: EngineConfig, folder: Path) -> Path | None:
    """Write a launch's document into ``folder``; return the engine's copy, or None without a virtual GPU.

    Removes an earlier launch's clock log, since the plugin appends.

    Raises:
        ConfigError: as ``gpu_document``.
        ArtifactError: it cannot be written.
    """
    document = gpu_document(engine)
    if document is None:
        return None
    log = (folder / DEVICE_CLOCK).absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    fields = msgspec.structs.asdict(document)
    write_json(folder / VIRTUAL_GPU, GpuFile(**fields, clock_log=str(DEVICE_CLOCK)))
    copy = log.with_name(VIRTUAL_GPU)
    write_json(copy, GpuFile(**fields, clock_log=str(log)))
    return copy


def remove_copy(folder: Path) -> None:
    (folder / DEVICE_CLOCK).with_name(VIRTUAL_GPU).unlink(missing_ok=True)


def _step_and_kv_bytes(engine: EngineConfig, gpu: VirtualGpu) -> tuple[StepCosts, int]:
    if (cards := cards_wanted(engine)) != 1:
        raise ConfigError(
            f"engine.virtual_gpu: the engine's parallel sizes multiply to {cards}, and a virtual GPU is one. "
            "Set tensor_parallel_size, pipeline_parallel_size and data_parallel_size to 1."
        )
    if gpu.step is not None and gpu.kv_cache_bytes is not None:
        return gpu.step, gpu.kv_cache_bytes
    _refuse_what_the_roofline_is_not_of(engine)
    shape = _shape(engine)
    assert shape is not None
    utilization = memory_utilization(engine)
    kv_bytes = gpu.kv_cache_bytes or kv_cache_bytes(shape, gpu, utilization)
    costs = gpu.step
    if costs is None:
        roofline = linear_costs(shape, gpu)
        element_scale = _kv_element_bytes(engine) / 2
        costs = StepCosts(
            round(roofline.base_us, 3),
            round(roofline.per_prefill_token_us, 6),
            round(roofline.per_decode_seq_us, 6),
            round(roofline.per_context_token_us * element_scale, 9),
        )
    return costs, kv_bytes


def _refuse_what_the_roofline_is_not_of(engine: EngineConfig) -> None:
    """Refuse element sizes and placements of weights or KV that the roofline does not cover."""
    for key, covered in KNOWN_VALUES.items():
        value = engine.args.get(key)
        if value and not str(value).startswith(covered):
            raise ConfigError(
                f"engine.args.{key}: {value}: the roofline is of weights of two bytes on the card and of a"
                " KV cache of two bytes or fp8. Leave it out, or give engine.virtual_gpu.step and"
                " engine.virtual_gpu.kv_cache_bytes."
            )


def _shape(engine: EngineConfig, *, needed: bool = True) -> ModelShape | None:
    folder = model_folder(engine)
    if folder is None:
        if not needed:
            return None
        raise ConfigError(
            f"engine.model: {engine.model}: its config.json is not on this host, and the virtual GPU's step"
            " time follows from it. Give a directory that has it, or download the model."
        )
    path = folder / "config.json"
    config = read_json(path)
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: no object, so no model's configuration: {json.dumps(config)[:80]}")
    try:
        return model_shape(config, str(path))
    except ConfigError:
        if needed:
            raise
        return None


def _kv_element_bytes(engine: EngineConfig) -> int:
    return 1 if str(engine.args.get("kv_cache_dtype") or "auto").startswith("fp8") else 2
