"""The generator on a loop of its own, with an issuer that only takes notes."""

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import Status
from connector_tax.run.loadgen import generator as module
from connector_tax.run.loadgen.generator import LoadGenerator, Part, Reports
from connector_tax.run.loadgen.issuer import Flight, SampleIssuer
from connector_tax.run.loadgen.messages import Counters, Ended
from connector_tax.run.workload.schedulers import WHOLE, scheduler_for

OPEN = CellSpec("a", 1000.0, 8, 4, "fixed", 1, 2, 5, 9, 3, 64, 1, 10, 100)
CLOSED = replace(OPEN, rate_per_s=0.0, arrival="concurrency", concurrency=40)
RENDER_S = 0.0015


class Notes(SampleIssuer):
    """Keeps flights on their way and the turn of the loop in which each was sent."""

    def __init__(self, turn: Callable[[], int]) -> None:
        self.flying: list[Flight] = []
        self.turns: list[int] = []
        self._turn = turn

    async def start(self, on_end: Callable[[Flight], None]) -> None:
        self.on_end = on_end

    def issue(self, flight: Flight, payload: bytes) -> None:
        self.flying.append(flight)
        self.turns.append(self._turn())

    def abandon(self, status: Status, reason: str) -> None:
        flying, self.flying = self.flying, []
        for flight in flying:
            flight.status, flight.error = status, reason
            self.on_end(flight)

    def shutdown(self) -> None: ...


class SlowWords:
    """A workload that takes its time to render."""

    def __init__(self) -> None:
        self.rendered: list[int] = []
        self.forgotten: set[int] = set()

    def render(self, seq: int) -> bytes:
        time.sleep(RENDER_S)
        self.rendered.append(seq)
        return b"x" * 100

    def lengths(self, seq: int) -> tuple[int | None, int]:
        return None, 0

    def place(self, seq: int) -> tuple[int, int] | None:
        return None

    def needs_ids(self, seq: int) -> bool:
        return False

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None:
        self.forgotten.add(seq)


class Bench:
    """A generator, what it told, and how often its loop came round."""

    def __init__(self, tmp_path: Path, spec: CellSpec, stop_at_ns: int) -> None:
        self.turn = 0
        self.words = SlowWords()
        self.issuer = Notes(lambda: self.turn)
        self.told: list[Any] = []
        self.ended: list[Ended] = []
        self.generator = LoadGenerator(
            Part(spec, WHOLE, scheduler_for(spec), self.issuer, self.words),
            Counters(tmp_path / "counters", 1),
            Reports(
                on_batch=self.ended.extend,
                on_stopped=lambda at_ns, exhausted: self.told.append("stopped"),
                on_idle=lambda: self.told.append("idle"),
            ),
            stop_at_ns=stop_at_ns,
        )

    async def run(self, t0_ns: Callable[[], int], seconds: float) -> None:
        await self.generator.prepare()
        self.generator.begin(t0_ns())
        end = time.monotonic() + seconds
        while time.monotonic() < end and "stopped" not in self.told:
            self.turn += 1
            await asyncio.sleep(0)


def test_a_closed_loop_opens_its_slots_with_bytes_read_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 slots whose prompts take 1.5 ms each: a response that comes meanwhile waits for a few of them, not for 60 ms."""
    monkeypatch.setattr(module, "START_BYTES", 1)
    bench = Bench(tmp_path, CLOSED, monotonic_ns() + 10**12)

    async def scenario() -> None:
        await bench.run(monotonic_ns, 0.3)
        bench.generator.close()

    asyncio.run(scenario())
    assert len(bench.issuer.turns) == 40
    assert bench.issuer.turns[-1] - bench.issuer.turns[0] >= 10


def test_what_a_closed_loop_opens_with_is_rendered_before_its_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLOSED, monotonic_ns() + 10**12)

    async def scenario() -> None:
        await bench.generator.prepare()
        bench.generator.close()

    asyncio.run(scenario())
    assert bench.words.rendered == list(range(40))


def test_a_backlog_is_sent_with_bytes_read_in_between(tmp_path: Path) -> None:
    """40 arrivals that are due, dropped for the cap or not, and none of them is left out."""
    bench = Bench(tmp_path, replace(OPEN, inflight_cap=3), monotonic_ns())

    async def scenario() -> None:
        await bench.run(lambda: bench.generator._stop_at_ns - 40_000_000, 2.0)
        bench.generator.abandon("aborted", "over")
        bench.generator.close()

    asyncio.run(scenario())
    assert sorted(e.seq for e in bench.ended) == list(range(40))
    assert bench.turn >= 10
    assert bench.told == ["stopped", "idle"]
    # Memory does not grow with the cell: no prompt of what was sent or dropped is kept.
    assert bench.words.forgotten == set(range(3, 40)), "dropped while it was sending"
    assert min(bench.generator._rendered, default=40) >= 40


@pytest.mark.parametrize("again", [False, True], ids=["breaks", "breaks while it breaks"])
def test_a_generator_that_breaks_says_so_and_ends(tmp_path: Path, again: bool) -> None:
    """What is in flight ends with the reason, and the end is told once, whatever of the rest raises."""
    bench = Bench(tmp_path, CLOSED, monotonic_ns() + 10**12)

    def raises(status: Status, reason: str) -> None:
        raise KeyError(8)

    async def scenario() -> None:
        await bench.run(monotonic_ns, 0.1)
        if again:
            bench.issuer.abandon = raises  # type: ignore[method-assign]
        with pytest.raises(KeyError) if again else nullcontext():
            bench.generator.fail("the load generator failed: KeyError: 7")
        bench.generator.fail("again")
        bench.generator.close()

    asyncio.run(scenario())
    assert bench.told == ["stopped", "idle"]
    assert bench.generator.failure == "the load generator failed: KeyError: 7"
    assert [(e.status, e.error) for e in bench.ended] == [("aborted", bench.generator.failure)] * (
        40 * (not again)
    )


def test_what_had_ended_is_told_before_the_end_of_sending_is(tmp_path: Path) -> None:
    """Whether the server kept up is judged when all have stopped: batches of 0.2 s must not come behind that."""
    bench = Bench(tmp_path, OPEN, monotonic_ns() + 10**12)
    known: list[int] = []

    async def scenario() -> None:
        bench.generator._on_stopped = lambda at_ns, exhausted: known.append(len(bench.ended))
        await bench.run(monotonic_ns, 0.02)
        while len(bench.issuer.flying) < 10:
            await asyncio.sleep(0.01)
        for flight in bench.issuer.flying[:10]:
            flight.status = "ok"
            bench.issuer.on_end(flight)
        bench.generator.stop(monotonic_ns())
        while not known:
            await asyncio.sleep(0.01)
        bench.generator.close()
        assert known == [10]

    asyncio.run(scenario())
