"""The engine's identity as preflight asks for it: a model that is not on this host is fetched in between."""

import sys

import msgspec
from msgspec import UNSET

from connector_tax.base.config import EngineConfig
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.container import refuse_a_model_elsewhere
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.identity import engine_identity
from connector_tax.run.engine.model_files import fetch_model, missing_from_host
from connector_tax.run.engine.virtual_gpu import gpu_identity


def identity_with_model(engine: EngineConfig, cards: Cards) -> EngineIdentity:
    """Whether the interpreter has vLLM is asked before a download, and what a virtual GPU's clock goes by after it.

    Raises:
        ConfigError: the interpreter has no vLLM to fetch a model for, or a virtual GPU's step time cannot be worked out.
        EngineError: the interpreter does not run, or the model could not be fetched.
    """
    identity = engine_identity(engine, cards, with_device=False)
    _have_model(engine, identity)
    return msgspec.structs.replace(identity, virtual_gpu=gpu_identity(engine) or UNSET)


def _have_model(engine: EngineConfig, identity: EngineIdentity) -> None:
    """Fetch the model if it is not on this host, and say so; no launch is timed meanwhile."""
    missing = missing_from_host(engine)
    if missing is None:
        return
    refuse_a_model_elsewhere(engine, missing)
    if identity.versions["vllm"] is None:
        words = "this interpreter has no vLLM. Give the one that has: export ENGINE_PYTHON=/path/to/venv/bin/python"
        raise ConfigError(f"engine.python: {engine.python}: {words}")
    words = "It is downloaded now; no launch is timed before it is there."
    print(f"preflight: {missing}. {words}", file=sys.stderr, flush=True)
    fetch_model(engine)
