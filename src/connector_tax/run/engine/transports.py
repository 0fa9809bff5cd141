"""What connectors came up with, read from the engine's log: transports, and the addresses they listen on.

A connector asks for one transport and may get another: vLLM asks Mooncake for ``rdma``, and Mooncake takes TCP where it finds no
adapter, without an error. So only what is logged once it is there counts, and nothing is concluded from what was asked for.
Lines: Mooncake's transfer engine (``transfer_engine_impl.cpp``, ``tcp_transport.cpp``, ``rdma_context.cpp``, ``transfer_engine_py.cpp``,
as of 2026-08), vLLM's MooncakeConnector (0.16 to 0.32) and NIXL 1.5 (``_api.py``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_TRANSPORTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mooncake", re.compile(r"\] installTransport, type=(\w+)")),
    ("mooncake", re.compile(r"\] (Tcp)Transport: listen on port \d+")),
    ("mooncake", re.compile(r"\] RDMA device: (?P<rdma>)\w+, LID")),
    ("mooncake", re.compile(r"\] Using (RDMA|TCP|MACA|NVLink|MUSA|Intra-Node NVLink)(?: host)? transport\b")),
    ("mooncake", re.compile(r"\] (EFA|TCP|CXI|HIP) transport installed\b")),
    ("mooncake", re.compile(r"\] MC_FORCE_TCP is set, using (TCP) transport only")),
    ("nixl", re.compile(r"Backend (\w+) was instantiated")),
)
_SIDE_CHANNELS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mooncake_bootstrap", re.compile(r"Mooncake Bootstrap Server started at (\S+:\d+)")),
    ("mooncake_rpc", re.compile(r"Transfer Engine RPC using [^,]+, listening on (\S+:\d+)")),
    ("mooncake_tcp_port", re.compile(r"TcpTransport: listen on port (\d+)")),
)


# Name -> what was logged, each once and in order.
Logged = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CameUpWith:
    """None where no line tells."""

    transports: Logged | None
    side_channels: Logged | None


def transports_of(log_text: str) -> CameUpWith:
    return CameUpWith(_found(_TRANSPORTS, log_text, str.lower), _found(_SIDE_CHANNELS, log_text, str))


def _found(
    patterns: tuple[tuple[str, re.Pattern[str]], ...], text: str, form: Callable[[str], str]
) -> Logged | None:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        for name, pattern in patterns:
            if match := pattern.search(line):
                value = form(match.group(1) or "") or "rdma"
                if value not in found.setdefault(name, []):
                    found[name].append(value)
    return {name: tuple(values) for name, values in found.items()} or None
