"""Checks, before anything is launched, that this host can run vLLM on a GPU: card, interpreter, vLLM, CUDA.

Preflight checks what a connector needs.
"""

import json
import math
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.secrets import with_references
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.run.engine.command import check_model, engine_python, model_folder, weights_bytes
from connector_tax.run.engine.container import interpreter
from connector_tax.run.engine.gpus import Cards, host_gpus, parallel_sizes
from connector_tax.run.engine.virtual_gpu import memory_utilization, release_key

# Does the KV cache for max_model_len fit on the card? Computed before an engine spends minutes on it.

GIB = 2**30
BLOCK_TOKENS = 16
# vLLM serves float32 weights in 16 bits unless engine.args.dtype says otherwise.
BYTES = {"float32": 2, "bfloat16": 2, "float16": 2, "half": 2, "auto": 2}
ASKED_BYTES = {**BYTES, "float32": 4, "float": 4}
# These arguments move weights or KV off the card, fix the size or change the shape, so
# the estimate does not apply.
OTHERWISE = (
    *("cpu_offload_gb", "offload_group_size", "kv_cache_memory_bytes", "num_gpu_blocks_override"),
    *("quantization", "quantization_config", "hf_overrides", "hf_config_path"),
)


def too_large(engine: EngineConfig, cards: Cards, longest_tokens: int) -> str | None:
    """Return why max_model_len does not fit on these cards and what would; None if it fits or is unknown.

    Args:
        longest_tokens: prompt plus output of the campaign's longest request.
    """
    folder = model_folder(engine) if engine.kind == "vllm" and cards.gpus else None
    # Further arguments are not parsed here, and could be any of OTHERWISE.
    if folder is None or engine.extra_args or any(engine.args.get(name) for name in OTHERWISE):
        return None
    if (folder / "hf_quant_config.json").is_file():  # vLLM also reads quantization from this file
        return None
    model = json.loads((folder / "config.json").read_text())
    try:
        shape = model_shape(model, str(folder))
    except ConfigError:
        return None
    element_bytes = _element_bytes(model, engine)
    max_len = engine.args.get("max_model_len") or model.get("max_position_embeddings")
    gpu = min(cards.gpus, key=lambda card: card.memory_mib or math.inf)
    if element_bytes is None or gpu.memory_mib is None or not isinstance(max_len, int) or max_len <= 0:
        return None
    sizes = parallel_sizes(engine)
    n_shards = sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"]
    per_token = shape.kv_values * element_bytes / n_shards
    if engine.args.get("enable_expert_parallel"):
        n_shards *= sizes["data_parallel_size"]
    stored_bytes = 4 if "float32" in (model.get("dtype"), model.get("torch_dtype")) else 2
    served_bytes = ASKED_BYTES.get(str(engine.args.get("dtype") or "auto"), 2)
    weights = (
        (weights_bytes(folder) or shape.total * stored_bytes)
        / n_shards
        * min(1.0, served_bytes / stored_bytes)
    )
    utilization = memory_utilization(engine)
    available = gpu.memory_mib * 2**20 * utilization - weights
    if per_token * max_len <= available:
        return None
    fitting = max(0, math.floor(available / per_token / BLOCK_TOKENS) * BLOCK_TOKENS)
    if fitting >= longest_tokens:
        remedy = (
            f"engine.args.max_model_len: {fitting} or less fits, less what activations take; "
            f"the longest request of this campaign has {longest_tokens} tokens."
        )
    else:
        remedy = (
            f"At most {fitting} tokens fit, and the longest request of this campaign has {longest_tokens}: "
            "take a larger card, more of them (tensor_parallel_size), or shorter shapes."
        )
    return (
        f"engine.args.max_model_len: {max_len} tokens need {per_token * max_len / GIB:.1f} GiB of KV memory,"
        f" and {gpu} has {max(available, 0) / GIB:.1f} GiB for it: {gpu.memory_mib / 1024:.1f} GiB x"
        f" {utilization:g} less {weights / GIB:.1f} GiB of weights. vLLM would refuse to start. {remedy}"
    )


def _element_bytes(model: Foreign, engine: EngineConfig) -> int | None:
    """Return the bytes per KV cache element; None for an unknown type."""
    cache_dtype = str(engine.args.get("kv_cache_dtype") or "auto")
    if cache_dtype.startswith("fp8"):
        return 1
    if cache_dtype != "auto":
        return ASKED_BYTES.get(cache_dtype)
    engine_dtype = str(engine.args.get("dtype") or "auto")
    if engine_dtype != "auto":
        return ASKED_BYTES.get(engine_dtype, 2)
    return BYTES.get(str(model.get("dtype") or model.get("torch_dtype") or "auto"), 2)


# Importing vLLM takes half a minute with a cold page cache.
ASK_WITHIN_S = 300
QUESTIONS = """
import importlib.util, json, sys
found = {name: importlib.util.find_spec(name) is not None for name in ("vllm", "torch")}
cuda = None
if found["torch"] and sys.argv[1:]:
    import torch
    cuda = {"build": torch.version.cuda, "available": torch.cuda.is_available()}
print(json.dumps({**found, "cuda": cuda}))
"""
FLASHINFER_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
# The sampler of these releases imports FlashInfer by default; 0.20.2 needs opting in, and after 0.33 vLLM
# does without. Source: vllm/envs.py and vllm/v1/sample/ops/topk_topp_sampler.py of 0.20.2, 0.21.0, 0.32.0,
# 0.33.0 and the main branch since.
IMPORT_FLASHINFER = ("0.21", "0.33")


class _Cuda(msgspec.Struct, frozen=True):
    """CUDA as the interpreter's torch sees it; ``build`` is None for a CPU build."""

    build: str | None
    available: bool


class _Answer(msgspec.Struct, frozen=True):
    """What the engine's interpreter has; ``cuda`` is None if it was not asked."""

    vllm: bool
    torch: bool
    cuda: _Cuda | None


def lacking(engine_python: str, *, card: bool, env: Mapping[str, str] | None = None) -> list[str]:
    """Return everything that is missing, each with its remedy; empty if a campaign can begin.

    Args:
        card: also require a GPU.
        env: variables that a launch adds.
    """
    return list(_lacking(engine_python, card, env or {}))


def _lacking(engine_python: str, card: bool, env: Mapping[str, str]) -> Iterator[str]:
    gpus, fault = host_gpus() if card else ((), None)
    if card and not gpus:
        yield (
            f"no NVIDIA GPU: {fault or 'the driver lists none'}. Take a host that has one; run --smoke --on"
            " virtual-gpu needs none"
        )
    answer = _answer(engine_python, card, env)
    if isinstance(answer, str):
        yield (
            f"{engine_python}: {answer}. Give an interpreter that has vLLM: export"
            " ENGINE_PYTHON=/path/to/venv/bin/python"
        )
        return
    if not answer.vllm:
        yield (
            f"{engine_python} has no vLLM. Install it there (pip install vllm), or export"
            " ENGINE_PYTHON=/path/to/venv/bin/python that has it"
        )
    elif not answer.torch:
        yield f"{engine_python} has no torch. It comes with vLLM"
    elif answer.cuda is not None and answer.cuda.build is None:
        yield f"{engine_python}: its torch is a CPU build. Install vLLM with a CUDA build of torch"
    elif gpus and answer.cuda is not None and not answer.cuda.available:
        yield (
            f"{engine_python}: torch was built for CUDA {answer.cuda.build} and finds no card. Compare the"
            " driver (nvidia-smi)"
        )


def _answer(engine_python: str, card: bool, env: Mapping[str, str]) -> _Answer | str:
    try:
        process = subprocess.run(
            [engine_python, "-c", QUESTIONS, *["card"] * card],
            capture_output=True,
            text=True,
            timeout=ASK_WITHIN_S,
            env={**os.environ, **env},
        )
        if process.returncode != 0:
            return (process.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]
        return msgspec.json.decode(process.stdout.splitlines()[-1], type=_Answer)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    except (ValueError, IndexError):
        return "it does not answer as Python does"


def refuse_engine(engine: EngineConfig) -> None:
    """Refuse an interpreter that cannot serve, before anything is started; preflight checks container images.

    Raises:
        ConfigError: the interpreter is missing or cannot run, it has no vLLM, or the model is missing.
    """
    if engine.kind == "emulator" or engine.container is not None:
        return
    python = engine_python(engine)
    check_model(engine)
    if faults := lacking(python, card=False, env=with_references(engine.env, "engine.env")):
        raise ConfigError("\n".join(f"engine.python: {fault}" for fault in faults))


def without_flashinfer(engine: EngineConfig, identity: EngineIdentity) -> str | None:
    """Return why launches on this card would fail without FlashInfer, with the remedy; else None."""
    release = identity.versions.get("vllm")
    # A CPU build of torch samples without FlashInfer, whatever the cards.
    if not (identity.gpu and identity.cuda and isinstance(release, str)):
        return None
    first_release, last_release = map(release_key, IMPORT_FLASHINFER)
    default = "1" if first_release <= release_key(release) <= last_release else "0"
    sampler_setting = {**os.environ, **engine.env}.get(FLASHINFER_SAMPLER, default)
    if sampler_setting == "0" or not missing_modules(engine, ["flashinfer"]):
        return None
    return (
        f"engine.python: {engine.python} has no module flashinfer, without which vLLM {release} does not"
        " start on a GPU. "
        f'Set engine.env: {FLASHINFER_SAMPLER}: "0" (vLLM then samples with its own kernels), or install'
        " flashinfer-python there."
    )


def missing_modules(engine: EngineConfig, modules: Iterable[str]) -> set[str]:
    """Return those of ``modules`` that the engine's interpreter lacks; the embedded engine needs none."""
    names = sorted(set(modules))
    if engine.kind == "emulator" or not names:
        return set()
    code = (
        "import importlib.util, json, sys; print(json.dumps([m for m in sys.argv[1:] if"
        " importlib.util.find_spec(m) is None]))"
    )
    process = subprocess.run(
        [*interpreter(engine), "-c", code, *names], capture_output=True, text=True, check=True
    )
    return set(json.loads(process.stdout))
