"""Ports of this host: finds free ones, and who listens on those that an engine and its connector need.

Connectors listen on ports beside the API's (``config/connectors.yaml``). A taken port makes vLLM die minutes
into a launch, or hang, so ports are checked before.
"""

import random
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import EngineError
from connector_tax.base.records.connector import ConnectorSpec, SidePort
from connector_tax.base.units import LAST_PORT, is_number
from connector_tax.run.engine.gpus import parallel_sizes

# Ports are shifted by card, so that campaigns on two cards of a host do not collide. They are not random:
# vLLM keys its compile cache with them, so every launch would compile anew.
STRIDE = 100
# Above the connectors' default ports.
FIRST_PORT = 20_000
# First and last port that Linux assigns to connections, and to servers that ask for port 0.
KERNEL_CHOOSES = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOOPBACK = "127.0.0.1"
# A listener at one of these addresses receives what is sent to 127.0.0.1.
ANY = "0.0.0.0"  # nosec B104  # only compared with
TAKES_LOOPBACK = (LOOPBACK, ANY, "::", "::ffff:127.0.0.1", f"::ffff:{ANY}")
# An unused address of this host: only a listener on all IPv4 addresses blocks it.
UNUSED = "127.83.67.84"
PORT_TRIES = 3
PORT_PAUSE_S = 0.2


def free_port() -> int:
    return api_port(0)


def api_port(wanted: int, index: int = 0, n_engines: int = 1) -> int:
    """Return ``wanted``, or for 0 a free port.

    A free port is unprotected until vLLM binds it a minute later. It is therefore drawn from the ports that
    the kernel never assigns by itself.

    Args:
        index: among the ``n_engines`` engines that run side by side, each of which draws from its own ports.

    Raises:
        EngineError: ``wanted`` is in use, or none is free; names the listener if it is visible.
    """
    if wanted:
        if not _is_free(wanted):
            raise EngineError(
                f"engine.port: {wanted} is in use{_listener(wanted)}. End that process, give another port, "
                "or 0 to have a free one taken for each launch."
            )
        return wanted
    candidates = [port for port in _never_assigned() if port % n_engines == index]
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if _is_free(port):
            return port
    raise EngineError(
        f"engine.port: none of {len(candidates):,} ports of {LOOPBACK} is free. Give one as engine.port."
    )


def _never_assigned() -> list[int]:
    """Return the ports from FIRST_PORT on that the kernel never assigns; all if it assigns all."""
    ports = range(FIRST_PORT, LAST_PORT + 1)
    low, high = (int(bound) for bound in KERNEL_CHOOSES.read_text().split())
    return [port for port in ports if not low <= port <= high] or list(ports)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def side_port_environment(connector: ConnectorSpec, slot: int) -> dict[str, str]:
    return {p.env: str(p.port + STRIDE * slot) for p in connector.side_ports} if slot else {}


def first_port(port: SidePort, environment: Mapping[str, str], slot: int) -> int:
    """Return the first of the connector's ports: its variable's value if a number, else the card's default.

    Raises:
        EngineError: it is above the last port.
    """
    setting = environment.get(port.env, "").strip()
    return _checked_port(port, int(setting) if is_number(setting) else port.port + STRIDE * slot)


def _checked_port(side: SidePort, port: int) -> int:
    if port > LAST_PORT:
        raise EngineError(
            f"{side.env}: {side.used_by} would listen on port {port}, and the last one is {LAST_PORT}. Give"
            " a lower one, under engine.env or in the shell."
        )
    return port


def taken_side_port(
    engine: EngineConfig, connector: ConnectorSpec, environment: Mapping[str, str]
) -> str | None:
    """Return a message on the first taken port of the connector, with its listener; None if all are free.

    The embedded engine opens none of them.

    Raises:
        EngineError: a port is above the last one.
    """
    if engine.kind == "emulator":
        return None
    sizes = parallel_sizes(engine)
    ranks = sizes["tensor_parallel_size"] * sizes["data_parallel_size"]
    for side in connector.side_ports:
        lowest = first_port(side, environment, 0)
        for port in range(lowest, lowest + (ranks if side.per == "rank" else 1)) if side.listens else ():
            if is_taken(_checked_port(side, port)):
                return taken_words(connector, side, port)
    return None


def taken_words(connector: ConnectorSpec, side: SidePort, port: int) -> str:
    return (
        f"{connector.id}: port {port} ({side.env}), wanted by {side.used_by}, is in use{_listener(port)}. "
        f"End that process, or set {side.env} to a free port under engine.env."
    )


def is_taken(port: int) -> bool:
    """Return whether anybody listens on ``port`` at any address: some connectors bind them all."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # nosec B104  # never listens
        except OSError:
            return True
        return False


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket of this host.

    Attributes:
        pid: None if this user may not inspect the process.
    """

    address: str
    port: int
    pid: int | None

    @property
    def words(self) -> str:
        if self.pid is None:
            # The kernel hides the sockets of a process with file capabilities even from its own user.
            return (
                "a process of another user (or of this one's interpreter with file capabilities; setcap -r"
                " takes them off it)"
            )
        with suppress(psutil.Error):
            return f"process {self.pid} ({psutil.Process(self.pid).name()})"
        return f"process {self.pid}, which has ended since"


def listeners() -> list[Listener]:
    """Return every listening TCP socket of this network namespace."""
    return [
        Listener(connection.laddr.ip, connection.laddr.port, connection.pid)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
    ]


def listens(port: int, root: int) -> bool:
    listening, pids = listeners(), family(root)
    return any(x.port == port and x.address == LOOPBACK and x.pid in pids for x in listening)


def intruder(port: int, root: int) -> str | None:
    """Return why requests to 127.0.0.1:``port`` may not stay between us and ``root``; else None.

    Checked again before reporting: a process forked between the two listings is in one of them only.
    """
    fault = None
    for _ in range(PORT_TRIES):
        listening, pids = listeners(), family(root)
        fault = next((w for x in listening if x.port == port and (w := _listener_fault(x, pids))), None)
        if fault is None:
            return None
        time.sleep(PORT_PAUSE_S)
    return fault


def _listener_fault(listener: Listener, pids: set[int]) -> str | None:
    is_ours = listener.pid in pids
    # A listener on another address of this host gets none of our requests.
    if not is_ours and _takes_loopback(listener):
        return (
            f"port {listener.port} of {LOOPBACK} is also answered by {listener.words}, which this launch did"
            " not start. End that process, give another engine.port, or 0 to have a free one taken for each"
            " launch."
        )
    if is_ours and listener.address != LOOPBACK:
        return (
            f"the engine listens on {listener.address}:{listener.port} ({listener.words}), and is to listen"
            f" on {LOOPBACK} only: others on the network could use it, and their requests would be measured."
            " Take out what changes its address."
        )
    return None


def _takes_loopback(listener: Listener) -> bool:
    """Return whether a listener gets what is sent to 127.0.0.1.

    The kernel does not show whether a listener at ``::`` takes IPv4 too, but a bind fails if it does.
    """
    if listener.address != "::":
        return listener.address in TAKES_LOOPBACK
    with socket.socket() as probe:
        try:
            probe.bind((UNUSED, listener.port))
        except OSError:
            return True
        return False


def family(root: int) -> set[int]:
    """Return ``root`` and its descendants; empty once it has ended."""
    try:
        return {root, *(process.pid for process in psutil.Process(root).children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()


def _listener(port: int) -> str:
    listener = next((x for x in listeners() if x.port == port and x.pid is not None), None)
    return "" if listener is None else f" by {listener.words}"
