"""What a server does with its connections and says of its faults, told by the client under the right name and once."""

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[2]))
import self_signed
from hostile_wire import (
    DONE,
    HEAD,
    STREAM,
    TOKEN,
    WELL,
    HostileServer,
    Peer,
    data,
    saying,
    sized,
    usage,
    well,
)
from one_answer import Answer, recorded

from connector_tax.base.records.target import RequestForm, Target
from connector_tax.run.loadgen import http_issuer
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import Flight, SampleEventHandler
from connector_tax.run.loadgen.sse import EventScanner

ASKED = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
LONG = b"POST /v1/completions HTTP/1.1\r\nX-Padding: " + b"p" * 30_000 + b"\r\n\r\n"


def issuer_to(port: int, *, spares: int = 0, tls: bool = False) -> HttpIssuer:
    target = Target("127.0.0.1", port, "m", tls=tls, verify=False)
    return HttpIssuer(target, RequestForm(), spare_connections=spares)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("how", ["close", "reset", "half, then reset"])
def test_a_request_that_the_server_has_read_is_not_sent_again(how: str, tls: bool, tmp_path: Path) -> None:
    """A crash in prefill, however soon and however the connection ends. Each second request of a connection meets one."""
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(requests)
        requests.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sized(STREAM))
        await reader.readuntil(b"\r\n\r\n")
        requests[mine] += 1
        if how != "close":
            sock = writer.get_extra_info("socket")
            if how != "reset":
                socket.socket(fileno=os.dup(sock.fileno())).shutdown(socket.SHUT_WR)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()

    async def run() -> list[Flight]:
        context = self_signed.serving(*self_signed.certificate(tmp_path)) if tls else None
        listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20, ssl=context)
        issuer = issuer_to(listening.sockets[0].getsockname()[1], tls=tls)
        ended: asyncio.Queue[Flight] = asyncio.Queue()
        await issuer.start(ended.put_nowait)
        done = []
        for seq in range(10):
            issuer.issue(Flight(seq, 0, 0), LONG)
            done.append(await asyncio.wait_for(ended.get(), 10))
        assert ended.empty()
        issuer.shutdown()
        listening.close()
        return done

    flights = uvloop.run(run())
    assert [(f.status, f.resends) for f in flights] == [("ok", 0), ("truncated", 0)] * 5
    assert (flights[1].error or "").startswith("connection closed before any answer, ")
    assert requests == [2] * 5


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
        issuer = issuer_to(server.port, spares=int(not used))
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


def test_idle_connections_that_died_are_no_spares() -> None:
    """Two spares are kept; the server closes the first one, and while the other works two more are idle."""

    async def run() -> list[bool]:
        accepted = 0

        async def serve(peer: Peer) -> None:
            nonlocal accepted
            accepted += 1
            if accepted > 1:
                await peer.gone()

        server = HostileServer(serve)
        issuer = issuer_to(server.port, spares=2)
        await issuer.start(lambda flight: None)
        await asyncio.sleep(0.1)
        issuer.issue(Flight(0, 0, 0), ASKED)
        await asyncio.sleep(0.1)
        usable = [connection.usable for connection in issuer._idle]
        issuer.abandon("aborted", "over")
        issuer.shutdown()
        await server.close()
        return usable

    assert uvloop.run(run()) == [True, True]


def test_a_server_that_closes_at_once_is_not_asked_for_spares_without_end() -> None:
    async def run() -> int:
        accepted = 0

        async def close(peer: Peer) -> None:
            nonlocal accepted
            accepted += 1

        server = HostileServer(close)
        issuer = issuer_to(server.port, spares=8)
        await asyncio.wait_for(issuer.start(lambda flight: None), 10)
        await asyncio.sleep(0.05)
        issuer.shutdown()
        await server.close()
        return accepted

    assert uvloop.run(run()) <= 8


def test_a_connection_that_does_not_come_about_is_given_up_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that listens and never accepts, its queue full: what waits for a connection has an end."""
    monkeypatch.setattr(http_issuer, "FIRST_WITHIN_S", 0.1)

    async def run(port: int) -> list[str | None]:
        issuer = HttpIssuer(Target("127.0.0.1", port, "m"), RequestForm(timeout_s=0.2))
        ended: asyncio.Queue[Flight] = asyncio.Queue()
        await issuer.start(ended.put_nowait)
        for seq in range(8):
            issuer.issue(Flight(seq, 0, 0), ASKED)
        found = [(await asyncio.wait_for(ended.get(), 10)).status for _ in range(8)]
        issuer.shutdown()
        return found

    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        assert set(uvloop.run(run(full.getsockname()[1]))) == {"timeout"}


ERROR = data(b'{"error":{"message":"engine died"}}')
UNCOUNTED = usage(b'{"prompt_tokens":8,"completion_tokens":"2"}')


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\ncome back later", "http_error", "HTTP 503: come back later"),
        (b"HTTP/1.0 500 X\r\n\r\n", "http_error", "HTTP 500: "),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>a page</html>", "malformed", "not an event stream: <html>a"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "malformed", "not HTTP"),
        (HEAD + b"\r\n" + TOKEN, "truncated", "middle of the answer"),
        (sized(TOKEN + usage()), "truncated", "without [DONE]"),
        (sized(TOKEN + data(b'{"choices": [{')), "malformed", "not a completion"),
        (sized(TOKEN + UNCOUNTED + DONE), "malformed", "no usage"),
        (sized(usage() + DONE), "malformed", "none of them in the stream"),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nx", "http_error", "HTTP 101"),
        (sized(ERROR), "stream_error", "the server broke off: "),
        (sized(TOKEN + ERROR + DONE), "stream_error", "engine died"),
        (sized(data(b'{"object":"error","message":"no memory"}')), "stream_error", "no memory"),
    ],
)
def test_each_failure_has_its_name(answer: bytes, status: str, text: str) -> None:
    found = recorded(Answer(answer), [answer])
    assert found.status == status
    assert text in (found.error or "")


def test_tokens_of_lines_that_end_with_cr_are_seen_when_they_come() -> None:
    """Held back until the next line feed, each would be booked at the time of the one after it."""
    scanner = EventScanner()
    for k in range(1, 4):
        scanner.feed(TOKEN.replace(b"\n", b"\r"), k)
        assert list(scanner.times) == [*range(1, k + 1)]
    scanner.feed(b"", 4)
    scanner.feed(b"data: [DONE]\r\r", 5)
    assert scanner.done and len(scanner.times) == 3


@pytest.mark.parametrize("late", [False, True], ids=["with its message's end", "before its message's end"])
def test_an_answer_is_told_of_once_whether_its_message_ends_with_it_or_later(late: bool) -> None:
    told: list[str] = []

    def hook(name: str) -> Callable[[Flight, int], None]:
        return lambda flight, now_ns: told.append(name)

    async def run() -> None:
        server = HostileServer(saying(*((WELL[:-5], WELL[-5:]) if late else (WELL,)), then="stall"))
        issuer = issuer_to(server.port)
        issuer.events = SampleEventHandler(
            issued=hook("issued"),
            first_chunk=hook("first"),
            non_first_chunk=hook("other"),
            response_completed=hook("completed"),
            complete=hook("complete"),
        )
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
