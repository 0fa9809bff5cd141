"""One keep-alive connection, which stamps bytes before it parses them.

``t_first_token`` and ``t_last_token`` are the time at the top of ``data_received``, when the loop handed over
the bytes, so they include neither our parsing nor our queueing.
"""

import asyncio
import fcntl
import select
import socket
import struct
import sys
import termios
from time import monotonic_ns
from typing import Protocol, cast

import httptools

from connector_tax.base.records.request import Status
from connector_tax.base.secrets import excerpt
from connector_tax.run.loadgen.issuer import SILENT, Flight, SampleEventHandler
from connector_tax.run.loadgen.sse import MAX_SAID, EventScanner, MalformedStream, read_completion, said

# An ended answer -> status of its flight, error text, and the server's token counts.

MAX_ERROR_CHARS = 2000
# Limit for an answer in one piece; stops a server that sends without end.
MAX_WHOLE = 1 << 26
# Codings of an uncompressed body.
PLAIN_CODINGS = frozenset({b"", b"identity", b"chunked"})
# Endings that leave part of the answer in the socket.
UNFINISHED = frozenset({"malformed", "truncated", "stream_error"})

Ending = tuple[Status, str | None]


def coding_not_asked_for(value: bytes) -> str:
    """Return the compression that a header value names; empty if none."""
    codings = {coding.strip() for coding in value.lower().split(b",")}
    return b", ".join(sorted(codings - PLAIN_CODINGS)).decode("latin-1")


def end_of_error(status_code: int, body: bytes) -> Ending:
    return "http_error", f"HTTP {status_code}: {excerpt(body, MAX_ERROR_CHARS)}"


def end_of_no_stream(body: bytes) -> Ending:
    """Return the ending of an answer in one piece that should have been a stream."""
    return "malformed", f"not an event stream: {excerpt(body, 200)}"


def end_of_whole(flight: Flight, body: bytes, now_ns: int, coding: str, disconnect: str | None) -> Ending:
    """Return the ending of an answer in one piece, which has a last token but no known first one.

    Args:
        coding: its compression; empty if none.
        disconnect: how the connection ended the answer, if it did.
    """
    if coding:
        return _compressed(coding)
    try:
        completion = read_completion(body)
        ids = completion.ids(body) if flight.output_ids is not None else None
    except MalformedStream as error:
        truncated = disconnect is not None and error.status == "malformed"
        return ("truncated", disconnect) if truncated else (error.status, str(error))
    if not completion.choices:
        return "malformed", f"an answer without choices: {said(body)}"
    flight.t_last_token_ns = now_ns
    return _end_with_counts(flight, completion.counts, ids, seen=True)


def end_of_stream(flight: Flight, scanner: EventScanner, coding: str, disconnect: str | None) -> Ending:
    """Return the ending of a stream; arguments as in ``end_of_whole``."""
    if coding:
        return _compressed(coding)
    scanner.finish()
    if not scanner.done:
        return "truncated", disconnect or "the stream ended without [DONE]"
    return _end_with_counts(flight, scanner.counts, scanner.output_ids, seen=bool(scanner.times))


def _compressed(coding: str) -> Ending:
    return "malformed", f"the answer is compressed ({coding}), which was not asked for"


def _end_with_counts(
    flight: Flight, counts: tuple[int, int] | None, output_ids: list[int] | None, *, seen: bool
) -> Ending:
    """Record the server's token counts and return the ending.

    Args:
        counts: prompt and completion tokens from ``usage``.
        output_ids: collected token ids, if the workload needs them.
        seen: whether any token was.
    """
    if counts is None:
        return "malformed", "no usage in the answer that counts prompt_tokens and completion_tokens"
    flight.prompt_tokens, flight.completion_tokens = counts
    if flight.completion_tokens and not seen:
        return "malformed", f"{flight.completion_tokens} tokens of usage, and none of them in the stream"
    if output_ids is not None:
        flight.output_ids = output_ids
        if len(output_ids) != flight.completion_tokens:
            return "malformed", (
                f"{len(output_ids)} token ids for {flight.completion_tokens} tokens; conversations need a "
                "server that honours return_token_ids (vLLM 0.10.2 or newer)"
            )
    return "ok", None


# Kernel facts that the reader lacks: whether the peer closed, what it received, when data last arrived.

# Other kernels have other interfaces; there none of this is known.
TELLS = sys.platform == "linux"
HANG_UP = select.POLLRDHUP if TELLS else 0
# Offset of ``tcpi_last_data_recv`` in ``struct tcp_info`` (linux/tcp.h): 8 bytes and eleven 32-bit numbers.
LAST_DATA_AT = 8 + 11 * 4
# One tick of the slowest kernel clock (100 Hz), which counts that age.
TICK_NS = 10_000_000


def untaken_bytes(transport: asyncio.Transport) -> int:
    """Return how many written bytes the server's host had not acknowledged when it closed in order.

    An orderly close acknowledges everything received. 0 for TLS, where it is unknown: TLS may have closed
    long before the connection ends.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return 0
    plain = transport.get_extra_info("socket")
    (unacknowledged_bytes,) = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(unacknowledged_bytes) + transport.get_write_buffer_size()


def has_unread(transport: asyncio.Transport) -> bool:
    """Return whether the socket holds unread bytes."""
    plain = transport.get_extra_info("socket")
    if not TELLS or plain is None:
        return False
    (unread,) = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.FIONREAD, bytes(4)))
    return int(unread) > 0


def last_data_ns(transport: asyncio.Transport, now_ns: int) -> int:
    """Return the earliest possible arrival of the last data, whenever it was read; 0 if unknown."""
    plain = transport.get_extra_info("socket")
    if not TELLS or plain is None:
        return 0
    tcp_info = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA_AT + 4)
    if len(tcp_info) < LAST_DATA_AT + 4:
        return 0
    (age_ms,) = struct.unpack_from("I", tcp_info, LAST_DATA_AT)
    return now_ns - int(age_ms) * 1_000_000 - TICK_NS


# Limits of an unfinished head, trailer or error page, and of a whole answer, against endless streams.
MOST_HEAD_BYTES = 1 << 21
MOST_ANSWER_BYTES = 1 << 28
# After a read of this length other connections are served: uvloop reads 256,000 bytes at
# once, up to 32 times in a row.
LONG_READ = 1 << 17
# Answers that another one follows; after 101 another protocol follows.
INTERIM = frozenset({*range(100, 200)} - {101})


class Owner(Protocol):
    """The pool that a connection reports to."""

    events: SampleEventHandler
    stream: bool

    def flight_ended(self, connection: "Connection", flight: Flight) -> None: ...

    def connection_free(self, connection: "Connection") -> None: ...

    def connection_lost(self, connection: "Connection", flight: Flight | None) -> None: ...


class Connection(asyncio.Protocol):
    """Carries one flight at a time."""

    # No __dict__: its look-ups are slow in a cold cache.
    __slots__ = (
        "__weakref__",
        "_answer_bytes",
        "_answered",
        "_beyond",
        "_bodies",
        "_body",
        "_coding",
        "_event_stream",
        "_flight",
        "_hang_up",
        "_hears_events",
        "_in_head",
        "_is_tls",
        "_last_data_ns",
        "_now_ns",
        "_owner",
        "_parser",
        "_scanner",
        "_status_code",
        "_transport",
        "_untold_bytes",
        "finishing",
        "on_body",
        "payload",
        "was_idle",
        "was_missed",
    )

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._flight: Flight | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._hears_events = owner.events is not SILENT
        self._bodies: list[bytes] = []
        # Called by httptools for each chunk; a method of our own would take longer than all the rest.
        self.on_body = self._bodies.append
        self._event_stream = False
        self._now_ns = 0
        self._in_head = False
        # The answer is complete, but the end of its message is still to come.
        self.finishing = False
        # It was opened as a spare or has carried a flight: the server may be closing it
        # while the next is written.
        self.was_idle = False
        self._is_tls = False
        self._hang_up = select.poll()
        # Of the current or last flight, in case it must be sent again.
        self.payload = b""
        self._forget()

    def _forget(self, *, collect_ids: bool = False) -> None:
        """Reset the state of the previous answer."""
        self._scanner = EventScanner(collect_ids=collect_ids)
        self._body = b""
        self._bodies.clear()
        self._answered = False
        self._status_code = 0
        self._coding = ""
        # Bytes since the parser last reported something, and of the whole answer.
        self._untold_bytes = self._answer_bytes = 0
        # The server closed in order without having received any byte of the request, so it
        # cannot have processed it.
        self.was_missed = False
        # Data arrived after the end of the message.
        self._beyond = False
        # Earliest arrival of the last data, once determined; 0 if unknown.
        self._last_data_ns: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        plain = transport.get_extra_info("socket")
        if TELLS and plain is not None:
            self._hang_up.register(plain.fileno(), HANG_UP)

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and not self.finishing

    @property
    def is_left(self) -> bool:
        """Return whether the server has closed, although this process has not read that yet."""
        return bool(self._hang_up.poll(0))

    @property
    def has_unread(self) -> bool:
        """Return whether the socket holds more of an answer."""
        return self._transport is not None and has_unread(self._transport)

    @property
    def has_beyond(self) -> bool:
        """Return whether more arrived than the last message: another answer, or TLS's closing data."""
        if self._beyond or self._flight is not None or self.finishing:
            return self._beyond
        if self._transport is None or self._transport.is_closing():
            return self._is_tls
        return self.has_unread

    def last_came_ns(self) -> int:
        """Return the earliest arrival of the last data, which may lie beyond the answer; 0 if unknown."""
        if self._last_data_ns is None and self._transport is not None:
            self._last_data_ns = last_data_ns(self._transport, monotonic_ns())
        return self._last_data_ns or 0

    def send(self, flight: Flight, payload: bytes) -> None:
        """Write one request; the time stamp is taken just before."""
        assert self._transport is not None
        now_ns = monotonic_ns()
        if flight.t_send_ns is None:
            flight.t_send_ns = now_ns
        self._transport.write(payload)
        # After the write, to keep it early: no byte of the answer can arrive before the loop's next turn.
        self._flight = flight
        flight.carrier = self
        self.payload = payload
        self._parser = httptools.HttpResponseParser(self)
        self._forget(collect_ids=flight.output_ids is not None)
        if self._owner.events.issued is not None:
            self._owner.events.issued(flight, now_ns)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def take_flight(self) -> Flight | None:
        """Detach the flight, with its token times so far, without reporting it."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.carrier = None
            if times := self._scanner.token_times():
                flight.t_first_token_ns, flight.t_last_token_ns = times[0], times[-1]
                if flight.token_ns is not None:
                    flight.token_ns = times
        return flight

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._now_ns = monotonic_ns()
        if self._flight is None and not self.finishing:
            self._beyond = True
            self.close()  # unsolicited data
            return
        self._answered = True
        self._untold_bytes += len(data)
        self._answer_bytes += len(data)
        assert self._parser is not None
        not_http = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # Our own error, not the server's: the loop's handler ends the cell and names it.
            raise error.__context__ or error from None
        except httptools.HttpParserUpgrade:
            not_http = "the server goes on in another protocol"
        except httptools.HttpParserError as error:
            not_http = f"not HTTP: {error}"
        # Also bodies before invalid HTTP: split differently, they would have been read.
        self._take_bodies()
        if self._scanner.done and self._flight is not None:
            # The answer is complete; the end of the message may come late or never.
            self.finishing = True
            self._note_completed(self._flight)
            self._end_answer()
        if not_http:
            self._beyond = self._flight is None
            self._end("malformed", not_http)
            self.close()  # also if the flight had ended: what remains is no answer to the next one
            return
        if self._answer_bytes > MOST_HEAD_BYTES:
            self._check_size()
        if len(data) >= LONG_READ and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _check_size(self) -> None:
        if self._untold_bytes > MOST_HEAD_BYTES:
            self._end("malformed", f"a head or trailer without an end after {MOST_HEAD_BYTES >> 20} MiB")
        elif self._status_code not in (0, 200) and self._answer_bytes > MOST_HEAD_BYTES:
            self._end_answer()
        elif self._answer_bytes > MOST_ANSWER_BYTES:
            self._end("malformed", f"an answer without an end after {MOST_ANSWER_BYTES >> 20} MiB")
        else:
            return
        self.close()

    def eof_received(self) -> bool:
        if self._flight is not None and self._transport is not None:
            # TLS has no socket any more once the connection is lost.
            self._last_data_ns = last_data_ns(self._transport, monotonic_ns())
            if TELLS and not self._answered:
                self.was_missed = untaken_bytes(self._transport) >= len(self.payload)
        if self._is_tls and self._flight is None and not self.finishing:
            self._beyond = True  # a TLS close arrives as data, a plain one does not
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._now_ns = monotonic_ns()
        if self._answered:
            self._end_with_connection(exc)
        unanswered = self.take_flight()
        self._transport = None
        self._owner.connection_lost(self, unanswered)
        # Break the reference cycle with the parser, since no collector runs during a cell.
        self._parser = None
        self.payload = b""

    def _end_with_connection(self, exc: Exception | None) -> None:
        """End an answer by the connection's end, as a stream after [DONE] or an unframed body may."""
        disconnect = f"connection lost in the middle of the answer ({exc or 'closed by the server'})"
        if self._status_code >= 200:
            self._end_answer(disconnect)
        else:
            self._end("truncated", disconnect)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer does not describe the body before it
        name = name.lower()
        if name == b"content-type":
            self._event_stream = value.lower().startswith(b"text/event-stream")
        elif name in (b"content-encoding", b"transfer-encoding"):
            self._coding = coding_not_asked_for(value) or self._coding

    def on_message_begin(self) -> None:
        self._event_stream = False
        self._in_head = True
        if self._flight is None:
            self._beyond = True
            self.close()  # a second answer to one request

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status_code = self._parser.get_status_code()
        self._in_head = False
        if self._status_code not in INTERIM:
            self._untold_bytes = 0

    def on_message_complete(self) -> None:
        if self._status_code in INTERIM:
            return  # the final answer follows
        self._take_bodies()
        assert self._parser is not None
        # Before the end is reported: a closing connection takes no further request, and unwritten
        # bytes belong to this one.
        if not self._parser.should_keep_alive() or self._unwritten or self._status_code == 413:
            self.close()
        if self.finishing:
            self.finishing = False
            self._owner.connection_free(self)
        if self._flight is None:
            return
        self._note_completed(self._flight)
        self._end_answer()

    def _note_completed(self, flight: Flight) -> None:
        if self._owner.events.response_completed is not None:
            self._owner.events.response_completed(flight, self._now_ns)

    @property
    def _unwritten(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def _end_answer(self, disconnect: str | None = None) -> None:
        """End the flight according to the answer.

        Args:
            disconnect: how the connection ended the answer, if it did.
        """
        flight = self._flight
        if flight is None:
            return
        if self._status_code != 200:
            ending = end_of_error(self._status_code, self._body)
        elif self._event_stream:
            ending = end_of_stream(flight, self._scanner, self._coding, disconnect)
        elif self._owner.stream:
            ending = end_of_no_stream(self._body)
        else:
            ending = end_of_whole(flight, self._body, self._now_ns, self._coding, disconnect)
        self._end(*ending)

    def _take_bodies(self) -> None:
        """Process the bodies that the parser has found since the last call."""
        flight = self._flight
        if not self._bodies:
            return
        body = b"".join(self._bodies)
        self._bodies.clear()
        if flight is None:
            self.close()  # data after a complete answer, or unsolicited
            return
        self._untold_bytes = 0
        if self._status_code != 200 or not self._event_stream or self._coding:
            keep_whole = self._status_code == 200 and not self._owner.stream
            self._body = (self._body + body)[: MAX_WHOLE if keep_whole else MAX_SAID]
            return
        n_stamped = len(self._scanner.times)
        failed: Ending | None = None
        try:
            self._scanner.feed(body, self._now_ns)
        except MalformedStream as error:
            # Not the exception itself, which holds this frame: a reference cycle.
            failed = error.status, str(error)
        if self._hears_events:
            events = self._owner.events
            for index in range(n_stamped, len(self._scanner.times)):
                hook = events.non_first_chunk if index else events.first_chunk
                if hook is not None:
                    hook(flight, self._now_ns)
        if failed is not None:
            self._end(*failed)

    def _end(self, status: Status, error: str | None) -> None:
        flight = self.take_flight()
        if flight is None:
            return
        flight.status = status
        flight.error = error
        flight.t_end_ns = self._now_ns
        if status in UNFINISHED:
            self.close()  # the rest of the socket's data belongs to no request
        self._owner.flight_ended(self, flight)
