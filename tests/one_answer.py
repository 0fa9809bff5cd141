"""One connection without socket or clock: turns the bytes of an answer, as read, into a request's record."""

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from unittest import mock

from connector_tax.run.loadgen import connection as connection_module
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.issuer import SILENT, Flight


@dataclass(frozen=True)
class Answer:
    """The bytes of one answer, and how it was asked for."""

    wire: bytes
    stream: bool = True
    collect_ids: bool = False


class Line(asyncio.Transport):
    """A transport that only accepts writes and closes."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"sslcontext": object()} if tls else {})
        self.closed = False

    def write(self, data: Any) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


@dataclass
class Pool:
    """The connection's owner; keeps the requests that ended."""

    stream: bool = True
    ended: list[Flight] = field(default_factory=list)
    events = SILENT

    def flight_ended(self, connection: Connection, flight: Flight) -> None:
        self.ended.append(flight)

    def connection_free(self, connection: Connection) -> None: ...

    def connection_lost(self, connection: Connection, flight: Flight | None) -> None:
        if flight is not None:
            self.ended.append(flight)


@dataclass(frozen=True)
class Recorded:
    """The record of one request.

    Attributes:
        stamps: numbers of the reads of the first token, the last token, the end, and each token.
        reusable: the request has ended, and the connection takes another one after all reads.
    """

    status: str | None
    error: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    output_ids: list[int] | None
    n_tokens: int
    stamps: list[int | None] = field(compare=False)
    reusable: bool = field(compare=False)


def recorded(answer: Answer, reads: Sequence[bytes]) -> Recorded:
    """Feed ``reads``, the k-th at time k, then close. Records compare equal regardless of times."""
    now = [0]
    pool, line = Pool(answer.stream), Line()
    flight = Flight(0, 0, 0, token_ns=array("q"), output_ids=[] if answer.collect_ids else None)
    with mock.patch.object(connection_module, "monotonic_ns", lambda: now[0]):
        connection = Connection(pool)
        connection.connection_made(line)
        connection.send(flight, b"request")
        for now[0], data in enumerate(reads, start=1):
            if not line.closed:
                connection.data_received(data)
        reusable = bool(pool.ended) and connection.usable
        now[0] = len(reads) + 1
        connection.connection_lost(None)
    assert all(one is flight for one in pool.ended) and len(pool.ended) <= 1
    return Recorded(
        flight.status,
        flight.error,
        flight.prompt_tokens,
        flight.completion_tokens,
        flight.output_ids,
        len(flight.token_ns or ()),
        [flight.t_first_token_ns, flight.t_last_token_ns, flight.t_end_ns, *(flight.token_ns or ())],
        reusable,
    )


def bytewise(wire: bytes) -> list[bytes]:
    return [wire[k : k + 1] for k in range(len(wire))]


def check_split(answer: Answer, by_bytes: Recorded, reads: Sequence[bytes], where: object) -> None:
    """Assert that ``reads`` give the record of single bytes, with the times of the matching reads."""
    found = recorded(answer, reads)
    ends = list(accumulate(map(len, reads)))
    expected = [None if at is None else bisect_left(ends, at) + 1 for at in by_bytes.stamps]
    assert (found, found.stamps) == (by_bytes, expected), where
