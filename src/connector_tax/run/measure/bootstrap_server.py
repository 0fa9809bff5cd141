"""The bootstrap server that a KV consumer asks for its producers, where preflight tries one without any."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import EngineError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.ports import first_port, free_port, is_taken, taken_words
from connector_tax.run.engine.supervised import start_supervised, stop_supervised

BOOTSTRAP_GRACE_S = 2.0


@contextmanager
def bootstrap_beside(
    engine: EngineConfig, connector: ConnectorSpec, cards: Cards, folder: Path
) -> Iterator[ConnectorSpec]:
    """A consumer gets a bootstrap server beside it that knows no producer; others get nothing.

    It listens where the campaign's launches will look, so that vLLM compiles once for both. The embedded engine
    never asks it, and gets a free port, since several of its campaigns may run beside each other.

    Args:
        folder: gets the record by which a later start finds what was left of it.

    Raises:
        EngineError: somebody listens there already.
    """
    side = next((p for p in connector.side_ports if not p.listens), None)
    if connector.verify != "kv_consumer" or side is None:
        yield connector
        return
    if engine.is_vllm:
        environment = engine_environment(engine, connector, cards)
        port = first_port(side, environment, cards.side_port_slot)
        if is_taken(port):
            raise EngineError(taken_words(connector, side, port))
    else:
        port = free_port()
    script = PROJECT_ROOT / "launch" / "plugins" / "dummy_bootstrap.py"
    server = start_supervised(
        [sys.executable, str(script), str(port)],
        folder=folder,
        environment=dict(os.environ),
        grace_s=BOOTSTRAP_GRACE_S,
    )
    try:
        yield replace(connector, env={**connector.env, side.env: str(port)})
    finally:
        stop_supervised(server, folder, grace_s=BOOTSTRAP_GRACE_S)
