"""The engine's identity as preflight asks for it: a model that is not on this host is fetched in between."""

import sys
from typing import Any

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.identity import device_identity, engine_identity
from connector_tax.run.engine.model_files import fetch_model, missing_from_host


def identity_with_model(engine: EngineConfig, cards: Cards) -> dict[str, Any]:
    """Whether the interpreter has vLLM is asked before a download, and what a virtual GPU's clock goes by after it.

    Raises:
        ConfigError: the interpreter has no vLLM to fetch a model for, or a virtual GPU's step time cannot be worked out.
        EngineError: the interpreter does not run, or the model could not be fetched.
    """
    identity = engine_identity(engine, cards, with_device=False)
    _have_model(engine, identity)
    return identity | device_identity(engine)


def _have_model(engine: EngineConfig, identity: dict[str, Any]) -> None:
    """Fetch the model if it is not on this host, and say so; no launch is timed meanwhile."""
    missing = missing_from_host(engine)
    if missing is None:
        return
    if identity["versions"]["vllm"] is None:
        words = "this interpreter has no vLLM. Give the one that has: export ENGINE_PYTHON=/path/to/venv/bin/python"
        raise ConfigError(f"engine.python: {engine.python}: {words}")
    words = "It is downloaded now; no launch is timed before it is there."
    print(f"preflight: {missing}. {words}", file=sys.stderr, flush=True)
    fetch_model(engine)
