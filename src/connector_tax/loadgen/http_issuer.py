"""Sends requests over a pool of keep-alive connections, all on one event loop.

The most recently used idle connection is taken first, so the pool is as large as the load needs. A few
spare ones are always open: opening one takes half a millisecond, which a request would be late by. A
kept-alive connection that the server closed while it was idle is no failure of a request: one that was
written to such a connection goes out again on a fresh one, if the close came so soon that the server cannot
have seen it, and its record counts that. Later than that the server may have worked on it: asking twice
would double the load and hide the failure.
"""

import asyncio
import errno
from collections.abc import Callable
from time import monotonic_ns

from connector_tax.loadgen.connection import Connection
from connector_tax.loadgen.events import SILENT, SampleEventHandler
from connector_tax.loadgen.issuer import NO_SOCKET, Flight, SampleIssuer
from connector_tax.records.request import Status

# The client's own want of descriptors, ports or memory; the server had no part in it.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
# From a request to the end of its connection, where the two crossed: on loopback some 0.1 ms, and as long as a host with busy cores lets this process wait.
RESEND_WITHIN_NS = 10_000_000
# For each request that took one: a server that closes what it accepts is not asked in a storm.
SPARES_AT_ONCE = 2


class HttpIssuer(SampleIssuer):
    """OpenAI-compatible HTTP over loopback or a network, one flight per connection at a time."""

    def __init__(
        self,
        host: str,
        port: int,
        events: SampleEventHandler = SILENT,
        *,
        collect_ids: bool = False,
        spare_connections: int = 8,
    ) -> None:
        self._host = host
        self._port = port
        self.events = events
        self.collect_ids = collect_ids
        self._spare_connections = spare_connections
        self._opening: asyncio.Task[None] | None = None
        # As a stack, out of which one that dies can be taken.
        self._idle: dict[Connection, None] = {}
        self._open: set[Connection] = set()
        self._connecting: dict[asyncio.Task[None], Flight] = {}
        self._on_end: Callable[[Flight], None] = _not_started

    async def start(self, on_end: Callable[[Flight], None]) -> None:
        """Open a few connections, so that the first requests do not pay for it.

        A server that refuses them is not refused here: its requests will say so one by one.
        """
        self._on_end = on_end
        await self._open_spares(self._spare_connections)

    def issue(self, flight: Flight, payload: bytes) -> None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable:
                connection.send(flight, payload)
                break
        else:
            self._issue_on_new(flight, payload)
        if len(self._idle) < self._spare_connections and self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_spares(SPARES_AT_ONCE))
            self._opening.add_done_callback(self._opened)

    def abandon(self, status: Status, reason: str) -> None:
        now_ns = monotonic_ns()
        for task, flight in list(self._connecting.items()):
            task.cancel()
            self._report(flight, status, reason, now_ns)
        self._connecting.clear()
        for connection in list(self._open):
            abandoned = connection.take_flight()
            connection.close()
            if abandoned is not None:
                self._report(abandoned, status, reason, now_ns)

    def shutdown(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        for connection in list(self._open):
            connection.close()
        self._idle.clear()

    # Called by connections.

    def flight_ended(self, connection: Connection, flight: Flight) -> None:
        if connection.usable:
            self._idle[connection] = None
        self._end(flight)

    def connection_lost(self, connection: Connection, flight: Flight | None, untouched: bool) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        if flight is None:
            return
        now_ns = monotonic_ns()
        waited_ns = now_ns - (flight.t_send_ns or now_ns)
        if untouched and connection.flights > 1 and waited_ns <= RESEND_WITHIN_NS:
            flight.resends += 1
            self._issue_on_new(flight, connection.payload)
            return
        error = f"connection closed before any answer, {waited_ns / 1e6:.1f} ms after the request"
        self._report(flight, "truncated", error, now_ns)

    async def _open_spares(self, most: int) -> None:
        """Tries are counted, not what is open: a server may close each at once, and would be asked without end."""
        for _ in range(min(most, self._spare_connections - len(self._idle))):
            try:
                connection = await self._connect()
            except OSError:
                return  # the request that needs one will say so
            self._idle[connection] = None

    def _opened(self, task: "asyncio.Task[None]") -> None:
        self._opening = None

    def _issue_on_new(self, flight: Flight, payload: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._connect_and_send(flight, payload))
        self._connecting[task] = flight
        task.add_done_callback(_raise)

    async def _connect_and_send(self, flight: Flight, payload: bytes) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            connection = await self._connect()
        except OSError as error:
            # In the same step as the end of the flight: whoever abandons looks here for what has not ended.
            if self._connecting.pop(task, None) is not None:
                self._report(flight, *_refusal(error), monotonic_ns())
            return
        if self._connecting.pop(task, None) is None:
            connection.close()
            return
        connection.send(flight, payload)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self), self._host, self._port)
        self._open.add(connection)
        return connection

    def _report(self, flight: Flight, status: Status, error: str, now_ns: int) -> None:
        flight.status = status
        flight.error = error
        flight.t_end_ns = now_ns
        self._end(flight)

    def _end(self, flight: Flight) -> None:
        if self.events.complete is not None:
            self.events.complete(flight, flight.t_end_ns or 0)
        self._on_end(flight)


def _refusal(error: OSError) -> tuple[Status, str]:
    """Whose fault it is that no connection could be opened, and in what words."""
    if error.errno in EXHAUSTED:
        return "aborted", f"{NO_SOCKET}: {error}"
    return "connect_error", str(error)


def _raise(task: "asyncio.Task[None]") -> None:
    """To the loop's exception handler at once; asyncio itself would speak of it when the task is collected."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _not_started(flight: Flight) -> None:
    raise AssertionError(f"issued before start: {flight}")
