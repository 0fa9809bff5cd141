"""A whole cell against a server whose faults are known: each has its own status, none is lost."""

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from truth_server import DONE, Reply, answer_well, token_event, truth_server, usage_event

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import CellOutcome, measure_cell

pytestmark = pytest.mark.usefixtures("shared_worker")


def spec(**changes: Any) -> CellSpec:
    own = {
        "rate_per_s": 100.0,
        "warmup_s": 0.05,
        "duration_s": 0.2,
        "min_completed": 10,
        "max_cell_s": 3.0,
        "drain_timeout_s": 0.5,
        "inflight_cap": 64,
    }
    return cell_spec(**{**own, **changes})


def measure(script: Any = answer_well, **changes: Any) -> CellOutcome:
    with truth_server(script) as base_url:
        return measure_cell(spec(**changes), target_of(base_url, "m"))


def statuses(outcome: CellOutcome) -> set[str]:
    return {r.status for r in outcome.requests}


def test_a_healthy_cell_is_all_ok_and_complete() -> None:
    """Every scheduled arrival has a record, in order, inside the schedule's grid."""
    outcome = measure()
    assert statuses(outcome) == {"ok"}
    assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
    assert outcome.window.min_completed_reached
    first = outcome.requests[0].t_sched_ns
    assert [r.t_sched_ns - first for r in outcome.requests] == [
        k * 10_000_000 for k in range(len(outcome.requests))
    ]
    for r in outcome.requests:
        assert r.t_send_ns is not None and r.t_first_token_ns is not None and r.t_last_token_ns is not None
        assert r.t_sched_ns <= r.t_send_ns <= r.t_first_token_ns <= r.t_last_token_ns
        assert (r.prompt_tokens, r.completion_tokens) == (8, 4)


def test_connections_are_kept_alive() -> None:
    """Requests one after the other use the connections that are open, not one each."""
    ports = set()

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        ports.add(reply.writer.get_extra_info("peername")[1])
        await answer_well(reply, request, number)

    outcome = measure(script)
    assert len(ports) <= 8 < len(outcome.requests)


async def silent(reply: Reply, request: dict[str, Any], number: int) -> None:
    await asyncio.sleep(60)


def test_a_server_that_never_answers_ends_in_timeouts() -> None:
    """The drain is bounded, and what has not ended by then is a timeout."""

    outcome = measure(silent, max_cell_s=0.3, drain_timeout_s=0.2, inflight_cap=1000)
    assert statuses(outcome) == {"timeout"}


def test_the_cap_drops_and_the_schedule_does_not_shift() -> None:
    outcome = measure(silent, max_cell_s=0.3, drain_timeout_s=0.1, inflight_cap=3)
    assert [r.status for r in outcome.requests[:5]] == ["timeout"] * 3 + ["dropped"] * 2
    grid = [r.t_sched_ns - outcome.requests[0].t_sched_ns for r in outcome.requests]
    assert grid == [k * 10_000_000 for k in range(len(grid))]


def test_a_dead_engine_ends_the_cell_at_once() -> None:
    """The cell does not wait out its time when whoever watches the engine says it is gone."""

    gone = threading.Event()

    async def silent(reply: Reply, request: dict[str, Any], number: int) -> None:
        # With requests in flight, however long the workers took to start.
        if number == 10:
            gone.set()
        await asyncio.sleep(60)

    start = time.monotonic()
    with truth_server(silent) as base_url:
        outcome = measure_cell(
            spec(max_cell_s=60, drain_timeout_s=60),
            target_of(base_url, "m"),
            should_abort=lambda: "engine died" if gone.is_set() else None,
        )
    assert time.monotonic() - start < 20
    assert statuses(outcome) == {"aborted"}
    assert outcome.health.aborted == "engine died"


def test_a_cell_that_is_told_to_stop_sends_no_more_and_waits_for_what_it_sent() -> None:
    asked = threading.Event()

    async def slow(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0.2)
        await answer_well(reply, request, number)
        if number == 10:
            asked.set()

    with truth_server(slow) as base_url:
        outcome = measure_cell(
            spec(duration_s=30.0, max_cell_s=60.0, drain_timeout_s=10.0),
            target_of(base_url, "m"),
            should_stop=lambda: "enough" if asked.is_set() else None,
        )
    assert statuses(outcome) == {"ok"}
    assert outcome.health.aborted == "enough"
    assert outcome.window.t_stop_ns - outcome.window.t0_ns < 20e9
    assert outcome.window.drained_ns > outcome.window.t_stop_ns


async def token_by_token(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    for _ in range(4):
        reply.body(token_event())
        await reply.writer.drain()
        await asyncio.sleep(0.005)
    reply.body(usage_event(8, 4) + DONE)
    reply.end()


def test_a_cell_with_a_stopping_rule_ends_at_a_look() -> None:
    """A width that is reached at once, and one that never is: 80 requests are the last look."""
    rule = {"workers": 2, "min_completed": 20, "max_completed": 80}
    wide = measure(token_by_token, **rule, stop_half_width=50.0)
    assert wide.window.half_width_reached and wide.window.looks is not None
    narrow = measure(token_by_token, **rule, stop_half_width=0.0001)
    assert narrow.window.half_width_reached is False and narrow.window.looks is not None
    assert narrow.window.looks[-1].n_planned == 80
    assert statuses(narrow) == {"ok"}
    assert sum(r.phase == "window" for r in narrow.requests) >= 80


def test_a_cell_behind_a_growing_queue_ends_and_gives_up_what_is_in_flight() -> None:
    """The drain would take as long as the queue is; throughput stands, and every arrival has a record."""

    async def slow(reply: Reply, request: dict[str, Any], number: int) -> None:
        # One answer at first, so that warm-up ends; then one in twenty.
        await asyncio.sleep(0 if number == 0 or number % 20 == 0 else 30)
        await answer_well(reply, request, number)

    asked = 0

    def growing() -> list[tuple[int, float]]:
        nonlocal asked
        asked += 3
        return [(time.monotonic_ns(), float(asked + k)) for k in range(3)]

    with truth_server(slow) as base_url:
        own = spec(
            inflight_cap=1000, duration_s=1.0, min_completed=500, max_cell_s=60.0, drain_timeout_s=60.0
        )
        outcome = measure_cell(own, target_of(base_url, "m"), queue=growing)
    assert outcome.window.overloaded
    assert outcome.window.flags == ("overloaded",)
    assert statuses(outcome) == {"ok", "aborted"}
    assert {r.error for r in outcome.requests if r.status == "aborted"} == {
        "given up: the cell ended behind a growing queue"
    }
    assert outcome.window.drained_ns - outcome.window.t_stop_ns < 10e9
    assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))


def test_a_queue_that_grows_until_the_planned_end_is_overload() -> None:
    """A worker that stops when it was told to must not end the sending phase before overload is asked about."""

    async def slower_and_slower(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0.4 + 0.02 * number)
        await answer_well(reply, request, number)

    asked = 0

    def growing() -> list[tuple[int, float]]:
        nonlocal asked
        asked += 1
        return [(time.monotonic_ns(), 5.0 * asked)]

    with truth_server(slower_and_slower) as base_url:
        own = spec(rate_per_s=40.0, warmup_s=0.1, duration_s=1.0, min_completed=1, drain_timeout_s=2.0)
        outcome = measure_cell(own, target_of(base_url, "m"), queue=growing)
    assert outcome.window.overloaded
