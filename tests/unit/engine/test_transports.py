"""What a connector came up with, from lines as Mooncake, vLLM and NIXL write them; what was asked for counts for nothing."""

import pytest

from connector_tax.run.engine.settings import CameUpWith, transports_of

GLOG = "I20261120 10:00:00.123456 4711 "
VLLM = "(Worker pid=9) INFO 11-20 10:00:00 "
ASKED = f"{VLLM}[mooncake_connector.py:1208] The Mooncake Transfer Engine is using rdma as its protocol."
HCAS = GLOG + "transfer_engine_impl.cpp:273] Topology discovery complete. Found {} HCAs."
RPC = f"{GLOG}transfer_engine_impl.cpp:182] Transfer Engine RPC using P2P handshake, listening on 10.0.0.1:15428"
TCP = f"{GLOG}tcp_transport.cpp:343] TcpTransport: listen on port 12345"
BOOTSTRAP = f"{VLLM}[mooncake_utils.py:108] Mooncake Bootstrap Server started at 0.0.0.0:8998"


def test_a_silent_fall_back_to_tcp_is_tcp() -> None:
    """vLLM asked for rdma and Mooncake found no adapter; neither says that it is anything but well."""
    found = transports_of("\n".join([ASKED, RPC, HCAS.format(0), TCP, BOOTSTRAP]))
    assert found == CameUpWith(
        transports={"mooncake": ("tcp",)},
        side_channels={
            "mooncake_rpc": ("10.0.0.1:15428",),
            "mooncake_tcp_port": ("12345",),
            "mooncake_bootstrap": ("0.0.0.0:8998",),
        },
    )


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("transfer_engine_impl.cpp:429] installTransport, type=rdma", "rdma"),
        ("rdma_context.cpp:286] RDMA device: mlx5_0, LID: 0, GID: 3", "rdma"),
        ("transfer_engine_impl.cpp:387] Using RDMA transport (RoCE/iWARP)", "rdma"),
        ("transfer_engine_impl.cpp:395] Using TCP transport (no HCA detected)", "tcp"),
        ("transfer_engine_impl.cpp:378] Using NVLink transport (forced or no HCA detected)", "nvlink"),
        ("transfer_engine_impl.cpp:218] MC_FORCE_TCP is set, using TCP transport only", "tcp"),
        ("transfer_engine_py.cpp:266] EFA transport installed successfully", "efa"),
    ],
)
def test_each_way_in_which_mooncake_says_it(line: str, transport: str) -> None:
    assert transports_of(GLOG + line).transports == {"mooncake": (transport,)}


def test_several_ranks_and_devices_are_named_once() -> None:
    devices = [f"{GLOG}rdma_context.cpp:286] RDMA device: mlx5_{k}, LID: 0" for k in (0, 1)]
    installed = f"{GLOG}transfer_engine_impl.cpp:429] installTransport, type=rdma"
    assert transports_of("\n".join([*devices, installed, installed])).transports == {"mooncake": ("rdma",)}


def test_nixls_backend() -> None:
    line = "2026-11-20 10:00:00 NIXL INFO    _api.py:405 Backend UCX was instantiated"
    assert transports_of(line).transports == {"nixl": ("ucx",)}


@pytest.mark.parametrize(
    "log",
    [
        "",
        ASKED,
        HCAS.format(2),
        f"E{GLOG[1:]}transfer_engine_impl.cpp:300] Failed to install TCP transport",
        f"{GLOG}transfer_engine_py.cpp:271] Installing TCP transport (auto_discover disabled in EFA build)",
    ],
)
def test_what_was_only_asked_for_or_failed_is_not_known(log: str) -> None:
    assert transports_of(log) == CameUpWith(None, None)
