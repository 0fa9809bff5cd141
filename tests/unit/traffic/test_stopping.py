"""A cell ends when it knows enough: at registered looks, never before the slow ones, at the last one whatever it knows."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import Status
from connector_tax.run.workload.protocol import CellProtocol, rule_of
from connector_tax.run.workload.stopping import StoppingRule

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec

MS = 1_000_000
S = 1_000 * MS


def spec(**changes: Any) -> CellSpec:
    own = {
        "rate_per_s": 10.0,
        "output_tokens": 5,
        "warmup_s": 0.0,
        "duration_s": 1.0,
        "min_completed": 40,
        "max_cell_s": 500.0,
        "inflight_cap": 200,
        "stop_half_width": 0.05,
        "max_completed": 320,
    }
    return cell_spec(**{**own, **changes})


@dataclass(frozen=True)
class Request:
    """Ten a second."""

    seq: int
    ttft_ms: float
    tpot_ms: float = 10.0
    status: Status = "ok"

    @property
    def t_sched_ns(self) -> int:
        return self.seq * 100 * MS

    @property
    def t_first_token_ns(self) -> int:
        return self.t_sched_ns + round(self.ttft_ms * MS)

    @property
    def t_last_token_ns(self) -> int:
        return self.t_first_token_ns + round(4 * self.tpot_ms * MS)

    @property
    def completion_tokens(self) -> int:
        return 5


def looks(rule: StoppingRule) -> list[int]:
    return [look.n_planned for look in rule.taken]


def ends_at(rule: StoppingRule, requests: list[Request]) -> int | None:
    """After how many requests the rule has had enough."""
    for k, request in enumerate(requests, 1):
        rule.note(request)
        if rule.enough(window_start_ns=0):
            return k
    return None


def steady(n: int, deviation: float, **changes: Any) -> list[Request]:
    rng = np.random.default_rng(3)
    return [Request(k, 100 * float(np.exp(deviation * rng.standard_normal())), **changes) for k in range(n)]


def test_a_steady_engine_is_known_at_the_first_look_and_a_noisy_one_is_looked_at_again() -> None:
    rule = StoppingRule(spec())
    assert ends_at(rule, steady(400, 0.01)) == 40
    assert looks(rule) == [40] and rule.taken[0].tight
    assert rule.taken[0].half_widths["tpot_p90"] == 0.0
    assert 0 < (rule.taken[0].half_widths["ttft_p90"] or 0) < 0.05
    noisy = StoppingRule(spec())
    assert ends_at(noisy, steady(400, 0.12)) in (80, 160, 320)
    widths = [look.half_widths["ttft_p90"] or 0 for look in noisy.taken]
    assert looks(noisy)[:2] == [40, 80] and widths[0] > 0.05 and widths[-1] < widths[0]


def test_the_last_look_ends_the_cell_whatever_is_known() -> None:
    rule = StoppingRule(spec())
    assert ends_at(rule, steady(400, 1.0)) == 320
    assert looks(rule) == [40, 80, 160, 320] and not rule.taken[-1].tight


def test_requests_behind_one_in_flight_are_not_seen_yet() -> None:
    """Request 5 is slow: what came after it is quicker for that very reason."""
    rule = StoppingRule(spec())
    requests = steady(60, 0.01)
    assert ends_at(rule, [r for r in requests if r.seq != 5]) is None
    assert looks(rule) == []
    rule.note(requests[5])
    assert rule.enough(0) and rule.taken[0].n == 60


def test_requests_of_the_warm_up_are_not_seen() -> None:
    rule = StoppingRule(spec())
    for request in steady(49, 0.01):
        rule.note(request)
    assert not rule.enough(window_start_ns=10 * 100 * MS)
    rule.note(Request(49, 100.0))
    assert rule.enough(window_start_ns=10 * 100 * MS) and rule.taken[0].n == 40


def test_where_one_in_eight_fails_nothing_is_known_until_the_last_look() -> None:
    rule = StoppingRule(spec())
    requests = [Request(k, 100.0, status="timeout" if k % 8 == 0 else "ok") for k in range(500)]
    ended = ends_at(rule, requests)
    assert ended is not None and sum(r.status == "ok" for r in requests[:ended]) == 320
    assert all(look.half_widths == {"ttft_p90": None, "tpot_p90": None} for look in rule.taken)


def test_looks_that_passed_at_once_are_one() -> None:
    """A hundred requests end together: the look of 80 is taken, that of 40 is over."""
    rule = StoppingRule(spec())
    for request in steady(100, 0.5):
        rule.note(request)
    assert not rule.enough(0)
    assert looks(rule) == [80]


@pytest.mark.parametrize(("deviation", "n"), [(0.01, 40), (1.0, 320)])
def test_a_cell_ends_when_the_rule_says_and_not_before_its_time(deviation: float, n: int) -> None:
    cell = CellProtocol(spec(duration_s=1.0), 0, rule_of(spec()))
    requests = steady(400, deviation)
    for request in requests:
        cell.rule.note(request)  # type: ignore[union-attr]
        cell.ended(request.t_sched_ns, True, request.t_last_token_ns)
        if cell.end_ns() is not None:
            break
    warm_up = sum(r.t_sched_ns < requests[0].t_last_token_ns for r in requests)
    assert request.seq + 1 == n + warm_up
    assert cell.stopped(request.t_last_token_ns)
    window = cell.window(request.t_last_token_ns)
    assert window.half_width_reached is (n == 40)
    assert CellWindow.from_json(window.to_json()) == window


def test_a_cell_that_knows_enough_still_lasts_as_long_as_its_window() -> None:
    """Saturation is judged over the window's seconds; 40 requests come in 4 of them."""
    long = spec(duration_s=30.0)
    cell = CellProtocol(long, 0, rule_of(long))
    for request in steady(60, 0.01):
        cell.rule.note(request)  # type: ignore[union-attr]
        cell.ended(request.t_sched_ns, True, request.t_last_token_ns)
    assert not cell.stopped(20 * S)
    end_ns = cell.end_ns()
    assert end_ns is not None and end_ns == pytest.approx(30 * S, abs=S)


def test_who_asks_when_it_ends_and_who_asks_whether_see_the_same_looks() -> None:
    """The load generator asks the first, rehearsals the second."""
    long = spec(duration_s=30.0)
    one, other = (CellProtocol(long, 0, rule_of(long)) for _ in range(2))
    for request in steady(200, 0.12):
        for cell in (one, other):
            cell.rule.note(request)  # type: ignore[union-attr]
            cell.ended(request.t_sched_ns, True, request.t_last_token_ns)
        one.end_ns()
        other.stopped(request.t_last_token_ns)
    assert one.rule is not None and other.rule is not None
    assert one.rule.taken == other.rule.taken != []


def test_a_window_without_looks_is_written_as_before() -> None:
    window = CellWindow(0, 1, 2, 3, min_completed_reached=True)
    assert "looks" not in window.to_json()
    assert window.half_width_reached is None
