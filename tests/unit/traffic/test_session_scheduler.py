"""Conversations on a schedule: turns wait for what they need, sessions arrive whatever happens."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from session_graphs import fan_out_and_in, linear

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import Session, Turn
from connector_tax.run.workload.schedulers import SessionScheduler, Share

MS = 1_000_000
SPEC = CellSpec("a", 10.0, 0, 0, "fixed", 1, 2, 5, 9, 3, 64, 1, 10, 100)
CHAIN = linear(3, first_tokens=9, next_tokens=2, output_tokens=3, wait_s=0.5)
FAN = fan_out_and_in(2, first_tokens=9, next_tokens=2, output_tokens=3, wait_s=0.0)


def next_one(scheduler: SessionScheduler) -> tuple[int, int, int, int]:
    """(due in ms, seq, session, turn), and it counts as sent."""
    assert scheduler.next_due_ns() is not None
    due = scheduler.take()
    return due.offset_ns // MS, due.seq, *scheduler.turn_of(due.seq)


def test_a_turn_is_due_its_wait_after_the_one_before_has_ended() -> None:
    scheduler = SessionScheduler(SPEC, Share(), (CHAIN,))
    assert next_one(scheduler) == (0, 0, 0, 0)
    scheduler.ended(0, True, 30 * MS)
    assert next_one(scheduler)[::2] == (100, 1), "session 1 arrives before turn 1 of session 0 is due"
    for due_ms in (200, 300, 400, 500):
        assert next_one(scheduler)[0] == due_ms
    assert next_one(scheduler)[0::2][:1] == (530,)


def test_sessions_arrive_whether_or_not_the_server_keeps_up() -> None:
    scheduler = SessionScheduler(SPEC, Share(), (CHAIN,))
    assert [next_one(scheduler)[0] for _ in range(6)] == [0, 100, 200, 300, 400, 500]


def test_a_join_waits_for_all_its_branches() -> None:
    scheduler = SessionScheduler(replace(SPEC, arrival="concurrency", concurrency=1), Share(), (FAN,))
    assert next_one(scheduler) == (0, 0, 0, 0)
    assert scheduler.next_due_ns() is None
    scheduler.ended(0, True, 10 * MS)
    assert [next_one(scheduler)[3] for _ in range(2)] == [1, 2]
    scheduler.ended(1, True, 20 * MS)
    assert scheduler.next_due_ns() is None
    scheduler.ended(2, True, 50 * MS)
    assert next_one(scheduler) == (50, 3, 0, 3)


def test_concurrent_sessions_follow_one_another() -> None:
    over: list[int] = []
    scheduler = SessionScheduler(
        replace(SPEC, arrival="concurrency", concurrency=2, ramp_up_s=1.0), Share(), (Session((Turn(1, 1),)),)
    )
    scheduler.on_over = over.append
    assert [next_one(scheduler)[0] for _ in range(2)] == [500, 1000]
    scheduler.ended(0, True, 1500 * MS)
    assert next_one(scheduler) == (1500, 2, 2, 0)
    assert over == [0]


@pytest.mark.parametrize(("cancel", "cancelled"), [(True, 2), (False, 0)])
def test_a_failed_turn_ends_its_session_unless_told_otherwise(cancel: bool, cancelled: int) -> None:
    """Of turns that need no answer of another's; without it they cannot be sent at all."""
    chain = Session((Turn(9, 3), Turn(2, 3, (0,)), Turn(2, 3, (1,))))
    scheduler = SessionScheduler(
        replace(SPEC, arrival="concurrency", concurrency=1), Share(), (chain,), cancel_on_failure=cancel
    )
    next_one(scheduler)
    scheduler.ended(0, False, 10 * MS)
    assert scheduler.cancelled == cancelled
    assert next_one(scheduler)[2:] == ((1, 0) if cancel else (0, 1))


def test_what_is_due_of_a_failed_session_is_not_sent() -> None:
    """One branch fails while the other still waits in the queue; a third in flight ends by itself."""
    fan = fan_out_and_in(3, first_tokens=9, next_tokens=2, output_tokens=3, wait_s=1.0)
    over: list[int] = []
    scheduler = SessionScheduler(replace(SPEC, rate_per_s=0.001), Share(), (fan,))
    scheduler.on_over = over.append
    forgotten: list[int] = []
    scheduler.on_cancelled = forgotten.append
    next_one(scheduler)
    scheduler.ended(0, True, 0)
    assert [next_one(scheduler)[3] for _ in range(2)] == [1, 2]
    sent = [seq for seq, place in scheduler._turn_of.items() if place in ((0, 1), (0, 2))]
    waiting = [seq for seq, place in scheduler._turn_of.items() if place == (0, 3)]
    assert set(waiting) <= set(scheduler.upcoming()), "announced, and so perhaps rendered"
    scheduler.ended(sent[0], False, 1100 * MS)
    assert over == [], "one is still in flight"
    assert next_one(scheduler)[2] == 1
    scheduler.ended(sent[1], True, 1200 * MS)
    assert over == [0]
    assert scheduler.cancelled == 2
    assert forgotten == waiting


@pytest.mark.parametrize(("arrival", "drops"), [("fixed", True), ("poisson", True), ("concurrency", False)])
def test_only_sessions_that_arrive_by_themselves_meet_the_cap(arrival: str, drops: bool) -> None:
    """Of a fixed number of sessions none is dropped: the next one would be due at once, and dropped, and so for ever."""
    assert SessionScheduler(replace(SPEC, arrival=arrival, concurrency=3), Share(), (CHAIN,)).drops is drops


def kept(*turns: Turn) -> SessionScheduler:
    one = replace(SPEC, arrival="concurrency", concurrency=1)
    return SessionScheduler(one, Share(), (Session(turns),), cancel_on_failure=False)


def test_a_session_of_which_nothing_can_be_said_is_over() -> None:
    scheduler = kept(Turn(9, 3), Turn(2, 3, (0,), (0,)))
    next_one(scheduler)
    scheduler.ended(0, False, 10 * MS)
    assert (scheduler.cancelled, next_one(scheduler)[2:]) == (1, (1, 0))


@pytest.mark.parametrize(("history", "goes_on"), [((2,), True), ((1, 2), False)])
def test_a_branch_whose_history_was_answered_goes_on_after_a_join_that_failed(
    history: tuple[int, ...], goes_on: bool
) -> None:
    """Of two branches one failed; the join waited for both, and says on from the other one or from both."""
    branch = Turn(2, 3, (0,), (0,))
    scheduler = kept(Turn(9, 3), branch, branch, Turn(2, 3, (1, 2), history))
    next_one(scheduler)
    scheduler.ended(0, True, 0)
    branches = {next_one(scheduler)[3]: seq for seq in (1, 2)}
    scheduler.ended(branches[1], False, 5 * MS)
    assert scheduler.next_due_ns() is None
    scheduler.ended(branches[2], True, 6 * MS)
    assert next_one(scheduler)[2:] == ((0, 3) if goes_on else (1, 0))
    assert scheduler.cancelled == (not goes_on)


def test_sessions_that_fail_one_after_the_other_begin_later_and_later() -> None:
    scheduler = SessionScheduler(
        replace(SPEC, arrival="concurrency", concurrency=2), Share(), (Session((Turn(1, 1),)),)
    )
    waits = []
    for _ in range(8):
        due_ms, seq, *_ = next_one(scheduler)
        waits.append(due_ms)
        scheduler.ended(seq, False, 0)
    assert waits == [0, 0, 0, 0, 10, 10, 20, 20]


@pytest.mark.parametrize("pattern", [{}, {"arrival": "concurrency", "concurrency": 2}])
@pytest.mark.parametrize("of", [1, 2])
def test_a_fixed_number_of_sessions_is_over_when_their_last_turn_has_ended(
    pattern: dict[str, object], of: int
) -> None:
    sessions: list[tuple[int, int]] = []
    for index in range(of):
        spec = replace(SPEC, num_requests=3, **pattern)  # type: ignore[arg-type]
        scheduler = SessionScheduler(spec, Share(index, of), (CHAIN,))
        while not scheduler.exhausted:
            assert scheduler.next_due_ns() is not None
            due = scheduler.take()
            sessions.append(scheduler.turn_of(due.seq))
            scheduler.ended(due.seq, True, due.offset_ns)
    assert sorted(sessions) == [(number, turn) for number in range(3) for turn in range(3)]


def test_a_trace_is_exhausted_when_its_last_session_is_over() -> None:
    trace = tuple(Session((Turn(1, 1),), arrival_s=t) for t in (0.0, 0.03))
    scheduler = SessionScheduler(SPEC, Share(), trace)
    assert [next_one(scheduler)[0] for _ in range(2)] == [0, 30]
    assert scheduler.next_due_ns() is None and not scheduler.exhausted
    scheduler.ended(0, True, 0)
    scheduler.ended(1, False, 0)
    assert scheduler.exhausted
