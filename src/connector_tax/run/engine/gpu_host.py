"""What a host lacks to run vLLM on a GPU, asked before anything is launched: a card, an interpreter, vLLM, CUDA.

What a connector lacks, preflight says.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.secrets import with_references
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.command import check_model, engine_python
from connector_tax.run.engine.container import interpreter
from connector_tax.run.engine.gpus import host_gpus
from connector_tax.run.engine.virtual_gpu_fit import release_key

# vLLM's import takes half a minute where nothing is in the page cache.
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
# The releases whose sampler imports FlashInfer unless told not to: 0.20.2 wants to be told to, and after 0.33 vLLM does without.
# Source: vllm/envs.py and vllm/v1/sample/ops/topk_topp_sampler.py of 0.20.2, 0.21.0, 0.32.0, 0.33.0 and of the main branch since.
IMPORT_FLASHINFER = ("0.21", "0.33")


class _Cuda(msgspec.Struct, frozen=True):
    """Of the interpreter's torch; ``build`` is None for one without CUDA."""

    build: str | None
    available: bool


class _Answer(msgspec.Struct, frozen=True):
    """What the engine's interpreter has; ``cuda`` is None where it was not asked."""

    vllm: bool
    torch: bool
    cuda: _Cuda | None


def lacking(engine_python: str, *, card: bool, env: Mapping[str, str] | None = None) -> list[str]:
    """Everything that is missing, each with what would do; empty where a campaign can begin.

    Args:
        card: whether a GPU is asked for, too.
        env: what a launch adds to the environment.
    """
    return list(_lacking(engine_python, card, env or {}))


def _lacking(engine_python: str, card: bool, env: Mapping[str, str]) -> Iterator[str]:
    gpus, fault = host_gpus() if card else ((), None)
    if card and not gpus:
        yield f"no NVIDIA GPU: {fault or 'the driver lists none'}. Take a host that has one; run --smoke --on virtual-gpu needs none"
    answer = _answer(engine_python, card, env)
    if isinstance(answer, str):
        yield f"{engine_python}: {answer}. Give an interpreter that has vLLM: export ENGINE_PYTHON=/path/to/venv/bin/python"
        return
    if not answer.vllm:
        yield f"{engine_python} has no vLLM. Install it there (pip install vllm), or export ENGINE_PYTHON=/path/to/venv/bin/python that has it"
    elif not answer.torch:
        yield f"{engine_python} has no torch. It comes with vLLM"
    elif answer.cuda is not None and answer.cuda.build is None:
        yield f"{engine_python}: its torch is a CPU build. Install vLLM with a CUDA build of torch"
    elif gpus and answer.cuda is not None and not answer.cuda.available:
        yield f"{engine_python}: torch was built for CUDA {answer.cuda.build} and finds no card. Compare the driver (nvidia-smi)"


def _answer(engine_python: str, card: bool, env: Mapping[str, str]) -> _Answer | str:
    try:
        asked = subprocess.run(
            [engine_python, "-c", QUESTIONS, *["card"] * card],
            capture_output=True,
            text=True,
            timeout=ASK_WITHIN_S,
            env={**os.environ, **env},
        )
        if asked.returncode != 0:
            return (asked.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]
        return msgspec.json.decode(asked.stdout.splitlines()[-1], type=_Answer)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    except (ValueError, IndexError):
        return "it does not answer as Python does"


def refuse_engine(engine: EngineConfig) -> None:
    """Refuse an interpreter that cannot serve, before anything is started for it; preflight asks a container's image.

    Raises:
        ConfigError: it is not there or cannot be run, it has no vLLM, or there is no such model.
    """
    if engine.kind == "emulator" or engine.container is not None:
        return
    python = engine_python(engine)
    check_model(engine)
    if missing := lacking(python, card=False, env=with_references(engine.env, "engine.env")):
        raise ConfigError("\n".join(f"engine.python: {what}" for what in missing))


def without_flashinfer(engine: EngineConfig, identity: EngineIdentity) -> str | None:
    """Why every launch on this host's card would die for want of FlashInfer, with the remedy; None where none would."""
    release = identity.versions.get("vllm")
    # A CPU build of torch samples without it, whatever cards there are.
    if not (identity.gpu and identity.cuda and isinstance(release, str)):
        return None
    first, last = map(release_key, IMPORT_FLASHINFER)
    default = "1" if first <= release_key(release) <= last else "0"
    used = {**os.environ, **engine.env}.get(FLASHINFER_SAMPLER, default)
    if used == "0" or not missing_modules(engine, ["flashinfer"]):
        return None
    return (
        f"engine.python: {engine.python} has no module flashinfer, without which vLLM {release} does not start on a GPU. "
        f'Set engine.env: {FLASHINFER_SAMPLER}: "0" (vLLM then samples with its own kernels), or install flashinfer-python there.'
    )


def missing_modules(engine: EngineConfig, modules: Iterable[str]) -> set[str]:
    """Those of ``modules`` that the engine's interpreter cannot find; the embedded engine needs none."""
    wanted = sorted(set(modules))
    if engine.kind == "emulator" or not wanted:
        return set()
    code = "import importlib.util, json, sys; print(json.dumps([m for m in sys.argv[1:] if importlib.util.find_spec(m) is None]))"
    found = subprocess.run(
        [*interpreter(engine), "-c", code, *wanted], capture_output=True, text=True, check=True
    )
    return set(json.loads(found.stdout))
