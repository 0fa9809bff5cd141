"""Sends requests over a pool of keep-alive connections, all on one event loop.

The most recently used idle connection is taken first, so the pool grows only as the load needs. A few spares
stay open, since opening one delays a request by half a millisecond.

A keep-alive connection that the server closed while idle is no request's failure. None is used once its
close has arrived, and a request that crossed the close is sent again on a new one, which its record
counts. That requires the kernel's word that the server had received no byte of it: on Linux, without
TLS, after an orderly close. Otherwise the server may have processed it, and a repetition would double
the load and hide the failure.
"""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from time import monotonic_ns

from connector_tax.base.records.request import Status
from connector_tax.base.records.target import RequestForm, Target
from connector_tax.base.tls import tls_context
from connector_tax.base.units import s_to_ns
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.issuer import (
    AWAY_NS,
    NO_SOCKET,
    PERIOD_NS,
    SILENT,
    TURN_S,
    Flight,
    SampleEventHandler,
    SampleIssuer,
)

# The client's own lack of descriptors, ports or memory, not the server's fault.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
# Spares opened per request that took one; avoids storming a server that closes what it accepts.
SPARES_AT_ONCE = 2
# Limit on opening the first connections; a server that accepts none must not hold up a cell.
FIRST_WITHIN_S = 5.0
# Shortest interval between checks for timed-out requests.
TIMEOUT_GRAIN_S = 0.05
# The longest stall that may go unnoticed: data arrived at most this long before it was read.
UNSEEN_NS = PERIOD_NS + AWAY_NS
# Limit on turns for sockets that still hold long answers received during a stall.
MOST_TURNS = 100
# Time for the end of a message after a complete answer; otherwise its connection is lost to the pool.
FINISH_WITHIN_S = 0.25


@dataclass(frozen=True, slots=True)
class _Undecided:
    """An answer that was read late.

    Attributes:
        back: this process was stalled until then.
        usable: the connection was usable for another flight.
    """

    connection: Connection
    flight: Flight
    last_came_ns: int
    back: bool
    usable: bool


class HttpIssuer(SampleIssuer):
    """OpenAI-compatible HTTP over loopback or a network, one flight per connection at a time."""

    def __init__(
        self,
        target: Target,
        form: RequestForm,
        events: SampleEventHandler = SILENT,
        *,
        spare_connections: int = 8,
        first_connections: int = 0,
        is_back: Callable[[int], bool] = lambda now_ns: False,
    ) -> None:
        """
        Args:
            spare_connections: idle connections kept open beyond those that the load has opened.
            first_connections: idle connections at the start, if more.
            is_back: whether this process was stalled until now, so that data read now arrived earlier.
        """
        self._named = self._address = (target.host, target.port)
        self._tls = tls_context(target)
        # The name that the certificate must have, even if the address is resolved already.
        self._server_name = target.host if target.tls else None
        self.stream = form.stream
        self._timeout_s = form.timeout_s
        self._unfinished = f"unfinished {form.timeout_s or 0:g} s after it was sent"
        # By ``seq``, in order of time-out; for connections, in order of their message's limit.
        self._timed: dict[int, tuple[int, Flight]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._finishing: dict[Connection, int] = {}
        # By ``seq``, for one turn of the loop.
        self._undecided: dict[int, _Undecided] = {}
        self._finish: asyncio.TimerHandle | None = None
        self.events = events
        self._is_back = is_back
        self._spare_connections = spare_connections
        self._first_connections = max(first_connections, spare_connections)
        self._opening: asyncio.Task[None] | None = None
        # Used as a stack from which dead connections can be removed.
        self._idle: dict[Connection, None] = {}
        self._open: set[Connection] = set()
        self._connecting: dict[asyncio.Task[None], Flight] = {}
        self._on_end: Callable[[Flight], None] = _not_started

    async def start(self, on_end: Callable[[Flight], None]) -> None:
        """Open a few connections, so that the first requests need not.

        A server that refuses them is tolerated here: its requests will report that.
        """
        self._on_end = on_end
        opening = self._open_spares(self._first_connections, self._first_connections)
        with suppress(TimeoutError):
            await asyncio.wait_for(opening, FIRST_WITHIN_S)

    def issue(self, flight: Flight, payload: bytes) -> None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable and not connection.is_left:
                connection.send(flight, payload)
                break
        else:
            self._issue_on_new(flight, payload)
        if self._timeout_s is not None:
            self._timed[flight.seq] = (monotonic_ns() + s_to_ns(self._timeout_s), flight)
            if self._expiry is None:
                self._expire_in(self._timeout_s)
        if len(self._idle) < self._spare_connections and self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(
                self._open_spares(SPARES_AT_ONCE, self._spare_connections)
            )
            self._opening.add_done_callback(self._opened)

    def abandon(self, status: Status, reason: str) -> None:
        now_ns = monotonic_ns()
        for task, flight in list(self._connecting.items()):
            task.cancel()
            self._report(flight, status, reason, now_ns)
        self._connecting.clear()
        for seq in list(self._undecided):
            self._decide(seq)
        for connection in list(self._open):
            abandoned = connection.take_flight()
            connection.close()
            if abandoned is not None:
                self._report(abandoned, status, reason, now_ns)

    def shutdown(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._finish is not None:
            self._finish.cancel()
        self._timed.clear()
        for connection in list(self._open):
            connection.close()
        self._idle.clear()

    def flight_ended(self, connection: Connection, flight: Flight) -> None:
        end_ns = flight.t_end_ns or 0
        timed = self._timed.get(flight.seq)
        back = self._is_back(end_ns)
        undecided = back or (timed is not None and end_ns > timed[0])
        if undecided:
            # Its arrival is queried now; what else arrived with it is known in the next turn of the loop.
            self._undecided[flight.seq] = _Undecided(
                connection, flight, connection.last_came_ns(), back, connection.usable
            )
            asyncio.get_running_loop().call_soon(self._decide, flight.seq)
        elif connection.usable:
            self._put_by(connection)
        if connection.finishing:
            self._finishing[connection] = monotonic_ns() + s_to_ns(FINISH_WITHIN_S)
            if self._finish is None:
                self._finish_in(FINISH_WITHIN_S)
        if not undecided:
            self._end(flight)

    def _decide(self, seq: int) -> None:
        """Decide whether an answer read after its time-out had arrived in time at a stalled process.

        The kernel reports when data last arrived, which says nothing about the answer if more data followed.
        An answer found after a stall is only known to have arrived after it was requested, so it counts.
        """
        if (undecided := self._undecided.pop(seq, None)) is None:
            return
        connection, flight = undecided.connection, undecided.flight
        came_ns = 0 if connection.has_beyond else undecided.last_came_ns
        if not came_ns:
            came_ns = (flight.t_send_ns or 0) if undecided.back else (flight.t_end_ns or 0) - UNSEEN_NS
        if undecided.back:
            flight.came_ns = came_ns
        timed = self._timed.get(seq)
        if timed is not None and (flight.t_end_ns or 0) > timed[0] and came_ns > timed[0]:
            flight.status, flight.error = "timeout", self._unfinished
        if undecided.usable and connection.usable:
            self._put_by(connection)
        self._end(flight)

    def connection_free(self, connection: Connection) -> None:
        self._finishing.pop(connection, None)
        if connection.usable and connection in self._open:
            self._put_by(connection)

    def _put_by(self, connection: Connection) -> None:
        connection.was_idle = True
        self._idle[connection] = None

    def connection_lost(self, connection: Connection, flight: Flight | None) -> None:
        """Send the flight again, or report it.

        Args:
            flight: on the connection, with no byte of its answer received.
        """
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._finishing.pop(connection, None)
        if flight is None:
            return
        now_ns = monotonic_ns()
        waited_ns = now_ns - (flight.t_send_ns or now_ns)
        if connection.was_idle and connection.was_missed:
            flight.resends += 1
            self._issue_on_new(flight, connection.payload)
            return
        error = f"connection closed before any answer, {waited_ns / 1e6:.1f} ms after the request"
        self._report(flight, "truncated", error, now_ns)

    async def _open_spares(self, max_new: int, target_idle: int) -> None:
        """Open spares, counting attempts: a server that closes each at once would be asked endlessly."""
        for _ in range(min(max_new, target_idle - len(self._idle))):
            try:
                connection = await self._connect()
            except OSError:
                return  # the request that needs one will report it
            self._put_by(connection)

    def _expire_in(self, seconds: float) -> None:
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        """Check for time-outs; after a stall, read the sockets first, since answers arrived meanwhile."""
        turns = MOST_TURNS if self._is_back(monotonic_ns()) else 1
        self._expiry = asyncio.get_running_loop().call_later(TURN_S, self._give_up, monotonic_ns(), turns)

    def _give_up(self, over_ns: int, turns: int) -> None:
        """Time out the requests due at ``over_ns``, and schedule the next check.

        Args:
            turns: remaining turns for answers of which a part is still unread; long ones take several.
        """
        self._expiry = None
        now_ns = monotonic_ns()
        overdue = [flight for _, flight in takewhile(lambda timed: timed[0] <= over_ns, self._timed.values())]
        if turns > 1 and any(f.carrier is not None and f.carrier.has_unread for f in overdue):
            self._expiry = asyncio.get_running_loop().call_later(TURN_S, self._give_up, over_ns, turns - 1)
            return
        for flight in overdue:
            if flight.status is None:  # the end of one may have ended all
                self._time_out(flight, now_ns)
        if self._timed:
            first_ns, _ = next(iter(self._timed.values()))
            self._expire_in(max((first_ns - now_ns) / 1e9, TIMEOUT_GRAIN_S))

    def _time_out(self, flight: Flight, now_ns: int) -> None:
        if flight.carrier is not None:
            carrier = flight.carrier
            carrier.take_flight()
            carrier.close()
        else:
            task = next(task for task, connecting in self._connecting.items() if connecting is flight)
            del self._connecting[task]
            task.cancel()
        self._report(flight, "timeout", self._unfinished, now_ns)

    def _finish_in(self, seconds: float) -> None:
        self._finish = asyncio.get_running_loop().call_later(seconds, self._finished)

    def _finished(self) -> None:
        """Close the connections whose message did not end in time."""
        self._finish = None
        now_ns = monotonic_ns()
        for connection, _ in list(takewhile(lambda late: late[1] <= now_ns, self._finishing.items())):
            del self._finishing[connection]
            connection.close()
        if self._finishing:
            self._finish_in(FINISH_WITHIN_S)

    def _opened(self, task: "asyncio.Task[None]") -> None:
        self._opening = None

    def _issue_on_new(self, flight: Flight, payload: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._connect_and_send(flight, payload))
        self._connecting[task] = flight
        task.add_done_callback(_raise)

    async def _connect_and_send(self, flight: Flight, payload: bytes) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            # In the same step as the flight's end, since ``abandon`` looks here for unfinished flights.
            if self._connecting.pop(_own_task(), None) is not None:
                self._report(flight, *_refusal(error), monotonic_ns())
            return
        if self._connecting.pop(_own_task(), None) is None:
            connection.close()
            return
        connection.send(flight, payload)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        host, port = self._address
        try:
            transport, connection = await loop.create_connection(
                lambda: Connection(self), host, port, ssl=self._tls, server_hostname=self._server_name
            )
        except OSError as error:
            # Another address of the name may answer; without free files, a look-up would fail too.
            if error.errno not in EXHAUSTED:
                self._address = self._named
            raise
        # Resolve a name once: each look-up takes a thread and a round trip. A peer that is gone has no name.
        peer = transport.get_extra_info("peername")
        self._address = peer[:2] if peer else self._named
        self._open.add(connection)
        return connection

    def _report(self, flight: Flight, status: Status, error: str, now_ns: int) -> None:
        flight.status = status
        flight.error = error
        flight.t_end_ns = now_ns
        self._end(flight)

    def _end(self, flight: Flight) -> None:
        self._timed.pop(flight.seq, None)
        if self.events.complete is not None:
            self.events.complete(flight, flight.t_end_ns or 0)
        self._on_end(flight)


def _refusal(error: OSError) -> tuple[Status, str]:
    """Return status and error for a failed connect, by whose fault it is: the client's or the server's."""
    if error.errno in EXHAUSTED:
        return "aborted", f"{NO_SOCKET}: {error}"
    return "connect_error", str(error)


def _own_task() -> "asyncio.Task[None]":
    """Return the current task.

    Called where needed: a cancelled frame that keeps its own task forms a cycle, with its payload.
    """
    task = asyncio.current_task()
    assert task is not None
    return task


def _raise(task: "asyncio.Task[None]") -> None:
    """Raise in the loop's exception handler now; asyncio would report it only on collection."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _not_started(flight: Flight) -> None:
    raise AssertionError(f"issued before start: {flight}")
