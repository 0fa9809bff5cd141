"""Ports of this host: free ones, and who listens on those that an engine and its connector want.

Connectors listen beside the API, on ports of their own; which ones is data of ``config/connectors.yaml``. A port that is taken
lets vLLM die minutes into a launch, or hang, so they are looked at before.
"""

import socket
from collections.abc import Mapping

import psutil

from connector_tax.config import EngineConfig
from connector_tax.engine.gpus import parallel_sizes
from connector_tax.errors import EngineError
from connector_tax.records.connector import ConnectorSpec, SidePort
from connector_tax.units import is_number

# Moved on by card, so that campaigns on two cards of a host do not collide; not drawn afresh, since vLLM keys its
# compile cache with them and every launch would then compile anew.
STRIDE = 100
LAST_PORT = 65535


def free_port() -> int:
    """A loopback port that nobody listens on right now."""
    return api_port(0)


def api_port(wanted: int) -> int:
    """``wanted``, or a free one for 0.

    Raises:
        EngineError: ``wanted`` is in use; names who listens there if that can be seen.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise EngineError(
                f"engine.port: {wanted} is in use{_listener(wanted)}. End that process, give another port, "
                "or 0 to have a free one taken for each launch."
            ) from error
        return int(probe.getsockname()[1])


def side_port_environment(connector: ConnectorSpec, slot: int) -> dict[str, str]:
    """The variables that move the connector's ports on for card ``slot``; none for the first, which has vLLM's defaults."""
    return {p.env: str(p.port + STRIDE * slot) for p in connector.side_ports} if slot else {}


def first_port(port: SidePort, environment: Mapping[str, str], slot: int) -> int:
    """Where the connector starts to count: the variable's value where it is a number, else its default for this card.

    Raises:
        EngineError: it is above the last port there is.
    """
    value = environment.get(port.env, "").strip()
    return _port(port, int(value) if is_number(value) else port.port + STRIDE * slot)


def _port(side: SidePort, number: int) -> int:
    if number > LAST_PORT:
        raise EngineError(
            f"{side.env}: {side.used_by} would listen on port {number}, and the last one is {LAST_PORT}. Give a lower one, under "
            "engine.env or in the shell."
        )
    return number


def taken_side_port(
    engine: EngineConfig, connector: ConnectorSpec, environment: Mapping[str, str]
) -> str | None:
    """The first of the connector's ports that somebody listens on, with who that is; None where all are free.

    The embedded engine opens none of them.

    Raises:
        EngineError: one is above the last port there is.
    """
    if engine.kind == "emulator":
        return None
    sizes = parallel_sizes(engine)
    ranks = sizes["tensor_parallel_size"] * sizes["data_parallel_size"]
    for side in connector.side_ports:
        first = first_port(side, environment, 0)
        for port in range(first, first + (ranks if side.per == "rank" else 1)) if side.listens else ():
            if is_taken(_port(side, port)):
                return taken_words(connector, side, port)
    return None


def taken_words(connector: ConnectorSpec, side: SidePort, port: int) -> str:
    return (
        f"{connector.id}: port {port} ({side.env}), wanted by {side.used_by}, is in use{_listener(port)}. "
        f"End that process, or set {side.env} to a free port under engine.env."
    )


def is_taken(port: int) -> bool:
    """Whether anybody listens on ``port``, on any address: some connectors bind them all."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # nosec B104  # never listens
        except OSError:
            return True
        return False


def _listener(port: int) -> str:
    for connection in psutil.net_connections("tcp"):
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
            and connection.pid
        ):
            return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""
