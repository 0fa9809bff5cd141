"""Load patterns: what goes out next and when, without a clock."""

import heapq
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from connector_tax.base.records.cell import CellSpec
from connector_tax.run.workload.schedulers import Due, Scheduler, Share, scheduler_for

MS = 1_000_000
OPEN = CellSpec("a", 100.0, 8, 4, "fixed", 1, 2, 5, 9, 3, 64, 1, 10, 100)
CLOSED = replace(OPEN, rate_per_s=0.0, arrival="concurrency", concurrency=4)


def first(scheduler: Scheduler, count: int) -> list[tuple[int, int]]:
    out = []
    for _ in range(count):
        assert scheduler.next_due_ns() is not None
        due = scheduler.take()
        out.append((due.offset_ns, due.seq))
    return out


def test_every_pattern_is_known_by_name() -> None:
    known = ["concurrency", "fixed", "gamma", "max_throughput", "offline", "poisson"]
    assert sorted(Scheduler.patterns) == known


def test_an_open_loop_takes_no_notice_of_the_server() -> None:
    patient, hurried = scheduler_for(OPEN), scheduler_for(OPEN)
    for seq in range(50):
        hurried.ended(seq, True, 0)
    assert first(patient, 50) == first(hurried, 50) == [(k * 10 * MS, k) for k in range(50)]


@pytest.mark.parametrize("arrival", ["fixed", "poisson", "gamma"])
def test_shares_divide_a_schedule_and_change_nothing_in_it(arrival: str) -> None:
    spec = replace(OPEN, arrival=arrival, gamma_shape=2.0)
    whole = first(scheduler_for(spec), 300)
    parts = [first(scheduler_for(spec, Share(index, 3)), 100) for index in range(3)]
    assert sorted(due for part in parts for due in part) == whole
    assert [seq for _, seq in parts[1][:3]] == [1, 4, 7]


@pytest.mark.parametrize(("shape", "law"), [(4.0, stats.gamma(4.0)), (0.5, stats.gamma(0.5))])
def test_gamma_gaps_follow_their_law(shape: float, law: stats.rv_continuous) -> None:
    """Kolmogorov-Smirnov against scipy's distribution of the same shape, with mean 1 / rate."""
    spec = replace(OPEN, arrival="gamma", gamma_shape=shape, rate_per_s=50.0)
    offsets = [0] + [offset for offset, _ in first(scheduler_for(spec), 5000)]
    scaled = np.diff(offsets) / 1e9 * 50.0 * shape
    assert stats.kstest(scaled, law.cdf).pvalue > 0.001


def test_a_closed_loop_keeps_its_number_in_flight() -> None:
    """Four go at once; a fifth only when one has ended, and is due from then on."""
    loop = scheduler_for(CLOSED)
    assert first(loop, 4) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert loop.next_due_ns() is None
    loop.ended(2, True, 70 * MS)
    loop.ended(0, False, 80 * MS)
    assert first(loop, 2) == [(70 * MS, 4), (80 * MS, 5)]
    assert loop.next_due_ns() is None


def test_a_closed_loop_ramps_up_linearly() -> None:
    """By half of the ramp half of the target is in flight."""
    loop = scheduler_for(replace(CLOSED, ramp_up_s=1.0))
    assert [offset for offset, _ in first(loop, 4)] == [250 * MS, 500 * MS, 750 * MS, 1000 * MS]


def test_the_slots_of_a_closed_loop_are_divided_among_workers() -> None:
    loops = [scheduler_for(replace(CLOSED, concurrency=5), Share(i, 2)) for i in range(2)]
    assert [len(first(loop, n)) for loop, n in zip(loops, (3, 2), strict=True)] == [3, 2]
    assert all(loop.next_due_ns() is None for loop in loops)


@pytest.mark.parametrize("spec", [OPEN, CLOSED])
def test_what_comes_next_is_known_ahead(spec: CellSpec) -> None:
    """Prompts are rendered before they are due, so the next samples are named in order."""
    scheduler = scheduler_for(spec)
    for seq in range(20):
        if scheduler.next_due_ns() is None:
            scheduler.ended(0, True, 0)
        assert scheduler.upcoming()[:2] == [seq, seq + 1]
        assert scheduler.take().seq == seq


def test_a_slot_that_fails_again_and_again_opens_later_and_later() -> None:
    """Four slots against a server that refuses: the first round costs nothing, and a success takes one failure back."""
    loop = scheduler_for(CLOSED)
    first(loop, 4)
    waits = []
    for seq in range(44):
        loop.ended(seq, False, 0)
        waits.append(first(loop, 1)[0][0] // MS)
    assert waits[::4] == [0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    assert all(len(set(waits[k : k + 4])) == 1 for k in range(0, 44, 4))
    for seq in range(44, 56):
        loop.ended(seq, True, 7 * MS)
    loop.ended(56, False, 8 * MS)
    assert [offset for offset, _ in first(loop, 13)] == [7 * MS] * 12 + [8 * MS + 160 * MS]


@pytest.mark.parametrize("slots", [4, 64])
def test_a_server_that_answers_one_of_many_is_not_asked_as_fast_as_it_can_refuse(slots: int) -> None:
    """One of 32 requests succeeds: at full speed there would be no end to the records. Also of more slots than that."""
    loop = scheduler_for(replace(CLOSED, concurrency=slots))
    now, sent = 0, 0
    while now < 10_000 * MS:
        due = loop.take()
        now = max(now, due.offset_ns) + MS // 10
        loop.ended(due.seq, due.seq % 32 == 0, now)
        sent += 1
    assert sent < 250 * slots, "a second's wait, and a few requests before; a server could refuse 100,000"


def test_a_server_that_answers_more_than_it_refuses_is_asked_at_once() -> None:
    loop = scheduler_for(CLOSED)
    first(loop, 4)
    for seq in range(1000):
        loop.ended(seq, seq % 3 > 0, seq * MS)
        assert loop.take().offset_ns == seq * MS


@pytest.mark.parametrize("slots", [0, 3, 5, 10_000])
def test_what_comes_next_is_named_in_order_however_much_is_due(slots: int) -> None:
    offsets = np.random.default_rng(slots).integers(0, 50, slots).tolist()
    heap = [Due(offset, seq) for seq, offset in enumerate(offsets)]
    heapq.heapify(heap)
    loop = scheduler_for(CLOSED)
    loop._heap = heap
    found = loop.upcoming()
    by_time = sorted((offset, seq) for seq, offset in enumerate(offsets))
    assert found[:slots] == [seq for _, seq in by_time[:4]]


def test_what_a_closed_loop_opens_with_is_known() -> None:
    """To be rendered before T0; what the ramp brings later has time."""
    loop = scheduler_for(replace(CLOSED, concurrency=10, ramp_up_s=5.0))
    assert loop.starting(1_400 * MS) == [0, 1]
    assert scheduler_for(CLOSED).starting(1) == [0, 1, 2, 3]


@pytest.mark.parametrize("spec", [OPEN, CLOSED, replace(OPEN, rate_per_s=0.0, arrival="offline")])
@pytest.mark.parametrize("of", [1, 3])
def test_a_fixed_number_is_sent_once_each_and_then_nothing(spec: CellSpec, of: int) -> None:
    sent: list[int] = []
    for index in range(of):
        scheduler = scheduler_for(replace(spec, num_requests=10), Share(index, of))
        while scheduler.next_due_ns() is not None:
            due = scheduler.take()
            sent.append(due.seq)
            assert set(scheduler.upcoming()) <= set(range(10))
            scheduler.ended(due.seq, True, due.offset_ns)
        assert scheduler.exhausted
    assert sorted(sent) == list(range(10))


def test_a_closed_loop_that_waits_for_its_slots_is_not_exhausted() -> None:
    scheduler = scheduler_for(replace(CLOSED, num_requests=6))
    for _ in range(4):
        scheduler.take()
    assert scheduler.next_due_ns() is None and not scheduler.exhausted
    scheduler.ended(0, True, MS)
    scheduler.ended(1, True, MS)
    assert [scheduler.take().seq for _ in range(2)] == [4, 5]
    assert scheduler.exhausted, "what is in flight opens no slot any more"


def test_offline_everything_is_due_at_once_and_nothing_is_dropped() -> None:
    scheduler = scheduler_for(replace(OPEN, rate_per_s=0.0, arrival="offline", num_requests=100))
    assert first(scheduler, 100) == [(0, k) for k in range(100)]
    assert not scheduler.drops


def test_a_cell_that_ends_by_time_is_never_exhausted() -> None:
    assert not scheduler_for(OPEN).exhausted
    scheduler = scheduler_for(CLOSED)
    for _ in range(4):
        scheduler.take()
    assert scheduler.next_due_ns() is None and not scheduler.exhausted
