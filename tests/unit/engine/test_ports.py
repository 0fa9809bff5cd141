"""Ports of an engine and of what connectors listen on beside its API: whose they are, where they lie, and who is in the way."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import ABOUT, campaign_config
from cell_specs import cell_spec
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, EngineConfig, load_campaign
from connector_tax.base.documents.cell import IdleUse
from connector_tax.base.errors import EngineError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine import launch, ports
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import Cards, Gpu
from connector_tax.run.engine.ports import (
    LOOPBACK,
    Listener,
    family,
    free_port,
    intruder,
    is_taken,
    listeners,
    taken_side_port,
)
from connector_tax.run.engine.process import LaunchError, LaunchRequest, running_engine
from connector_tax.run.measure import cell
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.failure import is_of_the_host

NIXL, MOONCAKE = "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_MOONCAKE_BOOTSTRAP_PORT"


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    """One that must not be started: whatever runs it fails."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 9\n")
    python.chmod(0o755)
    return replace(campaign_config("config.yaml").engine, python=str(python))


def connector(name: str) -> ConnectorSpec:
    return campaign_config("config.yaml").connector(name)


def card(index: int) -> Cards:
    return Cards((Gpu(index, f"GPU-{index}", "NVIDIA H20", 97_871, f"GPU-{index}"),), 0)


@contextmanager
def listening(port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind((host, port))
        taken.listen()
        yield taken.getsockname()[1]


@contextmanager
def listening_above_a_free_one() -> Iterator[int]:
    with listening() as port:
        if not is_taken(port - 1):
            yield port
            return
    with listening_above_a_free_one() as port:
        yield port


def test_campaigns_on_two_cards_do_not_share_a_side_port(engine: EngineConfig) -> None:
    """The first card keeps vLLM's defaults; by card, and not by what the campaign calls it; what an entry sets is left alone."""

    def ports(name: str, cards: Cards, **env: str) -> dict[str, str]:
        own = replace(connector(name), env=env)
        found = engine_environment(engine, own, cards)
        return {k: v for k, v in found.items() if k in (NIXL, MOONCAKE)}

    assert ports("nixl_both", card(0)) == {}
    assert ports("nixl_both", card(2)) == {NIXL: "5800"}
    assert ports("nixl_both", Cards((), 1)) == {NIXL: "5700"}
    assert ports("nixl_both", card(2), **{NIXL: "6000"}) == {NIXL: "6000"}
    assert ports("multi_mooncake_lmcache", card(1)) == {MOONCAKE: "9098"}
    assert ports("mooncake_consumer", card(1)) == {MOONCAKE: "9098"}
    assert ports("plain", card(1)) == {}


@pytest.mark.parametrize(
    ("name", "variable", "wanted_by"),
    [
        ("nixl_both", NIXL, "NIXL's handshake"),
        ("multi_mooncake_lmcache", MOONCAKE, "Mooncake's bootstrap server"),
    ],
)
def test_a_taken_side_port_stops_the_launch_and_is_named_with_its_holder(
    engine: EngineConfig, tmp_path: Path, name: str, variable: str, wanted_by: str
) -> None:
    with listening() as port:
        own = replace(engine, env={**engine.env, variable: str(port)})
        request = LaunchRequest(own, connector(name), tmp_path / "run", cards=card(0))
        # No LaunchError: the host is to blame, and the configuration is tried again by the next start.
        with pytest.raises(EngineError) as told:
            with running_engine(request):
                raise AssertionError("must not launch")
    assert (
        f"{name}: port {port} ({variable}), wanted by {wanted_by}, is in use by process {os.getpid()} ("
        in str(told.value)
    )
    assert not isinstance(told.value, LaunchError)
    assert not (tmp_path / "run" / "launch.sh").exists()


def test_a_port_that_the_connector_does_not_use_may_be_taken(engine: EngineConfig) -> None:
    with listening() as port:
        taken = {NIXL: str(port), MOONCAKE: str(port)}
        for name in ("plain", "noop_connector", "lmcache_only", "mooncake_consumer"):
            assert taken_side_port(engine, connector(name), taken) is None
        embedded = campaign_config("demo.yaml").engine
        assert taken_side_port(embedded, connector("nixl_both"), taken) is None


def test_each_rank_of_nixl_has_a_port_of_its_own(engine: EngineConfig) -> None:
    with listening_above_a_free_one() as port:
        first = {NIXL: str(port - 1)}
        two = replace(engine, args={"tensor_parallel_size": 2})
        assert taken_side_port(replace(engine, args={}), connector("nixl_both"), first) is None
        assert f"port {port} " in str(taken_side_port(two, connector("nixl_both"), first))
        assert taken_side_port(two, connector("mooncake_both"), {MOONCAKE: str(port - 1)}) is None


def test_a_listener_on_every_address_is_in_the_way_as_well(engine: EngineConfig) -> None:
    port = free_port()
    with listening(port, "0.0.0.0"):
        assert taken_side_port(engine, connector("nixl_both"), {NIXL: str(port)}) is not None
    assert taken_side_port(engine, connector("nixl_both"), {NIXL: str(port)}) is None


def test_a_holder_that_ends_between_two_looks_is_no_traceback(
    engine: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the launch before lets go of the port just then."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with listening() as port:
        gone = Listener("127.0.0.1", port, ended.pid)
        monkeypatch.setattr(ports, "listeners", lambda: [gone])
        said = taken_side_port(engine, connector("nixl_both"), {NIXL: str(port)})
    assert said is not None and f"is in use by process {ended.pid}, which has ended since" in said


def test_a_side_port_above_the_last_there_is_gets_a_message(engine: EngineConfig) -> None:
    with pytest.raises(EngineError, match=rf"{NIXL}: .* listen on port 70000, and the last one is 65535"):
        taken_side_port(engine, connector("nixl_both"), {NIXL: "70000"})


@pytest.mark.parametrize("v6_only", [True, False])
def test_a_listener_of_ipv6_is_in_the_way_where_it_takes_ipv4_as_well(v6_only: bool) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6_only))
        other.bind(("::", 0))
        other.listen()
        found = intruder(other.getsockname()[1], ended.pid)
    assert (found is None) == v6_only


def test_a_listener_that_cannot_be_seen_is_the_hosts_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an interpreter with file capabilities the kernel tells its own user nothing."""
    monkeypatch.setattr(ports, "listeners", lambda: [Listener(LOOPBACK, 8000, None)])
    said = str(intruder(8000, os.getpid()))
    assert "a process of another user" in said and "setcap -r" in said
    assert is_of_the_host(said)


def test_a_free_port_is_none_that_the_kernel_gives_to_others() -> None:
    """A launch binds it a minute later; a server that asks for any port meanwhile must not get it."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    drawn = {free_port() for _ in range(6)}
    assert len(drawn) > 3
    if low > ports.FIRST_PORT:
        assert not any(low <= port <= high for port in drawn)


def test_where_the_kernel_gives_all_ports_away_one_of_them_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "KERNEL_CHOOSES", everything)
    assert ports.FIRST_PORT <= free_port() <= 65535


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
        with another_engine(engine.port, "127.0.0.2"):
            engine.check_port()  # somebody on another address of the host is in nobody's way


def test_another_engines_answer_is_not_taken_for_ready(campaign: CampaignConfig, tmp_path: Path) -> None:
    """It came while ours was starting; and it is the host that is to blame, not the configuration."""
    config = replace(campaign.engine, port=free_port())
    request = LaunchRequest(config, campaign.connector("plain"), tmp_path, fault="slow_start:30")
    with running_engine(request) as engine, another_engine(engine.port):
        with pytest.raises(LaunchError) as told:
            engine.wait_ready()
    assert str(told.value).startswith(f"plain: {stranger(config.port)}")
    assert is_of_the_host(str(told.value))


def test_an_engine_that_joins_the_port_later_costs_the_cell(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a cell or during it. Two campaigns that chose the same port a second apart: each would measure half of both."""
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
    folder = CampaignFolder(tmp_path / "demo").run("2026-01-01", "plain", "a").cell("r4_64x8")
    with running_engine(request) as engine:
        engine.wait_ready()
        bench = Bench(
            engine=engine,
            pool=None,  # type: ignore[arg-type]
            raw_metrics=tmp_path / "metrics",
            step_log=None,
            about=ABOUT,
            idle=IdleUse(),
        )
        for joins in ("before", "during"):
            with ExitStack() as joined:

                def load(
                    *args: object, joins: str = joins, joined: ExitStack = joined, **options: object
                ) -> object:
                    assert joins == "during", "the engine was asked for a cell on a shared port"
                    joined.enter_context(another_engine(engine.port))
                    return SimpleNamespace(window=SimpleNamespace(overloaded=False))

                monkeypatch.setattr(cell, "measure_cell", load)
                if joins == "before":
                    joined.enter_context(another_engine(engine.port))
                with pytest.raises(LaunchError) as told:
                    measure_one_cell(cell_spec(), folder, bench, last_try=True)
            engine.check_port()
            assert stranger(engine.port) in str(told.value)
            assert not folder.path.exists()


def test_an_engine_that_the_network_can_reach_is_refused(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever made it: a plugin, a wrapper, a default of some release."""
    monkeypatch.setattr(launch, "engine_arguments", lambda *_: ["--host", "0.0.0.0"])
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
    with running_engine(request) as engine:
        with pytest.raises(LaunchError, match=r"the engine listens on 0\.0\.0\.0:\d+ \(process \d+"):
            engine.wait_ready()
