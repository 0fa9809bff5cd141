"""Measure one cell against any OpenAI-compatible server."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from connector_tax.errors import ConfigError
from connector_tax.loadgen.health import health
from connector_tax.loadgen.http_issuer import HttpIssuer
from connector_tax.loadgen.session import BenchmarkSession
from connector_tax.records.cell import CellSpec, CellWindow
from connector_tax.records.request import RequestRecord
from connector_tax.workload.prompts import RequestRenderer


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """A record for every arrival between T0 and T_stop, in order of ``seq``."""

    window: CellWindow
    requests: list[RequestRecord]
    health: dict[str, Any]


def measure_cell(
    spec: CellSpec,
    base_url: str,
    model: str,
    *,
    should_abort: Callable[[], str | None] = lambda: None,
) -> CellOutcome:
    """Load ``base_url`` as ``spec`` says and return what came of it; blocks until drained.

    Args:
        should_abort: asked a few times a second; a text (the engine's death, say) ends the cell.

    Raises:
        ConfigError: ``base_url`` is not ``http://host:port``.
    """
    url = urlsplit(base_url)
    if url.scheme != "http" or not url.hostname:
        raise ConfigError(f"base URL {base_url!r}: give http://host:port of an OpenAI-compatible server.")
    port = url.port or 80
    renderer = RequestRenderer(spec, model=model, host=f"{url.hostname}:{port}")
    session = BenchmarkSession.start(
        spec, HttpIssuer(url.hostname, port), renderer, should_abort=should_abort
    )
    try:
        session.wait_for_test_end()
    except BaseException:
        # SIGTERM or Ctrl-C in the waiting thread: let the loop close its sockets first.
        session.stop()
        session.wait_for_test_end(5.0)
        raise
    result = session.result()
    return CellOutcome(result.window, result.requests, health(spec, result))
