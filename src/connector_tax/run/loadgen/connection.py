"""One keep-alive connection: bytes in, stamped before anything looks at them.

``t_first_token`` and ``t_last_token`` are the time at which the loop handed over the bytes, taken at
the top of ``data_received``: neither parsing nor queueing of ours is in them.
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

# An answer that has ended -> the status of its flight, what is said of a failure, and how many tokens the
# server counted.

MAX_ERROR_CHARS = 2000
# Of an answer in one piece; none is longer, and a server that sends without end is not kept for ever.
MAX_WHOLE = 1 << 26
# Of a body as it is, or in chunks.
PLAIN_CODINGS = frozenset({b"", b"identity", b"chunked"})
# Ends of a flight that leave something of its answer in the socket.
UNFINISHED = frozenset({"malformed", "truncated", "stream_error"})

Ending = tuple[Status, str | None]


def coding_not_asked_for(value: bytes) -> str:
    """How a body is compressed, by the value of the header that says so; empty where it is not."""
    codings = {coding.strip() for coding in value.lower().split(b",")}
    return b", ".join(sorted(codings - PLAIN_CODINGS)).decode("latin-1")


def end_of_error(status_code: int, body: bytes) -> Ending:
    return "http_error", f"HTTP {status_code}: {excerpt(body, MAX_ERROR_CHARS)}"


def end_of_no_stream(body: bytes) -> Ending:
    """Of an answer in one piece where a stream was asked for."""
    return "malformed", f"not an event stream: {excerpt(body, 200)}"


def end_of_whole(flight: Flight, body: bytes, now_ns: int, coding: str, lost: str | None) -> Ending:
    """An answer in one piece has a last token and no first one: when that came nobody can tell.

    Args:
        coding: how it was compressed; empty where it was not.
        lost: what became of the connection, where that has ended the answer.
    """
    if coding:
        return _compressed(coding)
    try:
        found = read_completion(body)
        ids = found.ids(body) if flight.output_ids is not None else None
    except MalformedStream as error:
        cut = lost is not None and error.status == "malformed"
        return ("truncated", lost) if cut else (error.status, str(error))
    if not found.choices:
        return "malformed", f"an answer without choices: {said(body)}"
    flight.t_last_token_ns = now_ns
    return _end_with_counts(flight, found.counts, ids, seen=True)


def end_of_stream(flight: Flight, scanner: EventScanner, coding: str, lost: str | None) -> Ending:
    """
    Args:
        coding, lost: as above.
    """
    if coding:
        return _compressed(coding)
    scanner.finish()
    if not scanner.done:
        return "truncated", lost or "the stream ended without [DONE]"
    return _end_with_counts(flight, scanner.counts, scanner.output_ids, seen=bool(scanner.times))


def _compressed(coding: str) -> Ending:
    return "malformed", f"the answer is compressed ({coding}), which was not asked for"


def _end_with_counts(
    flight: Flight, counts: tuple[int, int] | None, output_ids: list[int] | None, *, seen: bool
) -> Ending:
    """
    Args:
        counts: prompt and completion tokens by the server's ``usage``.
        output_ids: what was collected of them, where the workload needs them.
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


# What the kernel knows of a connection and its reader does not: that the peer has closed, what it took, when
# data last came.

# Other kernels answer in other words; there nothing of this is known.
TELLS = sys.platform == "linux"
HANG_UP = select.POLLRDHUP if TELLS else 0
# ``tcpi_last_data_recv`` of ``struct tcp_info`` (linux/tcp.h): after 8 bytes and eleven numbers of 32 bits
# each.
LAST_DATA_AT = 8 + 11 * 4
# Of a tick of the slowest kernel clock (100 Hz), in which that age is counted.
TICK_NS = 10_000_000


def untaken_bytes(transport: asyncio.Transport) -> int:
    """So much of what was written the server's host had not acknowledged when it closed in order, which
    acknowledges all that had come. Of TLS 0, since it is not known: the last words of TLS may have been said
    long before the connection ends.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return 0
    plain = transport.get_extra_info("socket")
    (waiting,) = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(waiting) + transport.get_write_buffer_size()


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether bytes lie in the socket that nobody has read yet."""
    plain = transport.get_extra_info("socket")
    if not TELLS or plain is None:
        return False
    (unread,) = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.FIONREAD, bytes(4)))
    return int(unread) > 0


def last_data_ns(transport: asyncio.Transport, now_ns: int) -> int:
    """The earliest time at which the last data can have come to this host, whenever it was read; 0 where the
    kernel tells no time."""
    plain = transport.get_extra_info("socket")
    if not TELLS or plain is None:
        return 0
    told = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA_AT + 4)
    if len(told) < LAST_DATA_AT + 4:
        return 0
    (age_ms,) = struct.unpack_from("I", told, LAST_DATA_AT)
    return now_ns - int(age_ms) * 1_000_000 - TICK_NS


# Bytes of a head, of a trailer or of an error's page without an end. And of a whole answer: a stream is not
# followed for ever.
MOST_HEAD_BYTES = 1 << 21
MOST_ANSWER_BYTES = 1 << 28
# After a read of that length others have their turn: uvloop reads 256,000 bytes at once, and up to 32 times
# in a row.
LONG_READ = 1 << 17
# Answers that another one follows; 101 is followed by another protocol.
INTERIM = frozenset({*range(100, 200)} - {101})


class Owner(Protocol):
    """What a connection tells the pool it belongs to."""

    events: SampleEventHandler
    stream: bool

    def flight_ended(self, connection: "Connection", flight: Flight) -> None: ...

    def connection_free(self, connection: "Connection") -> None: ...

    def connection_lost(self, connection: "Connection", flight: Flight | None) -> None: ...


class Connection(asyncio.Protocol):
    """Carries one flight at a time."""

    # Without a dictionary, whose look-ups a cold cache makes slow.
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
        # The answer is whole, and the end of its message is still to come.
        self.finishing = False
        # It was opened for no flight, or has carried one: the server may be closing it while the next one is
        # written.
        self.was_idle = False
        self._is_tls = False
        self._hang_up = select.poll()
        # Of the flight under way or the last one: it may have to be sent again.
        self.payload = b""
        self._forget()

    def _forget(self, *, collect_ids: bool = False) -> None:
        """What was read of the answer before."""
        self._scanner = EventScanner(collect_ids=collect_ids)
        self._body = b""
        self._bodies.clear()
        self._answered = False
        self._status_code = 0
        self._coding = ""
        # Bytes since the parser last told of something, and of the whole answer.
        self._untold_bytes = self._answer_bytes = 0
        # The server closed in order and had no byte of the request by then, so it cannot have worked on it.
        self.was_missed = False
        # Something came behind the end of the message.
        self._beyond = False
        # When the last data came to this host at the earliest, where somebody asked; 0 where nobody knows.
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
        """Whether the server has closed, which this process has not read yet."""
        return bool(self._hang_up.poll(0))

    @property
    def has_unread(self) -> bool:
        """Whether more of an answer is in the socket than was read."""
        return self._transport is not None and has_unread(self._transport)

    @property
    def has_beyond(self) -> bool:
        """Whether more came than the whole message that was read last: another answer, or the last words of
        TLS, as far as is known."""
        if self._beyond or self._flight is not None or self.finishing:
            return self._beyond
        if self._transport is None or self._transport.is_closing():
            return self._is_tls
        return self.has_unread

    def last_came_ns(self) -> int:
        """The earliest time at which the last data can have come to this host, which may have been read much
        later, and may be beyond the answer; 0 where nobody knows.
        """
        if self._last_data_ns is None and self._transport is not None:
            self._last_data_ns = last_data_ns(self._transport, monotonic_ns())
        return self._last_data_ns or 0

    def send(self, flight: Flight, payload: bytes) -> None:
        """Write one request; the stamp is taken just before the first byte goes to the socket."""
        assert self._transport is not None
        now_ns = monotonic_ns()
        if flight.t_send_ns is None:
            flight.t_send_ns = now_ns
        self._transport.write(payload)
        # After the write, which is late already: no byte of the answer comes before the loop's next turn.
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
        """Give up the flight, with the times of its tokens so far, without reporting it."""
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
            self.close()  # a server that talks without being asked
            return
        self._answered = True
        self._untold_bytes += len(data)
        self._answer_bytes += len(data)
        assert self._parser is not None
        not_http = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # Ours and not the server's; the loop's handler ends the cell and names it.
            raise error.__context__ or error from None
        except httptools.HttpParserUpgrade:
            not_http = "the server goes on in another protocol"
        except httptools.HttpParserError as error:
            not_http = f"not HTTP: {error}"
        # Also in front of what is no HTTP: in another read it would have been looked at.
        self._take_bodies()
        if self._scanner.done and self._flight is not None:
            # The end of the message may take its time, or never come; the answer is whole.
            self.finishing = True
            self._note_completed(self._flight)
            self._end_answer()
        if not_http:
            self._beyond = self._flight is None
            self._end("malformed", not_http)
            self.close()  # also where the flight had ended: what is left over is no answer to the next one
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
            # TLS has no socket any more when the connection is lost.
            self._last_data_ns = last_data_ns(self._transport, monotonic_ns())
            if TELLS and not self._answered:
                self.was_missed = untaken_bytes(self._transport) >= len(self.payload)
        if self._is_tls and self._flight is None and not self.finishing:
            self._beyond = True  # TLS says with data that it closes; without it that is no data
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._now_ns = monotonic_ns()
        if self._answered:
            self._end_with_connection(exc)
        unanswered = self.take_flight()
        self._transport = None
        self._owner.connection_lost(self, unanswered)
        # The parser holds methods of this connection: a ring, which nobody collects while a cell runs.
        self._parser = None
        self.payload = b""

    def _end_with_connection(self, exc: Exception | None) -> None:
        """An answer may end by closing: a stream that has said [DONE], and whatever is no stream."""
        lost = f"connection lost in the middle of the answer ({exc or 'closed by the server'})"
        if self._status_code >= 200:
            self._end_answer(lost)
        else:
            self._end("truncated", lost)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer says nothing of what came before it
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
            return  # the answer itself is still to come
        self._take_bodies()
        assert self._parser is not None
        # Before the end is reported: what is closing takes no further request, and what is not yet written
        # belongs to this one.
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

    def _end_answer(self, lost: str | None = None) -> None:
        """
        Args:
            lost: what became of the connection, where that has ended the answer.
        """
        flight = self._flight
        if flight is None:
            return
        if self._status_code != 200:
            ending = end_of_error(self._status_code, self._body)
        elif self._event_stream:
            ending = end_of_stream(flight, self._scanner, self._coding, lost)
        elif self._owner.stream:
            ending = end_of_no_stream(self._body)
        else:
            ending = end_of_whole(flight, self._body, self._now_ns, self._coding, lost)
        self._end(*ending)

    def _take_bodies(self) -> None:
        """Look at what the parser has found since the last time."""
        flight = self._flight
        if not self._bodies:
            return
        body = b"".join(self._bodies)
        self._bodies.clear()
        if flight is None:
            self.close()  # more of an answer that was whole, or none of ours
            return
        self._untold_bytes = 0
        if self._status_code != 200 or not self._event_stream or self._coding:
            wanted = self._status_code == 200 and not self._owner.stream
            self._body = (self._body + body)[: MAX_WHOLE if wanted else MAX_SAID]
            return
        seen = len(self._scanner.times)
        failed: Ending | None = None
        try:
            self._scanner.feed(body, self._now_ns)
        except MalformedStream as error:
            # Not the exception itself, which holds this frame: a ring.
            failed = error.status, str(error)
        if self._hears_events:
            events = self._owner.events
            for k in range(seen, len(self._scanner.times)):
                hook = events.non_first_chunk if k else events.first_chunk
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
            self.close()  # what else the socket holds belongs to no request
        self._owner.flight_ended(self, flight)
