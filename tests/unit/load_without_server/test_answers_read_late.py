"""An answer that was read after its time by a client that was away: what else came meanwhile is no part of it."""

import asyncio
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.records.request import Status
from connector_tax.base.records.target import RequestForm, target_of
from connector_tax.run.loadgen import connection as module
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import Flight

sys.path.insert(0, str(Path(__file__).parents[2]))
from one_answer import Line

S = 1_000_000_000
TOKEN = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":1}}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
BODY = TOKEN + USAGE + b"data: [DONE]\n\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
CLOSES = HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(BODY) + BODY
TIMEOUT_408 = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LIMIT_S = 1.5


def read(data: bytes) -> Callable[[Connection], None]:
    return lambda connection: connection.data_received(data)


def then(*steps: Callable[[Connection], Any]) -> Callable[[Connection], None]:
    def one_after_the_other(connection: Connection) -> None:
        for step in steps:
            step(connection)

    return one_after_the_other


def ended(
    monkeypatch: pytest.MonkeyPatch,
    steps: Callable[[Connection], None],
    *,
    last_s: float,
    back: bool = True,
    tls: bool = False,
    unread: bool = False,
) -> Flight:
    """A request of T0 whose limit is 1.5 s; its answer is read at 3.6 s, and the kernel says when data last came."""
    clock = [0]
    monkeypatch.setattr(module, "monotonic_ns", lambda: clock[0])
    monkeypatch.setattr("connector_tax.run.loadgen.http_issuer.monotonic_ns", lambda: clock[0])
    monkeypatch.setattr(module, "last_data_ns", lambda transport, now_ns: round(last_s * S))
    monkeypatch.setattr(module, "has_unread", lambda transport: unread)
    form = RequestForm(timeout_s=LIMIT_S)

    async def scenario() -> Flight:
        issuer = HttpIssuer(
            target_of("http://h:1", "m"), form, spare_connections=0, is_back=lambda now_ns: back
        )
        over: list[Flight] = []
        issuer._on_end = over.append
        connection = Connection(issuer)
        connection.connection_made(Line(tls=tls))
        issuer._open.add(connection)
        issuer._put_by(connection)
        issuer.issue(Flight(0, 0, 0, token_ns=array("q")), b"POST")
        clock[0] = round(3.6 * S)
        steps(connection)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        issuer.shutdown()
        (flight,) = over
        return flight

    return asyncio.run(scenario())


EOF = Connection.eof_received
CASES: dict[str, tuple[Callable[[Connection], None], dict[str, Any], Status]] = {
    "it came in time": (read(CHUNKED), {"last_s": 1.0}, "ok"),
    "it came too late": (read(CHUNKED), {"last_s": 2.0}, "timeout"),
    "a 408 came with it": (read(CHUNKED + TIMEOUT_408), {"last_s": 2.0}, "ok"),
    "a 408 was read behind it": (then(read(CHUNKED), read(TIMEOUT_408)), {"last_s": 2.0}, "ok"),
    "a 408 came behind an answer that closes": (read(CLOSES + TIMEOUT_408), {"last_s": 2.0}, "ok"),
    "more lies in the socket": (read(CHUNKED), {"last_s": 2.0, "unread": True}, "ok"),
    "TLS was closed": (then(read(CHUNKED), EOF), {"last_s": 2.0, "tls": True}, "ok"),
    "TLS was closed behind an answer that closes": (read(CLOSES), {"last_s": 2.0, "tls": True}, "ok"),
    "over TLS it came too late": (read(CHUNKED), {"last_s": 2.0, "tls": True}, "timeout"),
    "a close without TLS is no data": (then(read(CHUNKED), EOF), {"last_s": 2.0}, "timeout"),
    "an answer that closes came too late": (read(CLOSES), {"last_s": 2.0}, "timeout"),
    "half of its end came too late": (
        then(read(CHUNKED[:-9]), read(CHUNKED[-9:])),
        {"last_s": 2.0},
        "timeout",
    ),
    "the kernel tells nothing": (read(CHUNKED), {"last_s": 0.0}, "ok"),
    "the client was there": (read(CHUNKED + TIMEOUT_408), {"last_s": 2.0, "back": False}, "timeout"),
    "the client was there, and TLS closed": (
        read(CLOSES),
        {"last_s": 2.0, "back": False, "tls": True},
        "timeout",
    ),
}


@pytest.mark.parametrize(("steps", "how", "status"), CASES.values(), ids=CASES)
def test_what_comes_behind_an_answer_does_not_make_it_late(
    monkeypatch: pytest.MonkeyPatch, steps: Callable[[Connection], None], how: dict[str, Any], status: Status
) -> None:
    """Where nobody can know when the answer came it counts, and its latency has the time at which it was read."""
    flight = ended(monkeypatch, steps, **how)
    assert flight.status == status
    assert flight.t_end_ns == flight.t_last_token_ns == round(3.6 * S)
    if how.get("back", True):
        assert flight.came_ns == (0 if status == "ok" and how["last_s"] != 1.0 else round(how["last_s"] * S))


def test_an_answer_that_is_not_decided_yet_is_not_lost_when_all_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def abandoned(connection: Connection) -> None:
        connection.data_received(CHUNKED)
        connection._owner.abandon("timeout", "over")  # type: ignore[attr-defined]

    flight = ended(monkeypatch, abandoned, last_s=1.0)
    assert (flight.status, flight.error) == ("ok", None)
