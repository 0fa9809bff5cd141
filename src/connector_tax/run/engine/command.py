"""Config and connector to what a launch script is given: its arguments and its environment."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.reserved import REDIRECT, check_engine, check_launch
from connector_tax.base.config.secrets import with_references
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import sha256_of
from connector_tax.base.records.connector import STORE, ConnectorSpec
from connector_tax.base.secrets import REFERENCE, REFERRED_VARIABLE
from connector_tax.run.engine.container import further, instrument, probe_words, visible_inside
from connector_tax.run.engine.gpus import VISIBLE, Cards
from connector_tax.run.engine.image import image_of
from connector_tax.run.engine.ports import side_port_environment

LAUNCH = PROJECT_ROOT / "launch"
# vLLM's own, as `--api-key`.
API_KEY = "VLLM_API_KEY"
MODULES = {"vllm": "vllm_serve", "virtual_gpu": "vllm_serve", "emulator": "connector_tax.run.emulator"}


def launch_script(connector: ConnectorSpec) -> Path:
    """The connector's own script, plain's for what has no connector, or the one for those that exist as data only."""
    own = LAUNCH / f"launch_{connector.id}.sh"
    shared = LAUNCH / ("launch_any.sh" if connector.kv_transfer_config else "launch_plain.sh")
    return own if own.is_file() else shared


def engine_python(engine: EngineConfig) -> str:
    """The engine's interpreter; of one in a container the name that the image has for it.

    Raises:
        ConfigError: an environment variable in it is not set, there is no such file, or it is none that can be run.
    """
    if engine.kind == "emulator" and engine.container is None:
        return sys.executable
    python = engine.python or ("python3" if engine.container is not None else "")
    if "${" in python:
        raise ConfigError(
            f"engine.python: {python}: that environment variable is not set. "
            "Set it to the interpreter that has vLLM: export ENGINE_PYTHON=/path/to/venv/bin/python"
        )
    if engine.container is None and (fault := _no_program(python)):
        raise ConfigError(f"engine.python: {python}: {fault}")
    return python


def _no_program(python: str) -> str | None:
    if Path(python).is_dir():
        return f"is a folder. Give the interpreter that has vLLM, of a venv {Path(python, 'bin', 'python')}."
    if os.access(python, os.X_OK):
        return None
    if Path(python).exists():
        return "is there and may not be executed. Give the interpreter that has vLLM."
    return "no such program. Give the interpreter that has vLLM."


def interpreter(engine: EngineConfig) -> list[str]:
    """What to put before ``-c`` or ``-m`` to ask the engine's interpreter something; in a container, one that ends with the answer.

    Raises:
        ConfigError: as ``engine_python``, or there is no such image or no such folder to mount.
        EngineError: the container runtime does not answer.
    """
    python = engine_python(engine)
    if engine.container is None:
        return [python]
    mounts = (*instrument(), *further(engine.container.mounts))
    return [*probe_words(image_of(engine.container), mounts), python]


def check_model(engine: EngineConfig) -> None:
    """Refuse a model directory that is not there, before an engine spends minutes on it.

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
            f"engine.model: {engine.model}: no model directory there (no config.json in it). "
            "Give an existing directory or a hub id such as Qwen/Qwen3-Coder-30B-A3B-Instruct."
        )


def engine_arguments(engine: EngineConfig, connector: ConnectorSpec) -> list[str]:
    """Everything behind the script's own arguments, in the order of the config.

    Raises:
        ConfigError: one of them sets what the pipeline sets; a ``campaign.json`` may have been edited.
    """
    check_engine({"args": engine.args, "extra_args": engine.extra_args, "env": engine.env}, "campaign.json")
    check_launch(connector.extra_args, connector.env, f"campaign.json: {connector.id}")
    arguments: list[str] = []
    for name, value in with_references(engine.args, "engine.args").items():
        flag = "--" + name.replace("_", "-")
        # The key goes through the environment: a command line can be read by everybody on the host.
        if value is None or name == "api_key":
            continue
        if value is True:
            arguments.append(flag)
        elif value is False:
            arguments.append("--no-" + flag[2:])
        else:
            arguments += [flag, _text(value)]
    further = with_references(engine.extra_args, "engine.extra_args")
    return [*arguments, *further, *with_references(connector.extra_args, f"{connector.id}.extra_args")]


def engine_environment(engine: EngineConfig, connector: ConnectorSpec, cards: Cards) -> dict[str, str]:
    """The environment of a launch script; the caller adds PORT, LAUNCH_SH_OUT and the step log.

    Raises:
        ConfigError: the connector's entry chooses cards, which the lock and the receipt would not know; a variable around us
            would make vLLM load another model; or as ``cost_model``.
    """
    if VISIBLE in connector.env:
        raise ConfigError(
            f"{connector.id}: env.{VISIBLE}: cards are chosen for the campaign, not for one connector. "
            "Set engine.gpu, engine.env or the environment instead."
        )
    if engine.kind != "emulator" and os.environ.get(REDIRECT):
        raise ConfigError(
            f"{REDIRECT} is set: vLLM would load another model than engine.model, from a file that is in no specification. "
            f"Unset it, and set engine.model to the model that is meant."
        )
    inherited = {name: value for name, value in os.environ.items() if name != REFERRED_VARIABLE}
    environment = {
        **inherited,
        **given_environment(engine, connector),
        "ENGINE_PYTHON": engine_python(engine),
        "ENGINE_MODULE": MODULES[engine.kind],
        "MODEL": engine.model,
        "SERVED_MODEL_NAME": engine.served_model_name,
        "HOST": "127.0.0.1",
        "KV_TRANSFER_CONFIG": json.dumps(with_references(connector.kv_transfer_config, connector.id))
        if connector.kv_transfer_config
        else "",
    }
    if engine.kind == "emulator":
        environment["CONNECTOR_TAX_ENGINE_MODEL"] = str(cost_model(engine))
    else:
        environment |= cards.environment if engine.container is None else visible_inside(cards)
        environment = {**side_port_environment(connector, cards.side_port_slot), **environment}
    return environment


def cost_model(engine: EngineConfig) -> Path:
    """The embedded engine's, as it was when the campaign was started.

    Raises:
        ConfigError: it was edited since, or is gone.
    """
    path = PROJECT_ROOT / str(engine.model_file)
    if engine.model_sha256 is not None and not (path.is_file() and sha256_of(path) == engine.model_sha256):
        raise ConfigError(
            f"engine.model_file: {engine.model_file}: edited since the campaign was started, or gone. Put it back as it was; or start again: "
            "then every cell is measured with the file as it is now."
        )
    return path


def given_environment(engine: EngineConfig, connector: ConnectorSpec) -> dict[str, str]:
    """The variables that the config sets, and not whoever started the campaign."""
    api_key = with_references(engine.args.get("api_key"), "engine.args.api_key")
    return {
        **with_references(engine.env, "engine.env"),
        **with_references(connector.env, f"{connector.id}.env"),
        **({} if api_key is None else {API_KEY: str(api_key)}),
    }


def referring(engine: EngineConfig, connector: ConnectorSpec) -> list[str]:
    """What in a launch refers to variables, since they hold secrets: others were put in when the config was read."""
    parts = [engine.args, engine.extra_args, engine.env, connector.extra_args, connector.env]
    texts = _texts([*parts, connector.kv_transfer_config])
    return sorted({text for text in texts if REFERENCE.search(text.replace(STORE, ""))})


def _texts(value: Any) -> Iterator[str]:
    """Every text in it, at whatever depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_texts, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_texts, value))


def api_key(engine: EngineConfig, connector: ConnectorSpec) -> str | None:
    """What the launched engine asks its clients for; None where it asks for nothing. Its command line goes first.

    Raises:
        ConfigError: it has characters that no header can carry; they are not repeated.
    """
    key = _key_of_arguments(engine_arguments(engine, connector))
    if key is None:
        key = {**os.environ, **given_environment(engine, connector)}.get(API_KEY) or None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"{connector.id}: the API key (engine.args.api_key, --api-key or {API_KEY}) has characters other than printable "
            "ASCII, which no HTTP header can carry. Give the engine another key."
        )
    return key


def _key_of_arguments(arguments: list[str]) -> str | None:
    """The key as vLLM's parser reads it: underscores for hyphens, any beginning that no other argument has, the last one given."""
    key = None
    for index, argument in enumerate(arguments):
        flag, given, value = argument.partition("=")
        flag = flag.replace("_", "-")
        if not (flag.startswith("--api-k") and "--api-key".startswith(flag)):
            continue
        if not given:
            following = arguments[index + 1 : index + 2]
            key = following[0] if following and not following[0].startswith("-") else None
        else:
            key = value
    return key


def _text(value: Any) -> str:
    """As it was meant: no digit less, and a whole number without a point, which an argument that counts would refuse."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e16
    return str(int(value) if whole else value)
