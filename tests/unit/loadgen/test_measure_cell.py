"""A whole cell against a server whose faults are known: each has its own status, none is lost."""

import asyncio
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from truth_server import DONE, Reply, answer_well, token_event, truth_server, usage_event, whole_answer

from connector_tax.base.errors import ConfigError
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


async def http_500(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head("500 Internal Server Error", "application/json")
    reply.body(b'{"error":"engine dead"}')
    reply.end()


async def html(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head(content_type="text/html")
    reply.body(b"<html>a proxy's page</html>")
    reply.end()


async def broken_json(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    reply.body(token_event() + b'data: {"choices": [{\n\n')
    reply.end()


async def no_usage(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    reply.body(token_event() * 4 + DONE)
    reply.end()


async def short(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    reply.body(token_event() * 3 + usage_event(8, 3) + DONE)
    reply.end()


async def no_done(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    reply.body(token_event() * 4 + usage_event(8, 4))
    reply.end()


async def reset_midstream(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    reply.body(token_event())
    await reply.writer.drain()
    await asyncio.sleep(0.005)
    reply.reset()


async def reset_in_headers(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
    await reply.writer.drain()
    await asyncio.sleep(0.005)
    reply.reset()


async def not_http(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.raw(b"SSH-2.0-OpenSSH\r\n\r\n")


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        (http_500, "http_error", 'HTTP 500: {"error":"engine dead"}'),
        (html, "malformed", "not an event stream: <html>a proxy's page</html>"),
        (broken_json, "malformed", "not a completion"),
        (no_usage, "malformed", "no usage"),
        (short, "wrong_length", "3 completion tokens; asked for 8 and 4"),
        (no_done, "truncated", "without [DONE]"),
        (reset_midstream, "truncated", "in the middle of the answer"),
        (reset_in_headers, "truncated", "in the middle of the answer"),
        (not_http, "malformed", "not HTTP"),
    ],
)
def test_each_fault_has_its_own_status(script: Any, status: str, text: str) -> None:
    outcome = measure(script, max_cell_s=0.4, min_completed=1)
    assert statuses(outcome) == {status}
    assert text in (outcome.requests[0].error or "")
    assert not outcome.window.min_completed_reached


def test_a_refused_connection_is_said_of_every_request() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outcome = measure_cell(spec(max_cell_s=0.4), target_of(f"http://127.0.0.1:{port}", "m"))
    assert statuses(outcome) == {"connect_error"}


def test_a_server_that_never_answers_ends_in_timeouts() -> None:
    """The drain is bounded, and what has not ended by then is a timeout."""

    async def silent(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(60)

    outcome = measure(silent, max_cell_s=0.3, drain_timeout_s=0.2, inflight_cap=1000)
    assert statuses(outcome) == {"timeout"}


def test_the_cap_drops_and_the_schedule_does_not_shift() -> None:
    async def silent(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(60)

    outcome = measure(silent, max_cell_s=0.3, drain_timeout_s=0.1, inflight_cap=3)
    assert [r.status for r in outcome.requests[:5]] == ["timeout"] * 3 + ["dropped"] * 2
    grid = [r.t_sched_ns - outcome.requests[0].t_sched_ns for r in outcome.requests]
    assert grid == [k * 10_000_000 for k in range(len(grid))]


def test_a_connection_closed_while_idle_is_no_failure() -> None:
    """A server that closes kept-alive connections between requests, which come every 50 ms, costs a connection and not a request."""

    async def close_after(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head()
        reply.body(whole_answer(request))
        reply.end()
        await reply.writer.drain()
        await asyncio.sleep(0.008)
        reply.reset()

    assert statuses(measure(close_after, rate_per_s=20.0, duration_s=0.6)) == {"ok"}


def test_an_answer_that_ends_by_closing_is_ok() -> None:
    async def until_close(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        reply.raw(whole_answer(request))
        await reply.writer.drain()
        reply.writer.close()

    assert statuses(measure(until_close)) == {"ok"}


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


def test_a_base_url_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="Give http://host:port"):
        measure_cell(spec(), target_of("127.0.0.1:8000", "m"))


async def token_by_token(reply: Reply, request: dict[str, Any], number: int) -> None:
    reply.head()
    for _ in range(4):
        reply.body(token_event())
        await reply.writer.drain()
        await asyncio.sleep(0.005)
    reply.body(usage_event(8, 4) + DONE)
    reply.end()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_with_a_stopping_rule_ends_at_a_look(workers: int) -> None:
    """A width that is reached at once, and one that never is: 160 requests are the last look."""
    rule = {"workers": workers, "min_completed": 40, "max_completed": 160}
    wide = measure(token_by_token, **rule, stop_half_width=50.0)
    assert wide.window.half_width_reached and wide.window.looks is not None
    narrow = measure(token_by_token, **rule, stop_half_width=0.0001)
    assert narrow.window.half_width_reached is False and narrow.window.looks is not None
    assert narrow.window.looks[-1].n_planned == 160
    assert statuses(narrow) == {"ok"}
    assert sum(r.phase == "window" for r in narrow.requests) >= 160


@pytest.mark.parametrize(("every", "streamed"), [(20, True), (4, False), (1, False)])
def test_answers_that_come_whole_spoil_a_cell_where_they_are_many(every: int, streamed: bool) -> None:
    """One in twenty is what a busy server does; one in four is a server, client or proxy that does not stream."""

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head()
        if number % every == 0:
            reply.body(token_event() * 8)
        else:
            for _ in range(8):
                reply.body(token_event())
                await reply.writer.drain()
                await asyncio.sleep(0.002)
        reply.body(usage_event(8, 8) + DONE)
        reply.end()

    outcome = measure(script, output_tokens=8, min_completed=60)
    assert statuses(outcome) == {"ok"}
    said = [reason for reason in outcome.health.bottleneck if reason.startswith("not streamed: ")]
    assert bool(said) is not streamed


def test_short_answers_may_come_whole() -> None:
    """An engine that guesses ahead makes four tokens in one step."""
    outcome = measure()
    assert outcome.health.whole_answer_share is None


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


@pytest.mark.parametrize("again", range(3))
def test_a_queue_that_grows_until_the_planned_end_is_overload(again: int) -> None:
    """A worker that stops when it was told to must not end the sending phase before overload is asked about. Three times, since it is a race."""

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


def test_a_cell_that_kept_up_but_for_one_pause_is_not_overloaded() -> None:
    """98 % are served and a few were dropped for the cap; what workers have not told of by the planned end counts all the same."""

    async def one_pause(reply: Reply, request: dict[str, Any], number: int) -> None:
        if number == 70:
            time.sleep(0.31)  # the whole server is away
        await asyncio.sleep(0.05)
        await answer_well(reply, request, number)

    outcome = measure(
        one_pause, warmup_s=0.0, duration_s=3.1, min_completed=0, inflight_cap=30, max_cell_s=9.0
    )
    assert "dropped" in statuses(outcome)
    assert statuses(outcome) <= {"ok", "dropped"} and outcome.window.flags == ()
