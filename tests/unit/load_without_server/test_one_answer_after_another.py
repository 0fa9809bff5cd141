"""What a connection read of one answer is forgotten before the next: a request on a kept connection is recorded as on a fresh one."""

import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector_tax.run.loadgen import connection as connection_module
from connector_tax.run.loadgen.connection import MOST_HEAD_BYTES, Connection
from connector_tax.run.loadgen.issuer import SILENT, Flight

sys.path.insert(0, str(Path(__file__).parents[2]))
from one_answer import Line

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def sized(head: bytes, body: bytes) -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def token(k: int) -> bytes:
    return chunk(b'data: {"choices":[{"text":"%d","token_ids":[%d]}]}\n\n' % (k, k))


END = chunk(USAGE) + chunk(DONE) + b"0\r\n\r\n"
# Less than what an answer's page may hold, and so much that two of them are more.
LONG_PAGE = sized(b"HTTP/1.1 500 X", b"x" * (MOST_HEAD_BYTES - 1000))
# Each leaves the connection for another request.
BEFORE = {
    "a stream": [STREAM, token(0), token(1), token(2), END],
    "a stream in one read": [STREAM + token(0) + token(1) + token(2) + END],
    "a stream whose end comes late": [
        STREAM,
        token(0),
        token(1),
        token(2),
        chunk(USAGE) + chunk(DONE),
        b"0\r\n\r\n",
    ],
    "a page of an error": [sized(b"HTTP/1.1 500 X\r\nContent-Type: text/html", b"x" * 5000)],
    "a long page": [LONG_PAGE[k : k + 65536] for k in range(0, len(LONG_PAGE), 65536)],
    "an error that is compressed": [sized(b"HTTP/1.1 429 X\r\nContent-Encoding: gzip", b"\x1f\x8b" * 40)],
    "an error that is no stream": [
        sized(b"HTTP/1.1 404 X\r\nContent-Type: text/event-stream", b"data: {}\n\n")
    ],
}
WELL = [STREAM, token(7), token(8), token(9), END]
# What becomes of the next; None is the end of the connection.
AFTER: dict[str, list[bytes | None]] = {
    "well": [*WELL],
    "byte by byte": [b"".join(WELL)[k : k + 1] for k in range(len(b"".join(WELL)))],
    "a page of an error": [sized(b"HTTP/1.1 500 X", b"y" * 5000)],
    "an error without a word": [sized(b"HTTP/1.1 503 X", b"")],
    "cut in its head": [STREAM[:30], None],
    "cut": [STREAM, token(7), None],
    "no answer": [None],
    "events without a token": [STREAM, END],
    "a second answer": [*WELL, sized(b"HTTP/1.1 200 OK", b"hi")],
}


class Pool:
    events = SILENT
    stream = True

    def __init__(self) -> None:
        self.told: list[object] = []

    def flight_ended(self, connection: Connection, flight: Flight) -> None:
        self.told.append((flight, connection.finishing, connection.has_beyond))

    def connection_free(self, connection: Connection) -> None: ...

    def connection_lost(self, connection: Connection, flight: Flight | None) -> None:
        self.told.append((flight, connection.was_missed, connection.has_beyond))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    now = [0]
    monkeypatch.setattr(connection_module, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(connection_module, "last_data_ns", lambda transport, now_ns: now_ns)
    monkeypatch.setattr(connection_module, "untaken_bytes", lambda transport: 0)
    yield now


def carry(
    connection: Connection, pool: Pool, reads: list[bytes | None], clock: list[int], *, collect_ids: bool
) -> list[object]:
    """What the pool is told of one request, and what the connection is then; the k-th read comes at time k + 1."""
    pool.told, clock[0] = [], 0
    ids: list[int] | None = [] if collect_ids else None
    connection.send(Flight(0, 0, 0, token_ns=array("q"), output_ids=ids), b"request")
    for clock[0], data in enumerate(reads, start=1):
        if data is None:
            connection.eof_received()
            connection.connection_lost(None)
        else:
            connection.data_received(data)
    return [*pool.told, connection.usable, connection.has_beyond, connection.last_came_ns()]


@pytest.mark.parametrize("collect_ids", [False, True])
@pytest.mark.parametrize("before", BEFORE)
def test_a_request_is_recorded_as_on_a_fresh_connection(
    before: str, collect_ids: bool, clock: list[int]
) -> None:
    for name, after in AFTER.items():
        found = []
        for first in (None, BEFORE[before]):
            pool = Pool()
            connection = Connection(pool)
            connection.connection_made(Line())
            if first is not None:
                carry(connection, pool, [*first], clock, collect_ids=not collect_ids)
                assert connection.usable
            found.append(carry(connection, pool, after, clock, collect_ids=collect_ids))
        assert found[0] == found[1], name
