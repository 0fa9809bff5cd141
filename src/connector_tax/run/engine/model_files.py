"""Where the model's files are on this host, and fetching those that are not, before any launch is timed.

A download runs for many minutes and would be counted as an engine that does not get ready. So it happens first, by the hub's own
library in the engine's interpreter, and is said.
"""

import json
import os
import subprocess
from pathlib import Path

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.secrets import with_references
from connector_tax.base.errors import EngineError
from connector_tax.base.prctl import killed_with_parent
from connector_tax.run.engine.command import engine_python

# What vLLM reads of a repository with safetensors; the same weights in other formats are left on the hub.
_DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
model, revision, folder, weights = sys.argv[1:]
small = ["*.json", "*.txt", "*.model", "*.jinja", "*.py", "tokenizer*", "*.tiktoken"]
where = dict(revision=revision or None, cache_dir=folder or None)
path = snapshot_download(model, allow_patterns=small + (["*.safetensors"] if weights else []), **where)
import pathlib
if weights and not any(pathlib.Path(path).glob("*.safetensors")):
    snapshot_download(model, allow_patterns=small + ["*.bin", "*.pt", "*.gguf"], **where)
"""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
TRUE = ("1", "on", "true", "yes")


def model_folder(engine: EngineConfig) -> Path | None:
    """The folder with the model's ``config.json``: the model directory, or its snapshot in the hub's cache; None: not here."""
    local = Path(engine.model).expanduser()
    if (local / "config.json").is_file():
        return local
    repository = hub_cache(engine) / ("models--" + engine.model.replace("/", "--"))
    wanted = str(engine.args.get("revision") or "main")
    reference = repository / "refs" / wanted
    commit = reference.read_text().strip() if reference.is_file() else wanted
    snapshot = repository / "snapshots" / commit
    return snapshot if (snapshot / "config.json").is_file() else None


def hub_cache(engine: EngineConfig) -> Path:
    """Where the hub's library keeps models for this engine. Source: huggingface_hub, environment variables."""
    variables = {**os.environ, **engine.env}
    if engine.args.get("download_dir"):
        return Path(str(engine.args["download_dir"])).expanduser()
    home = variables.get("HF_HOME") or str(
        Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    )
    return Path(variables.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()


def weights_bytes(folder: Path) -> int | None:
    """Size of all weights in ``folder``; None where there are none, or not yet all that an index names."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
        paths = [folder / name for name in names]
        return sum(p.stat().st_size for p in paths) if all(p.is_file() for p in paths) else None
    # Some repositories hold the same weights a second time, in another layout.
    for pattern in ("model.safetensors", *WEIGHTS):
        if paths := list(folder.glob(pattern)):
            return sum(p.stat().st_size for p in paths)
    return None


def missing_from_host(engine: EngineConfig) -> str | None:
    """What an engine would have to download before it can start, in a sentence; None where everything is here."""
    if engine.kind == "emulator" or Path(engine.model).expanduser().exists() or _kept_elsewhere(engine):
        return None
    folder = model_folder(engine)
    if folder is None:
        return f"model {engine.model} is not on this host: no snapshot of it in {hub_cache(engine)}"
    if _weights_wanted(engine) and weights_bytes(folder) is None:
        return f"model {engine.model}: {folder} lacks weights"
    return None


def fetch_model(engine: EngineConfig) -> None:
    """Download the model in the engine's interpreter; its progress bars go to standard error.

    Raises:
        EngineError: the hub may not be asked, or gave no model; says what to do.
    """
    variables: dict[str, str] = {**os.environ, **with_references(engine.env, "engine.env")}
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if str(variables.get(name, "")).lower() in TRUE:
            raise EngineError(
                f"{missing_from_host(engine)}, and {name} is set. Bring it there, give a model directory, or unset {name}."
            )
    command = [engine_python(engine), "-c", _DOWNLOAD, engine.model]
    command += [str(engine.args.get("revision") or ""), str(engine.args.get("download_dir") or "")]
    command += ["weights" if _weights_wanted(engine) else ""]
    done = subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, preexec_fn=killed_with_parent)
    if done.returncode != 0:
        raise EngineError(
            f"model {engine.model} could not be downloaded; the reason stands above. Check the name and the network, or bring "
            f"it to {hub_cache(engine)} by other means."
        )


def _kept_elsewhere(engine: EngineConfig) -> bool:
    """Whether vLLM gets the model from something else than the hub; where from is then its own affair."""
    modelscope = str({**os.environ, **engine.env}.get("VLLM_USE_MODELSCOPE", "")).lower() in TRUE
    return modelscope or "://" in engine.model


def _weights_wanted(engine: EngineConfig) -> bool:
    """A virtual GPU has none, whatever the load format."""
    return engine.kind != "virtual_gpu" and engine.args.get("load_format") != "dummy"
