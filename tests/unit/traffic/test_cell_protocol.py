"""When warm-up ends, when the window ends, and what happens to an arrival that is too much."""

import ast
import sys
from pathlib import Path

import pytest

import connector_tax
from connector_tax.run.workload.protocol import CellProtocol, may_send

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec

S = 1_000_000_000


@pytest.mark.parametrize(("first_s", "begins_s"), [(2, 10), (17, 17)])
def test_warm_up_lasts_its_time_and_until_the_first_completion(first_s: int, begins_s: int) -> None:
    """A cold engine that needs 17 s for its first request is not measured before."""
    cell = CellProtocol(cell_spec(), t0_ns=0)
    cell.ended(0, ok=True, now_ns=first_s * S)
    cell.stop(100 * S)
    assert cell.window(100 * S).window_start_ns == begins_s * S


def test_an_engine_that_fails_everything_does_not_stay_in_warm_up() -> None:
    cell = CellProtocol(cell_spec(), t0_ns=0)
    cell.ended(0, ok=False, now_ns=1 * S)
    assert cell.stopped(200 * S)
    window = cell.window(200 * S)
    assert window.window_start_ns == 10 * S
    assert not window.min_completed_reached


def test_the_window_waits_for_its_minimum_of_completions() -> None:
    """At 60 s only two of three window requests are done, so sending goes on until the third."""
    cell = CellProtocol(cell_spec(), t0_ns=0)
    cell.ended(0, ok=True, now_ns=1 * S)
    cell.ended(11 * S, ok=True, now_ns=12 * S)
    cell.ended(30 * S, ok=True, now_ns=31 * S)
    assert not cell.stopped(75 * S)
    cell.ended(80 * S, ok=True, now_ns=81 * S)
    assert cell.stopped(81 * S)
    assert cell.window(82 * S).t_stop_ns == 81 * S


@pytest.mark.parametrize(("sched_s", "ok"), [(9, True), (20, False)], ids=["of the warm-up", "failed"])
def test_what_does_not_count_towards_the_minimum(sched_s: int, ok: bool) -> None:
    cell = CellProtocol(cell_spec(min_completed=1), t0_ns=0)
    cell.ended(0, ok=True, now_ns=1 * S)
    cell.ended(sched_s * S, ok=ok, now_ns=21 * S)
    assert not cell.stopped(75 * S)


def test_a_cell_gives_up_at_its_longest_and_says_so() -> None:
    cell = CellProtocol(cell_spec(), t0_ns=5 * S)
    cell.ended(5 * S, ok=True, now_ns=6 * S)
    assert not cell.stopped(204 * S)
    assert cell.stopped(205 * S)
    assert not cell.window(205 * S).min_completed_reached


def test_a_cell_in_which_everything_fails_ends_with_its_time() -> None:
    """200 completions will not come; fifteen minutes of HTTP 500 tell no more than one."""
    cell = CellProtocol(cell_spec(rate_per_s=1.0, min_completed=200, max_cell_s=900.0), t0_ns=0)
    for second in range(1, 100):
        cell.ended(second * S, ok=False, now_ns=second * S)
        if cell.stopped(second * S):
            break
    assert cell.t_stop_ns == 70 * S
    assert cell.window(70 * S).flags == ("min_completed_not_reached",)


def test_one_completion_is_hope() -> None:
    cell = CellProtocol(cell_spec(rate_per_s=1.0, min_completed=200, max_cell_s=900.0), t0_ns=0)
    for second in range(1, 100):
        cell.ended(second * S, ok=second == 40, now_ns=second * S)
        cell.stopped(second * S)
    assert cell.t_stop_ns is None


def test_an_engine_that_hangs_from_the_start_costs_no_quarter_of_an_hour() -> None:
    """Nothing ended, well or not, in two windows after warm-up: the cell leaves what is in flight."""
    cell = CellProtocol(cell_spec(rate_per_s=1.0, min_completed=200, max_cell_s=900.0), t0_ns=0)
    assert not cell.stopped(129 * S)
    assert cell.stopped(130 * S)
    assert cell.gives_up(130 * S) == "no request ended in 130 s"
    window = cell.window(135 * S)
    assert (window.window_s, window.drained_ns) == (0, 135 * S)


def test_a_short_block_of_an_engine_whose_requests_take_half_a_minute_is_no_hang() -> None:
    """20 requests at 8 req/s are a window of 2.5 s; one request may still take as long as the drain waits for one."""
    block = cell_spec(
        rate_per_s=8.0, duration_s=2.5, min_completed=20, max_cell_s=900.0, drain_timeout_s=120.0
    )
    cell = CellProtocol(block, t0_ns=0)
    assert not cell.stopped(31 * S)
    cell.ended(0, ok=True, now_ns=32 * S)
    assert not cell.stopped(33 * S)
    hung = CellProtocol(block, t0_ns=0)
    assert not hung.stopped(129 * S)
    assert hung.gives_up(130 * S) == "no request ended in 130 s"


@pytest.mark.parametrize(("concurrency", "failures"), [(1, 20), (2, 20), (50, 500)])
def test_a_closed_loop_that_meets_failures_alone_ends_and_names_the_last(
    concurrency: int, failures: int
) -> None:
    """What it sends next depends on what failed; a success begins the count anew."""
    loop = cell_spec(arrival="concurrency", rate_per_s=0.0, concurrency=concurrency)
    cell = CellProtocol(loop, t0_ns=0)
    for k in range(failures + 5):
        cell.ended(k, ok=k == 5, now_ns=k, failure="http_error (HTTP 503)")
        assert cell.gives_up(k) is None
    cell.ended(failures + 5, ok=False, now_ns=failures + 5, failure="connect_error (refused)")
    said = f"{failures} requests failed in a row, the last as connect_error (refused)"
    assert cell.gives_up(failures + 5) == said


def test_an_open_loop_goes_on_whatever_fails() -> None:
    """Its schedule bounds how often a server is asked that refuses."""
    cell = CellProtocol(cell_spec(rate_per_s=1.0), t0_ns=0)
    for k in range(1000):
        cell.ended(k, ok=False, now_ns=k)
    assert cell.gives_up(1000) is None


def test_of_a_fixed_number_every_request_after_warm_up_is_in_the_window() -> None:
    """Whatever completed first: those sent before it are a share of the number that must not be lost."""
    cell = CellProtocol(cell_spec(num_requests=50, warmup_s=0.0), t0_ns=5)
    cell.ended(5, ok=True, now_ns=17 * S)
    assert cell.end_ns() is None and not cell.stopped(100 * S)
    cell.stop(110 * S, all_sent=True)
    window = cell.window(120 * S)
    assert window.window_start_ns == 5
    assert window.flags == ()
    cut = CellProtocol(cell_spec(num_requests=50, max_cell_s=20.0), t0_ns=0)
    assert not cut.stopped(19 * S)
    assert cut.stopped(20 * S)
    assert not cut.window(20 * S).min_completed_reached


def test_an_arrival_is_dropped_once_the_cap_is_reached() -> None:
    assert [may_send(inflight, cap=2) for inflight in (0, 1, 2, 3)] == [True, True, False, False]


def test_the_cap_is_compared_with_nowhere_else() -> None:
    """Two copies of the rule could drift apart, and a rehearsal would drop other requests than the cell it stands for."""
    package = Path(connector_tax.__file__).parent
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Attribute) and part.attr == "inflight_cap" for part in ast.walk(node))
    ]
    assert found == []
