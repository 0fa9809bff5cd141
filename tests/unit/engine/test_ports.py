"""Ports that connectors listen on beside the API: whose they are, where they lie, and who is in the way."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import campaign_config
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import EngineError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine import ports
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import Cards, Gpu
from connector_tax.run.engine.ports import LOOPBACK, Listener, free_port, intruder, is_taken, taken_side_port
from connector_tax.run.engine.process import LaunchError, LaunchRequest, running_engine
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
        ("mooncake_both", MOONCAKE, "Mooncake's bootstrap server"),
        ("mooncake_producer", MOONCAKE, "Mooncake's bootstrap server"),
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


def test_a_side_port_above_the_last_there_is_gets_a_message(engine: EngineConfig) -> None:
    with pytest.raises(
        EngineError, match=rf"{NIXL}: NIXL's handshake would listen on port 70000, and the last one is 65535"
    ):
        taken_side_port(engine, connector("nixl_both"), {NIXL: "70000"})
    two = replace(engine, args={"tensor_parallel_size": 2})
    with pytest.raises(EngineError, match="would listen on port 65536"):
        taken_side_port(two, connector("nixl_both"), {NIXL: "65535"})
    assert taken_side_port(engine, connector("nixl_both"), {NIXL: "²"}) is None


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
    drawn = {free_port() for _ in range(50)}
    assert len(drawn) > 40
    if low > ports.FIRST_PORT:
        assert not any(low <= port <= high for port in drawn)


def test_where_the_kernel_gives_all_ports_away_one_of_them_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "KERNEL_CHOOSES", everything)
    assert ports.FIRST_PORT <= free_port() <= 65535
