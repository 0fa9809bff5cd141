"""What ``connector-tax load`` makes of the requests of a cell, and what it says of it in words."""

import json
import sys
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_outcomes import S, failed, outcome_of, record, spec_of, summary_of
from msgspec import UNSET

from connector_tax.base.documents.load import Demand, Level, LoadCell, RequestLimit
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import RequestForm
from connector_tax.load.find_rate import judge_cell, never_observed, too_short
from connector_tax.load.measured import falls_short, result_of, unserved
from connector_tax.load.output import cell_text, page, picture
from connector_tax.load.plan import CellLimit, percentile_name
from connector_tax.run.loadgen.health import health

NO_HITS = {"hit_tokens": 0.0, "queried_tokens": 8.0, "store_hit_tokens": None}


def cell_of(
    spec: CellSpec,
    requests: list[RequestRecord],
    *,
    percentiles: tuple[float, ...] = (50.0, 90.0),
    limits: tuple[RequestLimit, ...] = (),
    **how: Any,
) -> LoadCell:
    outcome = outcome_of(spec, requests, **how)
    return result_of(spec, outcome, percentiles=percentiles, limits=limits, hits=NO_HITS)


def steady(n: int = 100, every_s: float = 0.1, **changes: Any) -> list[RequestRecord]:
    return [record(k, k * every_s, **changes) for k in range(n)]


def on_page(cell: LoadCell) -> str:
    return page(summary_of(cells=(cell,)), None, ["data:"])


def test_the_picture_of_many_requests_is_whole_on_the_page() -> None:
    """Longer text than 20,000 characters is cut on a page, and a picture was."""
    requests = [record(k, k * 0.01, e2e_s=0.1 + k % 7 / 10) for k in range(1000)]
    cell = cell_of(spec_of(rate_per_s=100.0), requests)
    drawn = picture(cell, requests)
    assert len(drawn) > 20_000
    assert f'src="{drawn}"' in page(summary_of(cells=(cell,)), None, [drawn])


def test_a_request_without_a_latency_does_not_meet_a_limit_on_it() -> None:
    """An answer of one token has no TPOT, an answer without tokens no TTFT."""
    one = steady(completion_tokens=1)
    none = steady(completion_tokens=0, t_first_token_ns=None, t_last_token_ns=None)
    for requests, metric, share in (
        (one, "tpot", 0.0),
        (one, "ttft", 1.0),
        (none, "ttft", 0.0),
        (none, "e2e", 1.0),
    ):
        cell = cell_of(spec_of(), requests, limits=(RequestLimit(metric, 1000.0),))
        assert cell.goodput is not None and cell.goodput.share.point == share, metric
        assert cell.goodput.per_s == pytest.approx(share * cell.throughput.requests_per_s)


def test_numbers_of_answers_without_tokens_agree_with_one_another() -> None:
    """They completed: they count as completions and have an E2E to their end, and no TTFT, which is said."""
    cell = cell_of(
        spec_of(),
        steady(completion_tokens=0, t_first_token_ns=None, t_last_token_ns=None),
        percentiles=(50.0,),
    )
    assert cell.requests == {"window": 100, "ok": 100}
    assert (cell.throughput.requests_per_s, cell.throughput.output_tokens_per_s) == (9.9, 0.0)
    assert cell.latencies["e2e_ms"]["p50"].point == pytest.approx(100.0)
    assert cell.latencies["ttft_ms"]["p50"].point is None
    assert "  no TTFT, TPOT: " in cell_text(cell)
    whole = cell_of(spec_of(form=RequestForm(stream=False)), steady(t_first_token_ns=None))
    assert "no TTFT, TPOT, ITL: answers in one piece" in cell_text(whole)


def test_throughput_of_a_fixed_number_counts_the_time_of_requests_that_failed() -> None:
    """Ten answers within a second, and two requests that hung for 20: the server took 20 s for them."""
    requests = [*steady(10), failed(10, 0.0, after_s=20.0), failed(11, 0.0, after_s=5.0)]
    cell = cell_of(spec_of(num_requests=12, arrival="offline", rate_per_s=0.0), requests)
    assert cell.throughput.over_s == 20.0
    assert cell.throughput.requests_per_s == 0.5


def test_a_fixed_number_that_was_cut_says_so_everywhere() -> None:
    """20 of 100 were sent when --max-seconds was over, and the last answer came long before."""
    spec = spec_of(num_requests=100, max_cell_s=4.0)
    cell = cell_of(spec, steady(20, 0.01), stop_s=4.0, whole=False)
    said = "cut short: 20 of 100 requests were sent: a cell lasts 4 s at most (--max-seconds)"
    assert cell.flags == ("not_all_sent",) and cell.n_scheduled == 100
    assert cell.cut is not None and (cell.cut.sent, cell.cut.planned) == (20, 100)
    assert said in cell_text(cell) and said in on_page(cell)
    assert cell.throughput.over_s == 4.0 and cell.throughput.requests_per_s == 5.0
    whole = cell_of(spec_of(num_requests=20), steady(20))
    assert (whole.cut, whole.flags, whole.remarks) == (None, (), ())
    assert whole.throughput.over_s == pytest.approx(2.0)


def test_latencies_that_fall_on_failures_keep_their_row_and_say_why() -> None:
    requests = [failed(k, k * 0.1) if k % 5 else record(k, k * 0.1) for k in range(100)]
    cell = cell_of(spec_of(), requests)
    for said in (cell_text(cell), on_page(cell)):
        assert "p90 falls on requests that failed" in said
        assert "the first failure: http_error (HTTP 500: no room)" in said


def test_few_requests_of_which_one_failed_have_the_percentiles_that_there_are() -> None:
    """Of five, p50 is the third, which did not fail; p90 falls on the one that did, and that is said and not how few they are."""
    for where in range(5):
        requests = [
            failed(k, k * 0.1) if k == where else record(k, k * 0.1, e2e_s=0.1 + k * 0.01) for k in range(5)
        ]
        whole = sorted(0.1 + k * 0.01 for k in range(5) if k != where)
        found = cell_of(spec_of(), requests).latencies["e2e_ms"]
        assert found["p50"].point == pytest.approx(1000 * whole[2])
        assert (found["p50"].low, found["p50"].high) == (None, None)
        assert found["p50"].reason == "too few observations for an interval"
        assert (found["p90"].point, found["p90"].n) == (None, 5)
        assert found["p90"].reason == "p90 falls on requests that failed or did not finish"


def test_the_share_of_failures_has_the_interval_of_as_many_blocks() -> None:
    requests = [failed(k, k * 0.05) if k in (59, 192) else record(k, k * 0.05) for k in range(200)]
    share = cell_of(spec_of(rate_per_s=20.0), requests).failed
    assert isinstance(share, Level) and share.low is not None and share.high is not None
    assert share.point == 0.01 and share.n == 200
    assert 0 < share.low < 0.003 and 0.03 < share.high < 0.2
    batch = cell_of(spec_of(num_requests=200, arrival="offline", rate_per_s=0.0), requests).failed
    assert isinstance(batch, Level) and (batch.point, batch.low) == (0.01, None)


def itl_of(token_ms: list[int], n: int = 40) -> dict[str, Level]:
    outcome = outcome_of(spec_of(), steady(n))
    stamps = {
        k: array("q", [outcome.requests[k].t_sched_ns + ms * 1_000_000 for ms in token_ms]) for k in range(n)
    }
    of_cell = replace(outcome, session=replace(outcome.session, token_ns=stamps))
    found = result_of(spec_of(), of_cell, percentiles=(50.0, 90.0), limits=(), hits=NO_HITS)
    return found.latencies["itl_ms"]


def test_tokens_that_came_in_one_read_have_no_gap() -> None:
    """Three tokens every 40 ms, as one that takes 40 ms: two of three gaps would be 0, and a limit of 15 ms kept at p50."""
    packed, single = itl_of([40, 40, 40, 80, 80, 80, 120, 120, 120]), itl_of([40, 80, 120])
    assert packed == single
    p50 = packed["p50"]
    assert (p50.point, p50.low, p50.high, p50.n) == (40.0, 40.0, 40.0, 80)
    uneven = itl_of([10, 10, 20, 50, 50])
    assert [uneven[q].point for q in ("p50", "p90")] == [20.0, 30.0]
    whole = itl_of([40] * 9)["p50"]
    assert (whole.point, whole.n) == (None, 0) and "several reads" in (whole.reason or "")


def test_a_ramp_is_held_against_what_it_asked_for_in_the_window() -> None:
    """From 4 to 40 in 10 s: 220 requests, 22 per second."""
    cell = cell_of(spec_of(rate_per_s=40.0, ramp_from_per_s=4.0, ramp_up_s=10.0), steady(220, 10 / 220))
    assert "requests/s of 22.00 asked by a ramp from 4 to 40" in cell_text(cell)


@pytest.mark.parametrize(("q", "name"), [(50.0, "p50"), (99.99999, "p99.99999"), (0.00001, "p0.00001")])
def test_a_percentile_has_the_name_that_was_asked_for(q: float, name: str) -> None:
    assert percentile_name(q) == name
    assert list(cell_of(spec_of(), steady(), percentiles=(q,)).latencies["e2e_ms"]) == [name]


@pytest.mark.parametrize(("ramp_up_s", "rises"), [(4.0, True), (None, False)])
def test_a_closed_loop_whose_slots_still_open_has_no_intervals(ramp_up_s: float | None, rises: bool) -> None:
    spec = spec_of(arrival="concurrency", concurrency=4, rate_per_s=0.0, ramp_up_s=ramp_up_s)
    cell = cell_of(spec, steady(), limits=(RequestLimit("e2e", 1000.0),))
    assert cell.goodput is not None
    for level in (cell.latencies["e2e_ms"]["p50"], cell.goodput.share):
        assert (level.low is None) == rises
        assert ("the concurrency rises" in (level.reason or "")) == rises


def test_what_came_due_and_what_was_under_way_at_both_ends_is_counted() -> None:
    """At 20 per second for 10 s, of which each takes 1 s: at the end 20 are under way. A ramp counts all of its window."""
    ramp = spec_of(rate_per_s=20.0, ramp_from_per_s=20.0, ramp_up_s=1.0)
    cell = cell_of(ramp, steady(200, 0.05, e2e_s=1.0))
    assert cell.demand is not None
    assert (cell.demand.arrived, cell.demand.due, cell.demand.done) == (200, 200, 180)
    assert cell.demand.in_flight == (0, 20) and cell.demand.over_s == 10.0
    assert cell.window.t_stop_ns == 10 * S


@pytest.mark.parametrize(
    ("e2e_s", "fills_s"),
    [
        (lambda at_s: 0.1 + 7 * (round(at_s * 30) % 2), 7.1),
        (lambda at_s: 0.1 + 4 * (round(at_s * 30) % 2), None),
        (lambda at_s: 0.1 + 2 * at_s, None),
    ],
    ids=["long answers", "shorter ones", "a queue"],
)
def test_a_cell_says_when_its_answers_were_too_long_for_it(
    e2e_s: Callable[[float], float], fills_s: float | None
) -> None:
    """Not those that wait in a queue: they are told by the requests of its first tenth."""
    cell = cell_of(spec_of(rate_per_s=30.0), [record(k, k / 30, e2e_s=e2e_s(k / 30)) for k in range(300)])
    assert cell.demand is not None and (cell.demand.fills_s or None) == (fills_s and pytest.approx(fills_s))


@pytest.mark.parametrize(("e2e_s", "from_s"), [(1.0, 1.0), (0.1, 0.1), (7.0, 5.0)])
def test_a_server_that_is_not_full_yet_leaves_nothing_over(e2e_s: float, from_s: float) -> None:
    """Without a warm-up, what is in flight grows until the first answers end."""
    cell = cell_of(spec_of(rate_per_s=20.0), steady(200, 0.05, e2e_s=e2e_s))
    demand = cell.demand
    assert demand is not None
    assert demand.over_s == 10.0 - from_s and demand.due == demand.arrived == round(20 * demand.over_s)
    assert (demand.due == demand.done) == (e2e_s < 5)


def test_what_the_client_did_to_its_requests_is_flagged_and_believed() -> None:
    again = cell_of(spec_of(), [record(k, k * 0.1, resends=k % 2) for k in range(100)])
    assert again.flags == ("resends",) and again.not_believed == ()
    assert "50 of 100 requests were sent again (50 times in all)" in cell_text(again)
    outcome = outcome_of(spec_of(), steady())
    session = replace(outcome.session, stall_max_us=2e6)
    away = replace(outcome, session=session, health=health(spec_of(), session))
    stalled = result_of(spec_of(), away, percentiles=(50.0,), limits=(), hits=NO_HITS)
    assert stalled.flags == ("client_stalled",) and stalled.not_believed == ()
    assert "was away for 2,000 ms at once" in cell_text(stalled)
    late = cell_of(spec_of(), steady(late_s=0.003))
    assert late.flags == ("client_limited",) and late.health.bottleneck == () and not late.not_believed
    assert "its own lateness is 6.4% of TTFT p50" in late.remarks[0] in cell_text(late)
    assert not cell_of(spec_of(), steady(late_s=0.0003)).remarks


# Answered at 25 per second what comes at 40, with no drop and no failure.
BEHIND = [record(k, k * 0.025, e2e_s=k * 0.015 + 0.1) for k in range(400)]
# The same with a drain of 2 s: 102 of the window end then, and none failed before the window's end.
UNFINISHED: dict[str, Any] = {"t_first_token_ns": None, "t_last_token_ns": None, "completion_tokens": None}
TIMED_OUT = [
    r if (r.t_end_ns or 0) < 12 * S else replace(r, status="timeout", t_end_ns=12 * S, **UNFINISHED)
    for r in BEHIND
]
# Four slots of 3.2 s each serve 1.25 of 10 per second: the tenth request takes 9 s, which is a queue and no long answer.
FAR_BEHIND = [record(k, k / 10, e2e_s=k % 4 / 10 + 3.2 * (k // 4 + 1) - k / 10) for k in range(100)]
# Every second one fails after 3 s, so that 75 more are in flight than at T0, and no more after those 3 s.
SLOW_FAILURES = [failed(k, k * 0.02, after_s=3.0) if k % 2 else record(k, k * 0.02) for k in range(500)]


@pytest.mark.parametrize(
    ("rate_per_s", "requests", "served"),
    [
        (40.0, BEHIND, "served 25 of 39.9 requests/s"),
        (40.0, TIMED_OUT, "served 25 of 39.9 requests/s"),
        (10.0, FAR_BEHIND, "served 1."),
        (50.0, SLOW_FAILURES, None),
        (10.0, steady(), None),
        (10.0, [failed(k, k * 0.1) if k % 2 else record(k, k * 0.1) for k in range(100)], None),
        (10.0, steady(e2e_s=3.0), None),
    ],
    ids=["behind", "behind, timed out", "far behind", "slow failures", "steady", "failures", "long answers"],
)
def test_a_server_that_did_not_keep_up_is_named_and_no_other(
    rate_per_s: float, requests: list[RequestRecord], served: str | None
) -> None:
    cell = cell_of(spec_of(rate_per_s=rate_per_s), requests)
    assert cell.demand is not None and cell.demand.fills_s is UNSET
    found = [said for said in cell.remarks if "keep up" in said]
    assert [said.startswith(f"the server did not keep up: {served}") for said in found] == [True] * bool(
        served
    )


def test_a_server_that_dies_after_the_warm_up_fails_the_rate() -> None:
    spec = spec_of(warmup_s=5.0)
    whole = outcome_of(
        spec, [record(k, k / 10) if k < 50 else failed(k, k / 10) for k in range(150)], stop_s=15.0
    )
    outcome = replace(whole, window=replace(whole.window, window_start_ns=5 * S))
    cell = result_of(spec, outcome, percentiles=(90.0,), limits=(), hits=NO_HITS)
    limits = (CellLimit("ttft", 90.0, 500.0),)
    assert cell.requests == {"window": 100, "http_error": 100}
    assert never_observed(cell, limits) is None and too_short(cell, limits) is None
    judged = judge_cell(cell, 10.0, limits)
    assert (judged.holds, judged.sure) == (False, True) and judged.why[1].endswith(": 100 [96, 100] % of all")


def test_a_ramp_and_sessions_ask_for_more_without_a_queue() -> None:
    """Each answer takes 1 s whatever is asked. 20 requests/s more in flight at the end than in the middle are no queue."""
    ramp = [record(k, (k / 10) ** 0.5, e2e_s=1.0) for k in range(1000)]
    spec = spec_of(rate_per_s=200.0, arrival="fixed", ramp_from_per_s=0.01, ramp_up_s=10.0)
    cell = cell_of(spec, ramp)
    assert cell.demand is not None and falls_short(cell.demand)[1] and cell.remarks == ()
    turns = Demand("sessions", 20, 150, 130, (2, 22), 9.0)
    assert (
        falls_short(turns)[1] and unserved(replace(spec_of(), sessions="conversations.jsonl"), turns) is None
    )
    assert unserved(spec_of(), turns) is not None


@pytest.mark.parametrize(("turns", "fills"), [(3, False), (20, True)])
def test_sessions_that_go_on_are_no_queue(tmp_path: Path, turns: int, fills: bool) -> None:
    """Two begin each second, and each turn takes 0.5 s: what is in flight grows until the first ones are over."""
    file = tmp_path / "sessions.jsonl"
    file.write_text(json.dumps({"turns": [{"new_tokens": 16, "output_tokens": 4}] * turns}) + "\n")
    begun = [(session, turn, session / 2 + turn / 2) for session in range(20) for turn in range(turns)]
    sent = sorted((due_s, session, turn) for session, turn, due_s in begun if due_s < 10)
    requests = [
        record(k, due_s, e2e_s=0.5, session=session, turn=turn)
        for k, (due_s, session, turn) in enumerate(sent)
    ]
    demand = cell_of(spec_of(rate_per_s=2.0, sessions=str(file)), requests).demand
    assert demand is not None and bool(demand.fills_s) == fills
    assert fills or not falls_short(demand)[0]


def test_a_cell_says_that_hits_of_a_prefix_cache_are_not_known(tmp_path: Path) -> None:
    """Of conversations they are wanted, so that nothing is said."""
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"turns": [{"new_tokens": 9, "output_tokens": 3}]}')
    for spec, flagged in ((spec_of(), True), (replace(spec_of(), sessions=str(chat)), False)):
        cell = result_of(spec, outcome_of(spec, []), percentiles=(50.0,), limits=(), hits=None)
        assert ("prefix_cache_unchecked" in cell.flags) == flagged
        assert ("hits are not known" in cell_text(cell)) == flagged
