"""Whatever a server does over its sockets, each request ends once and by name, and the client neither grows nor hangs.

The real issuer and its connections on uvloop, against a server of raw sockets on the same loop. Nothing here depends on how fast
the machine is: what is limited is counted, or is processor time of one callback.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import thread_time_ns
from typing import Any

import pytest
import uvloop
from hostile_behaviours import BEHAVIOURS, ROWS
from hostile_wire import CHUNKED, DONE, TOKEN, Behaviour, HostileServer, Peer, Script, chunk, usage, well
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector_tax.base.records.target import RequestForm, Target
from connector_tax.run.loadgen import http_issuer
from connector_tax.run.loadgen.connection import LONG_READ, MAX_ERROR_CHARS, Connection
from connector_tax.run.loadgen.http_issuer import HttpIssuer
from connector_tax.run.loadgen.issuer import Flight

# Of one read, which holds 256 kB at most; the largest here take some 30 ms.
MOST_CPU_S = 2.0
# None of a test's waits lasts so long unless something hangs.
HANGS_S = 20.0


class Watch:
    """What the client's connections did: processor time of a read, and long reads in one turn of the loop."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self.most_in_a_turn = 0
        self.failures: list[dict[str, Any]] = []
        self._in_this_turn: Counter[int] = Counter()

    def read(self, connection: Connection, length: int, cpu_ns: int) -> None:
        self.longest_ns = max(self.longest_ns, cpu_ns)
        if length < LONG_READ:
            return
        if not self._in_this_turn:
            asyncio.get_running_loop().call_soon(self._in_this_turn.clear)
        self._in_this_turn[id(connection)] += 1
        self.most_in_a_turn = max(self.most_in_a_turn, *self._in_this_turn.values())

    def raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context)


class Client:
    """The issuer, and how often each of its flights ended."""

    def __init__(self, port: int, form: RequestForm, *, collect_ids: bool = False, spares: int = 0) -> None:
        self.issuer = HttpIssuer(Target("127.0.0.1", port, "m"), form, spare_connections=spares)
        self._collect_ids = collect_ids
        self.ends: Counter[int] = Counter()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.flights: dict[int, Flight] = {}

    def send(self, body_bytes: int = 64) -> Flight:
        flight = Flight(len(self.flights), 0, 0, output_ids=[] if self._collect_ids else None)
        self.flights[flight.seq] = flight
        self._waiting[flight.seq] = asyncio.get_running_loop().create_future()
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % body_bytes
        self.issuer.issue(flight, head + bytes(body_bytes))
        return flight

    def ended(self, flight: Flight) -> None:
        self.ends[flight.seq] += 1
        check_record(flight)
        if not self._waiting[flight.seq].done():
            self._waiting[flight.seq].set_result(None)

    async def end_of(self, flight: Flight) -> Flight:
        await asyncio.wait_for(self._waiting[flight.seq], HANGS_S)
        return flight

    def forget(self) -> None:
        """Flights that have ended."""
        assert set(self.ends.values()) == {1} and self.ends.keys() == self.flights.keys()
        self.ends.clear()
        self.flights.clear()
        self._waiting.clear()

    def check_pool(self) -> None:
        """Nothing is under way: every connection is idle and can be used."""
        assert not self.issuer._connecting and not self.issuer._finishing and not self.issuer._timed
        assert self.issuer._open == set(self.issuer._idle)
        assert all(connection.usable for connection in self.issuer._open)


def check_record(flight: Flight) -> None:
    """What a record of it would say holds together."""
    assert flight.status is not None and flight.t_end_ns is not None
    assert (flight.status == "ok") == (flight.error is None)
    assert flight.error is None or 0 < len(flight.error) <= MAX_ERROR_CHARS + 100
    stamps = [flight.t_send_ns, flight.t_first_token_ns, flight.t_last_token_ns, flight.t_end_ns]
    known = [stamp for stamp in stamps if stamp is not None]
    assert known == sorted(known)


@contextmanager
def watching() -> Iterator[Watch]:
    """Every connection made meanwhile is watched."""
    watch = Watch()

    class Watched(Connection):
        def data_received(self, data: bytes) -> None:
            start_ns = thread_time_ns()
            super().data_received(data)
            watch.read(self, len(data), thread_time_ns() - start_ns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_issuer, "Connection", Watched)
        patch.setattr(http_issuer, "FINISH_WITHIN_S", 0.02)
        yield watch


async def until(condition: Any) -> None:
    async with asyncio.timeout(HANGS_S):
        while not condition():
            await asyncio.sleep(0.001)


async def trial(behaviour: Behaviour, watch: Watch) -> tuple[Flight, Client]:
    """A stream that is under way, the hostile exchange, and two requests after it; all over one issuer."""
    asyncio.get_running_loop().set_exception_handler(watch.raised)
    begun, go_on, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def neighbour(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + chunk(TOKEN))
        begun.set()
        await go_on.wait()
        await peer.say(chunk(TOKEN) + chunk(usage()) + chunk(DONE) + b"0\r\n\r\n")

        await well(peer)

    async def hostile(peer: Peer) -> None:
        try:
            await behaviour.script(peer)
        finally:
            over.set()
        await well(peer)

    script: Script = neighbour
    server = HostileServer(lambda peer: script(peer))
    form = RequestForm(stream=behaviour.stream, timeout_s=behaviour.timeout_s)
    client = Client(server.port, form, collect_ids=behaviour.collect_ids)
    await client.issuer.start(client.ended)
    plain = not behaviour.collect_ids and behaviour.stream and behaviour.timeout_s is None
    if plain:
        first = client.send()
        await asyncio.wait_for(begun.wait(), HANGS_S)
    script = hostile
    flight = await client.end_of(client.send(behaviour.request_bytes))
    # A connection that the script waits on is closed by the client, or the wait has no end.
    await asyncio.wait_for(over.wait(), HANGS_S)
    await until(lambda: not client.issuer._finishing)
    script = well
    if plain:
        for _ in range(2):
            after = await client.end_of(client.send())
            assert after.status == "ok", after
        go_on.set()
        await client.end_of(first)
        assert first.status == "ok" and first.completion_tokens == 2
    client.check_pool()
    client.issuer.shutdown()
    await until(lambda: not client.issuer._open and not server.open)
    await server.close()
    return flight, client


@pytest.mark.parametrize("name", [pytest.param(name, id=f"{group}: {name}") for group, name, _ in ROWS])
def test_a_request_ends_once_and_by_name_and_its_neighbours_do_not_notice(name: str) -> None:
    behaviour = BEHAVIOURS[name]
    with watching() as watch:
        flight, client = uvloop.run(trial(behaviour, watch))
    assert flight.status in behaviour.allowed, (flight.status, flight.error)
    assert set(client.ends.values()) == {1} and client.ends.keys() == client.flights.keys()
    assert watch.failures == []
    assert watch.longest_ns < MOST_CPU_S * 1e9
    assert watch.most_in_a_turn <= 1


FIRST, BATCHES, BATCH = 20, 6, 60


async def growth(behaviour: Behaviour, watch: Watch) -> tuple[list[int], int]:
    """Blocks of memory that each of some batches of requests leaves behind, and objects for the collector; the collector is off."""
    asyncio.get_running_loop().set_exception_handler(watch.raised)

    async def again_and_again(peer: Peer) -> None:
        while True:
            await behaviour.script(peer)

    server = HostileServer(again_and_again)
    form = RequestForm(stream=behaviour.stream, timeout_s=HANGS_S)
    client = Client(server.port, form, collect_ids=behaviour.collect_ids)
    await client.issuer.start(client.ended)

    async def blocks_after(requests: int) -> int:
        for _ in range(requests):
            await client.end_of(client.send(behaviour.request_bytes))
        await until(lambda: not client.issuer._finishing and server.open == len(client.issuer._open))
        client.forget()
        return sys.getallocatedblocks()

    await blocks_after(FIRST)
    gc.collect()
    blocks = [sys.getallocatedblocks()] + [await blocks_after(BATCH) for _ in range(BATCHES)]
    rings = gc.collect()
    client.issuer.shutdown()
    await until(lambda: not client.issuer._open)
    await server.close()
    return [after - before for before, after in pairwise(blocks)], rings


GROUPS = {mine: [n for group, n, b in ROWS if group == mine and b.cheap] for mine, _, _ in ROWS}


@pytest.mark.parametrize("group", [group for group, names in GROUPS.items() if names])
def test_nothing_grows_while_the_collector_is_off(group: str) -> None:
    """What stays of a request is less than one block of memory, and nothing lies in a ring. Tables may grow once. Of each group three."""
    blocks, rings = {}, {}
    gc.disable()
    try:
        for name in GROUPS[group][:: -(-len(GROUPS[group]) // 3)]:
            with watching() as watch:
                blocks[name], rings[name] = uvloop.run(growth(BEHAVIOURS[name], watch))
            assert watch.failures == []
    finally:
        gc.enable()
    assert {name: grown for name, grown in blocks.items() if min(grown) > BATCH / 2} == {}
    assert {name: n for name, n in rings.items() if n > BATCH / 2} == {}


@pytest.mark.parametrize("turns", [0, 1])
def test_what_is_given_up_while_it_connects_leaves_nothing_for_the_collector(turns: int) -> None:
    """Each has its prompt, which a ring would keep to the cell's end."""

    async def run() -> int:
        server = HostileServer(well)
        client = Client(server.port, RequestForm())
        await client.issuer.start(client.ended)
        gc.collect()
        for _ in range(BATCH):
            client.send()
            for _ in range(turns):
                await asyncio.sleep(0)
            client.issuer.abandon("aborted", "over")
            await asyncio.sleep(0.001)
        client.forget()
        rings = gc.collect()
        client.issuer.shutdown()
        await server.close()
        return rings

    gc.disable()
    try:
        assert uvloop.run(run()) < BATCH / 2
    finally:
        gc.enable()


MIXED = sorted(
    name for name, b in BEHAVIOURS.items() if b.stream and (b.cheap or b.timeout_s) and b.request_bytes < 1000
)


async def mixture(names: list[str], at_once: int, spares: int, given_up: set[int], watch: Watch) -> Client:
    """A request for each of ``names``, ``at_once`` in flight; all is given up after those in ``given_up``."""
    asyncio.get_running_loop().set_exception_handler(watch.raised)
    waiting = iter(names)

    async def one_after_the_other(peer: Peer) -> None:
        for name in waiting:
            await BEHAVIOURS[name].script(peer)
        await well(peer)

    server = HostileServer(one_after_the_other)
    client = Client(server.port, RequestForm(timeout_s=0.05), spares=spares)
    issuer = client.issuer
    await issuer.start(client.ended)
    for k in range(len(names)):
        client.send()
        await until(lambda: len(client.flights) - len(client.ends) < at_once)
        if k in given_up:
            issuer.abandon("aborted", "over")
    for flight in client.flights.values():
        await client.end_of(flight)
    await until(lambda: issuer._opening is None and not issuer._finishing)
    await until(lambda: issuer._open == set(issuer._idle) and all(c.usable for c in issuer._open))
    client.check_pool()
    issuer.abandon("aborted", "over")
    list(waiting)
    await until(lambda: not issuer._open)
    for _ in range(2):
        assert (await client.end_of(client.send())).status == "ok"
    await until(lambda: issuer._opening is None)
    issuer.shutdown()
    await until(lambda: not issuer._open and not server.open)
    await server.close()
    return client


@given(
    names=st.lists(st.sampled_from(MIXED), min_size=10, max_size=40),
    at_once=st.integers(1, 6),
    spares=st.integers(0, 3),
    given_up=st.sets(st.integers(0, 39), max_size=3),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_them_ends_each_request_once(
    names: list[str], at_once: int, spares: int, given_up: set[int]
) -> None:
    with watching() as watch:
        client = uvloop.run(mixture(names, at_once, spares, given_up, watch))
    assert set(client.ends.values()) == {1} and client.ends.keys() == client.flights.keys()
    assert watch.failures == []
