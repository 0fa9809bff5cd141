"""Config and connector -> an engine's command and environment; also the model's files on this host."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.reserved import REDIRECT, check_engine, check_launch
from connector_tax.base.config.secrets import with_references
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import printable, sha256_of
from connector_tax.base.prctl import killed_with_parent
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.secrets import REFERRED_VARIABLE
from connector_tax.run.engine.gpus import VISIBLE, Cards, visible_inside
from connector_tax.run.engine.ports import side_port_environment

# Variables that shape an engine wherever it runs.
SHAPING = re.compile(r"(VLLM|LMCACHE|MOONCAKE|NIXL|UCX|NCCL|OMP|MKL|CUDA|TORCH|PYTORCH|HF)_\w+", re.ASCII)
# vLLM's own, equal to `--api-key`.
API_KEY = "VLLM_API_KEY"
EMULATOR = "connector_tax.run.emulator"
# (config value, its place in the config) -> the value to use.
LookUp = Callable[[Any, str], Any]


def engine_python(engine: EngineConfig) -> str:
    """Return the engine's interpreter; for a container, its name in the image.

    Raises:
        ConfigError: it contains an unset environment variable, or there is no such executable file.
    """
    if engine.kind == "emulator" and engine.container is None:
        return sys.executable
    python = engine.python or ("python3" if engine.container is not None else "")
    if "${" in python:
        raise ConfigError(
            f"engine.python: {python}: that environment variable is not set. "
            "Set it to the interpreter that has vLLM: export ENGINE_PYTHON=/path/to/venv/bin/python"
        )
    if engine.container is None and (fault := no_program(python)):
        raise ConfigError(f"engine.python: {python}: {fault}")
    return python


def no_program(python: str) -> str | None:
    """Return why ``python`` cannot be run, with the remedy; None where it can."""
    if Path(python).is_dir():
        return f"is a folder. Give the interpreter that has vLLM, of a venv {Path(python, 'bin', 'python')}."
    if os.access(python, os.X_OK):
        return None
    if Path(python).exists():
        return "is there and may not be executed. Give the interpreter that has vLLM."
    return "no such program. Give the interpreter that has vLLM."


def check_model(engine: EngineConfig) -> None:
    """Refuse a missing model directory before an engine spends minutes on it.

    Raises:
        ConfigError: the path looks local and has no ``config.json``.
    """
    if engine.kind == "emulator":
        return
    if "${" in engine.model:
        raise ConfigError(f"engine.model: {engine.model}: that environment variable is not set.")
    looks_local = engine.model.startswith((".", "/", "~"))
    if looks_local and not (Path(engine.model).expanduser() / "config.json").is_file():
        raise ConfigError(
            f"engine.model: {engine.model}: no model directory there (no config.json in it), as seen from"
            f" {Path.cwd()}. Give an existing directory or a hub id such as"
            " Qwen/Qwen3-Coder-30B-A3B-Instruct."
        )


def engine_arguments(
    engine: EngineConfig, connector: ConnectorSpec, look_up: LookUp = with_references
) -> list[str]:
    """Return the arguments of ``engine`` and ``connector``, in the config's order.

    Raises:
        ConfigError: one of them sets what the pipeline sets; a ``campaign.json`` may have been edited.
    """
    check_engine(engine, "campaign.json")
    check_launch(connector.extra_args, connector.env, f"campaign.json: {connector.id}")
    arguments: list[str] = []
    for name, value in look_up(engine.args, "engine.args").items():
        flag = "--" + name.replace("_", "-")
        # The key goes through the environment, since every user can read command lines.
        if value is None or name == "api_key":
            continue
        if value is True:
            arguments.append(flag)
        elif value is False:
            arguments.append("--no-" + flag[2:])
        else:
            arguments += [flag, _text(value)]
    further = look_up(engine.extra_args, "engine.extra_args")
    return [*arguments, *further, *look_up(connector.extra_args, f"{connector.id}.extra_args")]


def engine_environment(engine: EngineConfig, connector: ConnectorSpec, cards: Cards) -> dict[str, str]:
    """Return the environment from config, connector, cards and the caller; ``Launch`` adds the launch's own.

    Raises:
        ConfigError: the connector's entry chooses cards, which lock and receipt would not know; an inherited
            variable would make vLLM load another model; or ``cost_model`` raised it.
    """
    if VISIBLE in connector.env:
        raise ConfigError(
            f"{connector.id}: env.{VISIBLE}: cards are chosen for the campaign, not for one connector. "
            "Set engine.gpu, engine.env or the environment instead."
        )
    if engine.kind != "emulator" and os.environ.get(REDIRECT):
        raise ConfigError(
            f"{REDIRECT} is set: vLLM would load another model than engine.model, from a file that is in no"
            " specification. Unset it, and set engine.model to the model that is meant."
        )
    inherited = {name: value for name, value in os.environ.items() if name != REFERRED_VARIABLE}
    environment = {**inherited, **given_environment(engine, connector)}
    if engine.kind == "emulator":
        environment["CONNECTOR_TAX_ENGINE_MODEL"] = str(cost_model(engine))
    else:
        environment |= cards.environment if engine.container is None else visible_inside(cards)
        environment = {**side_port_environment(connector, cards.side_port_slot), **environment}
    return environment


def cost_model(engine: EngineConfig) -> Path:
    """Return the embedded engine's model file, unchanged since the campaign started.

    Raises:
        ConfigError: it was edited or removed since.
    """
    path = PROJECT_ROOT / str(engine.model_file)
    if engine.model_sha256 is not None and not (path.is_file() and sha256_of(path) == engine.model_sha256):
        raise ConfigError(
            f"engine.model_file: {engine.model_file}: edited since the campaign was started, or gone. Put it"
            " back as it was; or start again: then every cell is measured with the file as it is now."
        )
    return path


def given_environment(
    engine: EngineConfig, connector: ConnectorSpec, look_up: LookUp = with_references
) -> dict[str, str]:
    """Return the variables that the config sets, without inherited ones."""
    api_key = look_up(engine.args.get("api_key"), "engine.args.api_key")
    return {
        **look_up(engine.env, "engine.env"),
        **look_up(connector.env, f"{connector.id}.env"),
        **({} if api_key is None else {API_KEY: str(api_key)}),
    }


def api_key(engine: EngineConfig, connector: ConnectorSpec) -> str | None:
    """Return the API key that the engine requires of its clients; None if it requires none.

    Raises:
        ConfigError: it has characters that no header can carry; the message omits them.
    """
    key = {**os.environ, **given_environment(engine, connector)}.get(API_KEY) or None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"{connector.id}: the API key (engine.args.api_key or {API_KEY}) has characters other than"
            " printable ASCII, which no HTTP header can carry. Give the engine another key."
        )
    return key


def _text(value: Any) -> str:
    """Format ``value`` with all digits; a whole float without a point, which integer arguments refuse."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e16
    return str(int(value) if is_whole else value)


# The model's files on this host, and their download before any launch is timed.

# What vLLM reads of a repository with safetensors; other formats of the weights are not downloaded.
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
    """Return the folder with the model's ``config.json``, local or in the hub's cache; None if not here."""
    local = Path(engine.model).expanduser()
    if (local / "config.json").is_file():
        return local
    repository = hub_cache(engine) / ("models--" + engine.model.replace("/", "--"))
    revision = str(engine.args.get("revision") or "main")
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    return snapshot if (snapshot / "config.json").is_file() else None


def model_inside(engine: EngineConfig) -> Path:
    """Return the model's resolved folder, the path that is mounted into a container.

    Raises:
        ConfigError: it is not on this host.
    """
    folder = model_folder(engine)
    if folder is None:
        refuse_a_model_elsewhere(engine, f"model {engine.model} is not on this host (no config.json)")
    assert folder is not None
    return folder.resolve()


def refuse_a_model_elsewhere(engine: EngineConfig, missing: str) -> None:
    """Refuse a missing model for a container, which downloads nothing.

    Raises:
        ConfigError: the engine runs in a container.
    """
    if engine.container is not None:
        raise ConfigError(
            f"engine.model: {missing}. An engine in a container downloads nothing: bring the model there"
            f" first, for instance by hf download {printable(engine.model, 200)}, or give a model directory."
        )


def model_mounts(folder: Path) -> tuple[Path, ...]:
    """Return the paths to mount: the model's folder and its links' targets, or the hub cache's blobs folder.

    Links that lead nowhere, or where this user may not look, are skipped.
    """
    blobs = folder.parent.parent / "blobs"
    linked = {
        blobs if target.parent == blobs else target
        for path in folder.iterdir()
        if path.is_symlink() and os.path.exists(path)  # noqa: PTH110 - Path.exists raises where this user may not look
        for target in (in_short(folder / path.readlink()), path.resolve())
    }
    return folder, *sorted(target for target in linked if not target.is_relative_to(folder))


def in_short(path: Path | str) -> Path:
    """Return an absolute path without dots and doubled slashes; ``normpath`` keeps two leading slashes."""
    return Path("/" + os.path.normpath(path).lstrip("/"))


def hub_cache(engine: EngineConfig) -> Path:
    """Return the hub cache's folder for this engine. Source: huggingface_hub, environment variables."""
    variables = {**os.environ, **engine.env}
    if engine.args.get("download_dir"):
        return Path(str(engine.args["download_dir"])).expanduser()
    home = variables.get("HF_HOME") or str(
        Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    )
    return Path(variables.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()


def weights_bytes(folder: Path) -> int | None:
    """Return the total size of the weights in ``folder``; None if there are none, or some are missing."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        file_names = set(json.loads(index.read_text())["weight_map"].values())
        paths = [folder / name for name in file_names]
        return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else None
    # Some repositories hold the same weights twice, in two layouts.
    for pattern in ("model.safetensors", *WEIGHTS):
        if paths := list(folder.glob(pattern)):
            return sum(path.stat().st_size for path in paths)
    return None


def missing_from_host(engine: EngineConfig) -> str | None:
    """Return a sentence on what an engine would have to download before it starts; None if nothing."""
    if engine.kind == "emulator" or Path(engine.model).expanduser().exists() or _kept_elsewhere(engine):
        return None
    folder = model_folder(engine)
    if folder is None:
        return f"model {engine.model} is not on this host: no snapshot of it in {hub_cache(engine)}"
    if _weights_wanted(engine) and weights_bytes(folder) is None:
        return f"model {engine.model}: {folder} lacks weights"
    return None


def fetch_model(engine: EngineConfig) -> None:
    """Download the model with the engine's interpreter; progress bars go to standard error.

    Raises:
        EngineError: offline mode is set, or the download failed; carries the remedy.
    """
    variables: dict[str, str] = {**os.environ, **with_references(engine.env, "engine.env")}
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if str(variables.get(name, "")).lower() in TRUE:
            raise EngineError(
                f"{missing_from_host(engine)}, and {name} is set. Bring it there, give a model directory, or"
                f" unset {name}."
            )
    command = [engine_python(engine), "-c", _DOWNLOAD, engine.model]
    command += [str(engine.args.get("revision") or ""), str(engine.args.get("download_dir") or "")]
    command += ["weights" if _weights_wanted(engine) else ""]
    download = subprocess.run(
        command, env=variables, stdout=subprocess.DEVNULL, preexec_fn=killed_with_parent
    )
    if download.returncode != 0:
        raise EngineError(
            f"model {engine.model} could not be downloaded; the reason stands above. Check the name and the"
            f" network, or bring it to {hub_cache(engine)} by other means."
        )


def _kept_elsewhere(engine: EngineConfig) -> bool:
    """Return whether vLLM gets the model from elsewhere than the hub, which is not checked here."""
    modelscope = str({**os.environ, **engine.env}.get("VLLM_USE_MODELSCOPE", "")).lower() in TRUE
    return modelscope or "://" in engine.model


def _weights_wanted(engine: EngineConfig) -> bool:
    """Return whether weights are needed; a virtual GPU needs none, whatever the load format."""
    return engine.kind != "virtual_gpu" and engine.args.get("load_format") != "dummy"
