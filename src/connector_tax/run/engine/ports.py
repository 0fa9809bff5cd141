"""Ports of this host: free ones, and who listens on those that an engine and its connector want.

Connectors listen beside the API, on ports of their own; which ones is data of ``config/connectors.yaml``. A
port that is taken lets vLLM die minutes into a launch, or hang, so they are looked at before.
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

# Moved on by card, so that campaigns on two cards of a host do not collide; not drawn afresh, since vLLM keys
# its compile cache with them and every launch would then compile anew.
STRIDE = 100
# Defaults of the connectors' own ports lie below.
FIRST_PORT = 20_000
# The first and the last port of those that Linux gives to connections and to servers that ask for port 0.
KERNEL_CHOOSES = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOOPBACK = "127.0.0.1"
# Addresses at which a listener gets what is sent to 127.0.0.1.
ANY = "0.0.0.0"  # nosec B104  # only compared with
TAKES_LOOPBACK = (LOOPBACK, ANY, "::", "::ffff:127.0.0.1", f"::ffff:{ANY}")
# An address of this host that nobody uses: only a listener at all IPv4 addresses is in its way.
UNUSED = "127.83.67.84"
PORT_TRIES = 3
PORT_PAUSE_S = 0.2


def free_port() -> int:
    """A loopback port that nobody listens on right now."""
    return api_port(0)


def api_port(wanted: int, place: int = 0, of: int = 1) -> int:
    """``wanted``, or a free one for 0.

    A free port is nobody's until it is bound, which takes vLLM a minute. So it is drawn from those that the
    kernel gives to nobody by itself, neither to a connection nor to a server that asks for any.

    Args:
        place: among ``of`` engines that run side by side: each of them draws from ports of its own.

    Raises:
        EngineError: ``wanted`` is in use, or no free one was found; names who listens there if that can be
            seen.
    """
    if wanted:
        if not _is_free(wanted):
            raise EngineError(
                f"engine.port: {wanted} is in use{_listener(wanted)}. End that process, give another port, "
                "or 0 to have a free one taken for each launch."
            )
        return wanted
    own = [port for port in _never_given() if port % of == place]
    for port in random.SystemRandom().sample(own, len(own)):
        if _is_free(port):
            return port
    raise EngineError(
        f"engine.port: none of {len(own):,} ports of {LOOPBACK} is free. Give one as engine.port."
    )


def _never_given() -> list[int]:
    """Ports above those of well-known services that the kernel does not choose; all of them where it chooses
    from all."""
    ports = range(FIRST_PORT, LAST_PORT + 1)
    low, high = (int(end) for end in KERNEL_CHOOSES.read_text().split())
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
    """The variables that move the connector's ports on for card ``slot``; none for the first, which has
    vLLM's defaults."""
    return {p.env: str(p.port + STRIDE * slot) for p in connector.side_ports} if slot else {}


def first_port(port: SidePort, environment: Mapping[str, str], slot: int) -> int:
    """Where the connector starts to count: the variable's value where it is a number, else its default for
    this card.

    Raises:
        EngineError: it is above the last port there is.
    """
    value = environment.get(port.env, "").strip()
    return _port(port, int(value) if is_number(value) else port.port + STRIDE * slot)


def _port(side: SidePort, number: int) -> int:
    if number > LAST_PORT:
        raise EngineError(
            f"{side.env}: {side.used_by} would listen on port {number}, and the last one is {LAST_PORT}. Give"
            " a lower one, under engine.env or in the shell."
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


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket of this host.

    Attributes:
        pid: None for a process that this user may not look into.
    """

    address: str
    port: int
    pid: int | None

    @property
    def words(self) -> str:
        """Who it is, as far as can be seen."""
        if self.pid is None:
            # The kernel hides the sockets of a process with file capabilities from its own user, too.
            return (
                "a process of another user (or of this one's interpreter with file capabilities; setcap -r"
                " takes them off it)"
            )
        with suppress(psutil.Error):
            return f"process {self.pid} ({psutil.Process(self.pid).name()})"
        return f"process {self.pid}, which has ended since"


def listeners() -> list[Listener]:
    """Every listening TCP socket of this host, or of this container's network."""
    return [
        Listener(c.laddr.ip, c.laddr.port, c.pid)
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr
    ]


def listens(port: int, root: int) -> bool:
    """Whether ``root`` or a descendant of it listens on 127.0.0.1:``port``."""
    there, ours = listeners(), family(root)
    return any(x.port == port and x.address == LOOPBACK and x.pid in ours for x in there)


def intruder(port: int, root: int) -> str | None:
    """Why requests to 127.0.0.1:``port`` need not reach ``root`` or a descendant, or others' do; None where
    all is well.

    Looked at again before it is said: a process that was forked between the two lists is in one of them only.
    """
    found = None
    for _ in range(PORT_TRIES):
        there, ours = listeners(), family(root)
        found = next((w for x in there if x.port == port and (w := _wrong(x, ours))), None)
        if found is None:
            return None
        time.sleep(PORT_PAUSE_S)
    return found


def _wrong(listener: Listener, launch: set[int]) -> str | None:
    ours = listener.pid in launch
    # Somebody else on another address of this host gets none of our requests.
    if not ours and _takes_loopback(listener):
        return (
            f"port {listener.port} of {LOOPBACK} is also answered by {listener.words}, which this launch did"
            " not start. End that process, give another engine.port, or 0 to have a free one taken for each"
            " launch."
        )
    if ours and listener.address != LOOPBACK:
        return (
            f"the engine listens on {listener.address}:{listener.port} ({listener.words}), and is to listen"
            f" on {LOOPBACK} only: others on the network could use it, and their requests would be measured."
            " Take out what changes its address."
        )
    return None


def _takes_loopback(listener: Listener) -> bool:
    """The kernel does not list whether a listener at ``::`` takes IPv4 as well; it is in the way of a bind
    where it does."""
    if listener.address != "::":
        return listener.address in TAKES_LOOPBACK
    with socket.socket() as probe:
        try:
            probe.bind((UNUSED, listener.port))
        except OSError:
            return True
        return False


def family(root: int) -> set[int]:
    """``root`` and its descendants; nobody where it has ended."""
    try:
        return {root, *(p.pid for p in psutil.Process(root).children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()


def _listener(port: int) -> str:
    found = next((x for x in listeners() if x.port == port and x.pid is not None), None)
    return "" if found is None else f" by {found.words}"
