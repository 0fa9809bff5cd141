"""Only the engine of the launch answers at its port, and only to this host."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import ABOUT
from cell_specs import cell_spec
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.documents.cell import IdleUse
from connector_tax.run.engine import launch
from connector_tax.run.engine.ports import family, free_port, listeners
from connector_tax.run.engine.process import LaunchError, LaunchRequest, running_engine
from connector_tax.run.measure import cell
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.failure import is_of_the_host

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def campaign() -> CampaignConfig:
    return load_campaign(CONFIG / "demo.yaml")


class Sharing(ThreadingHTTPServer):
    """Binds its port as vLLM does, so that another engine may have it as well."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


@contextmanager
def another_engine(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """Of the same model, in this process, which no launch started."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data": [{"id": "embedded-engine"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = Sharing((host, port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def stranger(port: int) -> str:
    return f"port {port} of 127.0.0.1 is also answered by process {os.getpid()} ("


def test_the_embedded_engine_listens_on_loopback_alone(campaign: CampaignConfig, tmp_path: Path) -> None:
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
    with running_engine(request) as engine:
        engine.wait_ready()
        ours = family(engine.supervisor.pid)
        assert [(x.address, x.port) for x in listeners() if x.pid in ours] == [("127.0.0.1", engine.port)]


def test_another_engines_answer_is_not_taken_for_ready(campaign: CampaignConfig, tmp_path: Path) -> None:
    """It came while ours was starting; and it is the host that is to blame, not the configuration."""
    config = replace(campaign.engine, port=free_port())
    request = LaunchRequest(config, campaign.connector("plain"), tmp_path, fault="slow_start:30")
    with running_engine(request) as engine, another_engine(engine.port):
        with pytest.raises(LaunchError) as told:
            engine.wait_ready()
    assert str(told.value).startswith(f"plain: {stranger(config.port)}")
    assert is_of_the_host(str(told.value))


@pytest.mark.parametrize("joins", ["before", "during"])
def test_an_engine_that_joins_the_port_later_costs_the_cell(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joins: str
) -> None:
    """Two campaigns that chose the same port a second apart: each would measure half of both."""
    joined = ExitStack()

    def load(*args: object, **options: object) -> object:
        assert joins == "during", "the engine was asked for a cell on a shared port"
        joined.enter_context(another_engine(engine.port))
        return SimpleNamespace(window=SimpleNamespace(overloaded=False))

    monkeypatch.setattr(cell, "measure_cell", load)
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
    folder = CampaignFolder(tmp_path / "demo").run("2026-01-01", "plain", "a").cell("r4_64x8")
    with running_engine(request) as engine:
        engine.wait_ready()
        with joined:
            if joins == "before":
                joined.enter_context(another_engine(engine.port))
            with pytest.raises(LaunchError) as told:
                measure_one_cell(
                    cell_spec(),
                    folder,
                    Bench(
                        engine=engine,
                        pool=None,  # type: ignore[arg-type]
                        raw_metrics=tmp_path / "metrics",
                        step_log=None,
                        about=ABOUT,
                        idle=IdleUse(),
                    ),
                    last_try=True,
                )
        engine.check_port()
    assert stranger(engine.port) in str(told.value)
    assert not folder.path.exists()


def test_somebody_on_another_address_of_the_host_is_in_nobodys_way(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
    with running_engine(request) as engine:
        engine.wait_ready()
        with another_engine(engine.port, "127.0.0.2"):
            engine.check_port()


def test_an_engine_that_the_network_can_reach_is_refused(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever made it: a plugin, a wrapper, a default of some release."""
    monkeypatch.setattr(launch, "engine_arguments", lambda *_: ["--host", "0.0.0.0"])
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
    with running_engine(request) as engine:
        with pytest.raises(LaunchError, match=r"the engine listens on 0\.0\.0\.0:\d+ \(process \d+"):
            engine.wait_ready()
