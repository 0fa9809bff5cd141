"""A request ends once, whatever its connection is doing when it is given up."""

import asyncio
import errno
import sys
from collections import Counter
from pathlib import Path

import pytest

from connector_tax.base.records.target import RequestForm, Target
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import Flight

sys.path.insert(0, str(Path(__file__).parents[2]))
from one_answer import Line


class Issuer(HttpIssuer):
    """Connects at once, or fails at once."""

    def __init__(self, error: OSError | None = None) -> None:
        super().__init__(Target("nowhere", 0, "m"), RequestForm(), spare_connections=0)
        self.error = error
        self.lines: list[Line] = []

    async def _connect(self) -> Connection:
        if self.error is not None:
            raise self.error
        connection, line = Connection(self), Line()
        connection.connection_made(line)
        self._open.add(connection)
        self.lines.append(line)
        return connection


REFUSED = OSError(errno.ECONNREFUSED, "refused")


def ends(error: OSError | None, turns: int) -> "tuple[Counter[int], list[str], Issuer]":
    """How often each of five flights ended that were given up ``turns`` of the loop after they were issued, and how."""
    issuer, counts = Issuer(error), Counter[int]()
    how: list[str] = []

    def ended(flight: Flight) -> None:
        counts[flight.seq] += 1
        how.append(f"{flight.status}: {(flight.error or '').partition(':')[0]}")

    async def scenario() -> None:
        await issuer.start(ended)
        for seq in range(5):
            issuer.issue(Flight(seq, 0, seq), b"x")
        for _ in range(turns):
            await asyncio.sleep(0)
        issuer.abandon("aborted", "over")
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    return counts, how, issuer


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("error", [None, REFUSED], ids=["connects", "refused"])
def test_giving_up_in_any_turn_of_a_connect_ends_each_flight_once(error: OSError | None, turns: int) -> None:
    counts, how, issuer = ends(error, turns)
    assert counts == Counter(range(5))
    assert set(how) == (
        {"connect_error: [Errno 111] refused"} if error is not None and turns else {"aborted: over"}
    )
    assert all(line.closed for line in issuer.lines)


@pytest.mark.parametrize(
    "number", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM]
)
def test_a_client_without_sockets_blames_itself(number: int) -> None:
    counts, how, _ = ends(OSError(number, "no more"), 2)
    assert counts == Counter(range(5))
    assert set(how) == {"aborted: the client has no socket left"}
