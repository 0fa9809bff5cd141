"""A cell ends at once where the engine does not keep up: after its time, and only behind a queue that grows."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec

from connector_tax.base.statistics.overload import queue_grows
from connector_tax.run.workload.arrivals import Schedule
from connector_tax.run.workload.protocol import CellProtocol

S = 1_000_000_000
CALM, GROWING = (lambda s: 0.0), (lambda s: s / 2)


def run(completed_per_s: float, waiting: Any, *, until_s: int = 200, **changes: Any) -> CellProtocol:
    """A cell of 2 req/s whose window begins at 10 s; asked once a second."""
    spec = cell_spec(**{"rate_per_s": 2.0, "min_completed": 500, "max_cell_s": 900.0, **changes})
    cell = CellProtocol(spec, t0_ns=0)
    cell.ended(0, ok=True, now_ns=S)
    done = 0
    for second in range(1, until_s):
        now_ns = second * S
        while done < completed_per_s * second:
            cell.ended(now_ns - S, ok=True, now_ns=now_ns)
            done += 1
        cell.sampled(now_ns, waiting(second))
        if cell.stopped(now_ns):
            break
    return cell


@pytest.mark.parametrize("min_completed", [500, 20])
def test_an_engine_behind_a_growing_queue_ends_its_cell_when_its_time_is_over(min_completed: int) -> None:
    """500 completions at 1.4 a second would take six minutes, and p90 would be that of a longer queue."""
    cell = run(1.4, GROWING, min_completed=min_completed)
    assert cell.t_stop_ns == 70 * S
    window = cell.window(71 * S)
    assert window.overloaded
    assert window.flags == ("overloaded",)


@pytest.mark.parametrize(
    ("completed_per_s", "waiting"),
    [(1.98, GROWING), (1.4, CALM), (1.4, lambda s: 9.0), (1.4, lambda s: 0.9 if s > 40 else 0.0)],
    ids=["keeps up", "nothing waits", "waits and does not grow", "less than one waits"],
)
def test_anything_less_goes_on(completed_per_s: float, waiting: Any) -> None:
    cell = run(completed_per_s, waiting)
    assert cell.t_stop_ns is None


@pytest.mark.parametrize(
    ("completed_per_s", "flags"), [(1.4, ("overloaded",)), (1.98, ("min_completed_not_reached",))]
)
def test_a_cell_that_its_longest_time_ends_first_is_judged_at_that_end(
    completed_per_s: float, flags: tuple[str, ...]
) -> None:
    """30 s of a window that was to last 60."""
    assert run(completed_per_s, GROWING, max_cell_s=40.0).window(41 * S).flags == flags
    cell = run(completed_per_s, GROWING, max_cell_s=40.0, until_s=40)
    assert cell.t_stop_ns is None
    cell.overloaded_at_end(39 * S)
    cell.stop(39 * S)
    assert cell.window(41 * S).flags == flags


def test_a_queue_at_the_in_flight_cap_cannot_grow_and_drops_instead() -> None:
    cell = run(1.4, lambda s: 200.0, until_s=69)
    cell.dropped(60 * S)
    assert cell.overloaded(70 * S), "also where nobody samples the queue"


def test_poisson_arrivals_are_asked_for_what_was_sent() -> None:
    """Chance sent less than the rate says: an engine that completes all of it is not overloaded."""
    seed = next(s for s in range(100) if sent_per_s(s) < 0.9 * 2)
    assert run(0.99 * sent_per_s(seed), GROWING, arrival="poisson", seed=seed, until_s=71).t_stop_ns is None
    assert run(0.90 * sent_per_s(seed), GROWING, arrival="poisson", seed=seed, until_s=71).t_stop_ns


def test_a_burst_of_poisson_arrivals_is_no_overload() -> None:
    """It leaves a queue at the end of a window in which nothing waited before."""
    burst = lambda s: 9.0 if s > 60 else 0.0  # noqa: E731
    seed = next(s for s in range(100) if sent_per_s(s) > 2)
    assert run(0.9 * sent_per_s(seed), burst, arrival="poisson", seed=seed, until_s=71).t_stop_ns is None


def test_few_random_arrivals_say_nothing() -> None:
    """15 requests in a minute: one in flight more is 7 %."""
    slow = run(0.2, GROWING, arrival="poisson", rate_per_s=0.25, seed=1, until_s=120)
    assert slow.t_stop_ns is None


def sent_per_s(seed: int) -> float:
    schedule = Schedule("poisson", 2.0, seed)
    return (schedule.count_before(70 * S) - schedule.count_before(10 * S)) / 60


def test_a_closed_loop_has_no_rate_to_fall_behind() -> None:
    assert run(0.1, GROWING, arrival="concurrency", rate_per_s=0.0, concurrency=4).t_stop_ns is None


def test_few_samples_say_nothing_of_a_trend() -> None:
    assert not queue_grows([0, 0, 5, 9, 20])
    assert queue_grows([0, 0, 5, 9, 20, 20])
    assert not queue_grows([20, 20, 9, 9, 5, 5])


def test_a_cell_too_short_to_judge_its_queue_says_so() -> None:
    """3 s are three samples; its percentiles would otherwise pass for those of an engine that keeps up."""
    short = {"duration_s": 3.0, "min_completed": 3}
    assert run(0.7, GROWING, **short).window(200 * S).flags == ("overload_unjudged",)
    assert run(0.7, CALM, **short).window(200 * S).flags == ()
    assert run(2.2, GROWING, **short).window(200 * S).flags == ()
    assert run(0.7, GROWING, duration_s=6.0, min_completed=3).window(200 * S).flags == ("overloaded",)


def test_the_load_generator_says_so_as_well_at_the_end_of_a_cell() -> None:
    """It ends a cell by ``stop``, at the time at which its workers stopped."""
    cell = CellProtocol(cell_spec(rate_per_s=100.0, duration_s=3.0, min_completed=20), t0_ns=0)
    cell.ended(0, ok=True, now_ns=S)
    start_ns = cell.window_start_ns
    assert start_ns is not None
    for k in range(100):
        cell.ended(start_ns, ok=True, now_ns=start_ns + k * S // 50)
    for second, waiting in enumerate((20.0, 60.0, 120.0), start=1):
        cell.sampled(start_ns + second * S, waiting)
    t_stop_ns = start_ns + 3 * S
    assert cell.overloaded_at_end(t_stop_ns) is None
    cell.stop(t_stop_ns)
    assert cell.window(t_stop_ns).flags == ("overload_unjudged",)


def fast(completed: int, *, told_until: int) -> CellProtocol:
    """A cell of 100 req/s and 2 s without a warm-up, in which one arrival was dropped and requests end evenly."""
    spec = cell_spec(rate_per_s=100.0, warmup_s=0.0, duration_s=2.0, min_completed=500, max_cell_s=900.0)
    cell = CellProtocol(spec, t0_ns=0)
    ends = [2 * S * k // completed for k in range(completed)]
    for end_ns in ends:
        if end_ns <= told_until:
            cell.ended(end_ns, ok=True, now_ns=end_ns)
    cell.dropped(S)
    return cell


def test_what_was_sent_is_held_against_what_had_ended_by_the_same_time() -> None:
    """98 % are served, and what ended in the last 0.2 s has not been told yet: at most 90 % of what was sent by now."""
    cell = fast(196, told_until=9 * S // 5)
    assert cell.gives_up(2 * S, 9 * S // 5) is None
    assert cell.gives_up(11 * S // 5, 2 * S) is not None, (
        "nothing ended in the last 0.2 s, and all of it was told"
    )


def test_what_ended_behind_the_time_that_is_judged_does_not_count() -> None:
    cell = fast(180, told_until=2 * S)
    for _ in range(100):
        cell.ended(S, ok=True, now_ns=2 * S + 1)
    assert cell.overloaded_at_end(2 * S) is not None
    assert cell.overloaded_at_end(2 * S + 1) is None


def test_the_end_decides_whatever_was_found_before_it() -> None:
    """Asked twice within a second; the window flags what held at its end."""
    cell = fast(200, told_until=8 * S // 5)
    assert cell.overloaded(2 * S)
    for k in range(160, 200):
        cell.ended(S, ok=True, now_ns=S * k // 100)
    assert cell.overloaded_at_end(2 * S) is None
    cell.stop(2 * S)
    assert cell.window(2 * S).flags == ("min_completed_not_reached",)
    behind = fast(180, told_until=2 * S)
    assert "found" in (behind.overloaded_at_end(2 * S) or "")
    behind.stop(2 * S)
    assert "overloaded" in behind.window(2 * S).flags
