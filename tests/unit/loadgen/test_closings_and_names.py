"""What a server does with its connections and says of its faults, told by the client under the right name and once."""

import asyncio
import gc
import os
import socket
import ssl
import struct
import sys
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[2]))
import self_signed
from hostile_wire import WELL, HostileServer, Peer, saying, well

from connector_tax.base.records.target import RequestForm, Target
from connector_tax.run.loadgen import http_issuer
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import Flight, SampleEventHandler
from connector_tax.run.loadgen.sse import EventScanner

TOKEN = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2}}\n\n'
STREAM = TOKEN + TOKEN + USAGE + b"data: [DONE]\n\n"
EVENTS = b"Content-Type: text/event-stream\r\n"
REQUEST = b"POST /v1/completions HTTP/1.1\r\nX-Padding: " + b"p" * 30_000 + b"\r\n\r\n"


ASKED = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


def sized(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n" + EVENTS) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


# Called with the connection and the number of its request, from 1; True closes the connection.
Script = Callable[[asyncio.StreamWriter, int], Awaitable[bool]]


class Server:
    """Counts requests by connection and does what its script says."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(self.requests)
        self.requests.append(0)
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.requests[mine] += 1
                if await self._script(writer, self.requests[mine]):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def exchange(
    script: Script, flights: int = 1, tls: ssl.SSLContext | None = None
) -> tuple[list[Flight], Server]:
    """Flights one after the other over one issuer, without spare connections; each in its final state."""

    async def run() -> tuple[list[Flight], Server]:
        server = Server(script)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**20, ssl=tls)
        issuer = HttpIssuer(
            Target(
                "127.0.0.1",
                listening.sockets[0].getsockname()[1],
                "m",
                tls=tls is not None,
                verify=False,
            ),
            RequestForm(),
            spare_connections=0,
        )
        ended: asyncio.Queue[Flight] = asyncio.Queue()
        await issuer.start(ended.put_nowait)
        done = []
        for seq in range(flights):
            issuer.issue(Flight(seq, 0, 0), REQUEST)
            done.append(await asyncio.wait_for(ended.get(), 10))
        assert ended.empty()
        issuer.shutdown()
        listening.close()
        return done, server

    return uvloop.run(run())


def say(answer: bytes, *, close: bool = False) -> Script:
    async def script(writer: asyncio.StreamWriter, number: int) -> bool:
        writer.write(answer)
        await writer.drain()
        return close

    return script


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("how", ["close", "reset", "half, then reset"])
def test_a_request_that_the_server_has_read_is_not_sent_again(how: str, tls: bool, tmp_path: Path) -> None:
    """A crash in prefill, however soon and however the connection ends. Each second request of a connection meets one."""
    context = self_signed.serving(*self_signed.certificate(tmp_path)) if tls else None

    async def script(writer: asyncio.StreamWriter, number: int) -> bool:
        if number == 1:
            writer.write(sized(STREAM))
            return False
        if how != "close":
            sock = writer.get_extra_info("socket")
            if how != "reset":
                socket.socket(fileno=os.dup(sock.fileno())).shutdown(socket.SHUT_WR)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return True

    flights, server = exchange(script, 10, tls=context)
    assert [(f.status, f.resends) for f in flights] == [("ok", 0), ("truncated", 0)] * 5
    assert server.requests == [2] * 5


@pytest.mark.parametrize("known", [True, False], ids=["known", "crossed"])
@pytest.mark.parametrize("used", [True, False], ids=["used before", "opened ahead"])
def test_a_request_that_crossed_the_close_of_an_idle_connection_is_sent_again(
    used: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close lies in the client's socket, unread, as the request is due; no turn of the loop is in between.

    Where the kernel tells nothing is written there; a request that is written all the same, as one that crosses the close on its way
    is, was not seen.
    """
    if not known:
        monkeypatch.setattr(Connection, "is_left", False)

    async def run() -> tuple[Flight, int]:
        peers: list[Peer] = []

        async def serve(peer: Peer) -> None:
            peers.append(peer)
            await well(peer)

        server = HostileServer(serve)
        issuer = HttpIssuer(
            Target("127.0.0.1", server.port, "m"), RequestForm(), spare_connections=int(not used)
        )
        ended: asyncio.Queue[Flight] = asyncio.Queue()
        await issuer.start(ended.put_nowait)
        if used:
            issuer.issue(Flight(0, 0, 0), ASKED)
            await ended.get()
        while not peers:
            await asyncio.sleep(0.001)
        issuer._spare_connections = 0
        assert len(issuer._idle) == 1
        peers[0].half_close() if known else peers[0].shut()
        issuer.issue(Flight(1, 0, 0), ASKED)
        flight = await asyncio.wait_for(ended.get(), 10)
        issuer.shutdown()
        await server.close()
        return flight, len(peers)

    flight, connections = uvloop.run(run())
    assert (flight.status, flight.resends, connections) == ("ok", int(not known), 2)


def test_a_request_that_the_server_may_have_worked_on_is_not_sent_again() -> None:
    """A proxy's time-out or a crash in prefill: the server has had the request for 50 ms."""

    async def script(writer: asyncio.StreamWriter, number: int) -> bool:
        if number == 1:
            writer.write(sized(STREAM))
        else:
            await asyncio.sleep(0.05)
        return number == 2

    (_, lost), server = exchange(script, 2)
    assert (lost.status, lost.resends) == ("truncated", 0)
    assert (lost.error or "").startswith("connection closed before any answer, ")
    assert server.requests == [2]


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + EVENTS, b"HTTP/1.0 200 OK\r\n" + EVENTS],
    ids=["close", "http 1.0"],
)
def test_a_connection_that_is_to_close_takes_no_further_request(head: bytes) -> None:
    """Although the server takes its time to close it."""

    async def script(writer: asyncio.StreamWriter, number: int) -> bool:
        if number == 1:
            writer.write(sized(STREAM, head))
            await asyncio.sleep(0.02)
        return True

    flights, server = exchange(script, 3)
    assert [(f.status, f.resends) for f in flights] == [("ok", 0)] * 3
    assert server.requests == [1, 1, 1]


def test_idle_connections_that_died_are_no_spares() -> None:
    """Two spares are kept; the server closes the first one, and while the other works two more are idle."""

    async def run() -> list[bool]:
        opened = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal opened
            opened += 1
            if opened > 1:
                await reader.read()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        issuer = HttpIssuer(
            Target("127.0.0.1", listening.sockets[0].getsockname()[1], "m"),
            RequestForm(),
            spare_connections=2,
        )
        await issuer.start(lambda flight: None)
        await asyncio.sleep(0.1)
        issuer.issue(Flight(0, 0, 0), REQUEST)
        await asyncio.sleep(0.1)
        usable = [connection.usable for connection in issuer._idle]
        issuer.abandon("aborted", "over")
        issuer.shutdown()
        listening.close()
        return usable

    assert uvloop.run(run()) == [True, True]


def test_a_closed_connection_leaves_nothing_for_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector is off while a cell runs: what lies in a ring stays, with its prompt."""
    made: list[weakref.ref[Connection]] = []

    class Noted(Connection):
        def __init__(self, owner: HttpIssuer) -> None:
            super().__init__(owner)
            made.append(weakref.ref(self))

    monkeypatch.setattr(http_issuer, "Connection", Noted)
    gc.collect()
    gc.disable()
    try:
        exchange(say(sized(STREAM, b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + EVENTS), close=True), 5)
        assert len(made) == 5
        assert [ref() for ref in made[:4]] == [None] * 4
    finally:
        gc.enable()


ERROR = b'{"error":{"message":"engine died"}}'


@pytest.mark.parametrize(
    ("answer", "close", "status", "text"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\ncome back later", True, "http_error", "HTTP 503: come back later"),
        (b"HTTP/1.0 500 X\r\n\r\n", True, "http_error", "HTTP 500: "),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>a page</html>", True, "malformed", "not an event stream: <html>a"),
        (b"HTTP/1.1 200 OK\r\n" + EVENTS + b"\r\n" + TOKEN, True, "truncated", "middle of the answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", True, "truncated", "middle of the answer"),
        (
            b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nx",
            False,
            "http_error",
            "HTTP 101",
        ),
        (
            sized(b"data: " + ERROR + b"\n\n"),
            False,
            "stream_error",
            f"the server broke off: {ERROR.decode()}",
        ),
        (sized(TOKEN + b"data: " + ERROR + b"\n\ndata: [DONE]\n\n"), False, "stream_error", "engine died"),
        (
            sized(b'data: {"object":"error","message":"no memory","code":500}\n\n'),
            False,
            "stream_error",
            "no memory",
        ),
    ],
    ids=[
        *("503 until close", "500 without a body", "page until close", "no end", "100 alone", "101"),
        *("error first", "error later", "error object"),
    ],
)
def test_each_failure_has_its_name(answer: bytes, close: bool, status: str, text: str) -> None:
    (flight,), _ = exchange(say(answer, close=close))
    assert flight.status == status
    assert text in (flight.error or "")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + sized(STREAM),
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + sized(STREAM),
        sized(STREAM.replace(b"\n", b"\r")),
        sized(STREAM.replace(b"\n", b"\r\n")),
    ],
    ids=["100", "103 and 102", "CR", "CR LF"],
)
def test_an_answer_is_read_after_what_may_stand_before_it_and_with_any_line_end(answer: bytes) -> None:
    flights, server = exchange(say(answer), 2)
    assert [(f.status, f.completion_tokens) for f in flights] == [("ok", 2)] * 2
    assert server.requests == [2]


def test_a_fault_of_one_request_is_no_fault_of_the_next() -> None:
    """The status of the answer before is forgotten: a connection that breaks off in its first line is no HTTP 500."""

    async def script(writer: asyncio.StreamWriter, number: int) -> bool:
        head = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
        writer.write(head if number == 1 else b"HTTP/1.1 2")
        await writer.drain()
        return number == 2

    flights, _ = exchange(script, 2)
    assert [f.status for f in flights] == ["http_error", "truncated"]


def test_a_second_answer_to_one_request_costs_its_connection() -> None:
    flights, server = exchange(say(sized(STREAM) * 2), 2)
    assert [f.status for f in flights] == ["ok", "ok"]
    assert server.requests == [1, 1]


def test_tokens_of_lines_that_end_with_cr_are_seen_when_they_come() -> None:
    """Held back until the next line feed, each would be booked at the time of the one after it."""
    scanner = EventScanner()
    for k in range(1, 4):
        scanner.feed(TOKEN.replace(b"\n", b"\r"), k)
        assert list(scanner.times) == [*range(1, k + 1)]
    scanner.feed(b"", 4)
    scanner.feed(b"data: [DONE]\r\r", 5)
    assert scanner.done and len(scanner.times) == 3


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[5]}',
        b'{"choices":[null]}',
        b'{"choices":5}',
        b'{"choices":[{"text":"\xff"}]}',
        b"[" * 100_000,
    ],
    ids=["number", "null", "no list", "no utf-8", "deep"],
)
def test_an_event_that_is_none_ends_its_request_and_nothing_else(event: bytes) -> None:
    """In a read of its own behind a token, where no parser of HTTP catches what the decoder raises."""

    async def script(writer: asyncio.StreamWriter, number: int) -> bool:
        whole = sized(TOKEN + b"data: " + event + b"\n\n" + USAGE)
        begun = whole.index(TOKEN) + len(TOKEN)
        writer.write(whole[:begun])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(whole[begun:])
        await writer.drain()
        return False

    (flight, after), _ = exchange(script, 2)
    assert (flight.status, after.status) == ("malformed", "malformed")
    assert flight.error is not None and len(flight.error) < 1000


@pytest.mark.parametrize("count", [b'"32"', b"32.5", b"-1", b"true", b"1180591620717411303424", b"null"])
def test_a_usage_without_counts_is_no_answer(count: bytes) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":%b,"completion_tokens":2}}\n\n' % count
    ((flight,), _) = exchange(say(sized(TOKEN + TOKEN + usage + b"data: [DONE]\n\n")))
    assert flight.status == "malformed"
    assert "no usage" in str(flight.error)


def test_a_server_that_closes_at_once_is_not_asked_for_spares_without_end() -> None:
    async def run() -> int:
        accepted = 0

        def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            writer.close()

        listening = await asyncio.start_server(close, "127.0.0.1", 0)
        issuer = HttpIssuer(
            Target("127.0.0.1", listening.sockets[0].getsockname()[1], "m"),
            RequestForm(),
            spare_connections=8,
        )
        await asyncio.wait_for(issuer.start(lambda flight: None), 10)
        await asyncio.sleep(0.05)
        issuer.shutdown()
        listening.close()
        return accepted

    assert uvloop.run(run()) <= 8


@pytest.mark.parametrize("late", [False, True], ids=["with its message's end", "before its message's end"])
def test_an_answer_is_told_of_once_whether_its_message_ends_with_it_or_later(late: bool) -> None:
    told: list[str] = []

    def hook(name: str) -> Callable[[Flight, int], None]:
        return lambda flight, now_ns: told.append(name)

    async def run() -> None:
        server = HostileServer(saying(*((WELL[:-5], WELL[-5:]) if late else (WELL,)), then="stall"))
        events = SampleEventHandler(
            issued=hook("issued"),
            first_chunk=hook("first"),
            non_first_chunk=hook("other"),
            response_completed=hook("completed"),
            complete=hook("complete"),
        )
        issuer = HttpIssuer(Target("127.0.0.1", server.port, "m"), RequestForm(), events, spare_connections=0)
        ended: asyncio.Queue[Flight] = asyncio.Queue()
        await issuer.start(ended.put_nowait)
        issuer.issue(Flight(0, 0, 0), ASKED)
        assert (await asyncio.wait_for(ended.get(), 10)).status == "ok"
        while not issuer._idle:
            await asyncio.sleep(0.001)
        issuer.shutdown()
        await server.close()

    uvloop.run(run())
    assert told == ["issued", "first", "other", "completed", "complete"]
