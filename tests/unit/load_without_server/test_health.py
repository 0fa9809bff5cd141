"""The limits beyond which the client was the bottleneck, each on a made-up cell just within and just beyond it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.run.loadgen.health import (
    MAX_DIFFERENCE_P50,
    MAX_RATE_ERROR,
    MAX_WHOLE_SHARE,
    MAX_WORKER_CPU_SHARE,
    dispatch_rate_error,
    health,
)
from connector_tax.run.loadgen.issuer import NO_SOCKET
from connector_tax.run.loadgen.messages import SessionResult

MS = 1_000_000
EVERY_MS = 50
REQUESTS = 100
TTFT_MS = 20.0
TPOT_MS = 5.0
TOKENS = 9
SPEC = CellSpec("a", 1e3 / EVERY_MS, 256, TOKENS, "fixed", 0.0, 5.0, 10, 60.0, 5.0, 64, 0, 100, 200)


def request(seq: int, late_ms: float = 0.0, whole: bool = False) -> RequestRecord:
    """Sent ``late_ms`` after its time by a client, and answered by an engine that is always equally fast."""
    scheduled = seq * EVERY_MS * MS
    sent = scheduled + round(late_ms * MS)
    first = sent + round(TTFT_MS * MS)
    last = first if whole else first + round((TOKENS - 1) * TPOT_MS * MS)
    return RequestRecord(seq, scheduled, sent, first, last, last, "ok", 256, TOKENS, 0, 0, "window")


def cell(made: Callable[[int], RequestRecord] = request) -> SessionResult:
    end = REQUESTS * EVERY_MS * MS
    return SessionResult(
        window=CellWindow(0, 0, end, end, min_completed_reached=True),
        requests=[made(seq) for seq in range(REQUESTS)],
        token_ns={},
        stall_counts=[0] * 8,
        stall_max_us=0.0,
        worker_cpu_s=[1.0],
        coordinator_cpu_s=0.1,
        worker_rss_mib=[30.0],
        wall_s=10.0,
        aborted=None,
        deaths=[],
    )


def said(result: SessionResult) -> list[str]:
    """The kinds of what ``health`` holds against the client."""
    return [reason.partition(":")[0] for reason in health(SPEC, result).bottleneck]


def test_lateness_counts_by_its_share_of_ttft_and_e2e_at_the_median() -> None:
    e2e_ms = TTFT_MS + (TOKENS - 1) * TPOT_MS
    within, beyond = MAX_DIFFERENCE_P50 - 0.01, MAX_DIFFERENCE_P50 + 0.01
    assert said(cell()) == said(cell(lambda seq: request(seq, within * TTFT_MS))) == []
    (late,) = health(SPEC, cell(lambda seq: request(seq, beyond * TTFT_MS))).bottleneck
    assert late == "client late: its own lateness is 16% of the ttft p50"
    assert said(cell(lambda seq: request(seq, beyond * e2e_ms))) == ["client late", "client late"]


def test_a_short_stall_is_flagged_and_not_refused() -> None:
    stalled = cell(lambda seq: request(seq, 200.0 if 40 <= seq < 50 else 0.0))
    start_ns = stalled.window.window_start_ns
    figures = health(SPEC, replace(stalled, stall_max_us=2e5, away_ns=[[(start_ns, start_ns + 200_000_000)]]))
    assert (figures.bottleneck, figures.client_stalled) == ((), True)


@pytest.mark.parametrize(("since_ms", "said_of"), [(0, ["client away"]), (-200, []), (-600, [])])
def test_a_worker_that_was_away_for_long_in_the_window_costs_the_cell(
    since_ms: int, said_of: list[str]
) -> None:
    """Stopped for a second, it made a TTFT p90 of 11 ms one of 433 ms, in a cell that counted."""
    stalled = cell()
    since_ns = stalled.window.window_start_ns + since_ms * 1_000_000
    assert said(replace(stalled, away_ns=[[(since_ns, since_ns + 400_000_000)]])) == said_of


@pytest.mark.parametrize(("workers", "said_of"), [(1, ["client away"]), (2, [])])
def test_many_short_stops_of_one_worker_cost_the_cell(workers: int, said_of: list[str]) -> None:
    """Ten of 40 ms each: of one worker they are over 250 ms and 2 % of the window, of two 200 ms each."""
    whole = cell()
    stops = [whole.window.window_start_ns + i * 100_000_000 for i in range(10)]
    away = [[(at, at + 40_000_000) for at in stops[i::workers]] for i in range(workers)]
    assert said(replace(whole, away_ns=away)) == said_of


def test_a_client_that_falls_ever_further_behind_is_a_bottleneck() -> None:
    def slower(by: float) -> SessionResult:
        return cell(lambda seq: request(seq, by * seq * EVERY_MS))

    assert "client fell behind" not in said(slower(0.9 * MAX_RATE_ERROR))
    assert "client fell behind" in said(slower(1.1 * MAX_RATE_ERROR))


def test_a_client_that_sends_before_requests_are_due_is_said_to() -> None:
    """Three of them, by more than the clocks of two cores may differ."""
    early = cell(lambda seq: request(seq, -1.001 if seq in (7, 50, 99) else -0.999))
    assert health(SPEC, early).bottleneck == (
        "client sent too fast: 3 requests went out before they were due",
    )
    assert health(SPEC, early).sent_early == 3


def test_a_client_that_catches_up_was_late_and_is_not_said_to_send_too_fast() -> None:
    """38 ms late in the first half and on time in the second: nothing went out before its time."""
    caught_up = cell(lambda seq: request(seq, 38.0 if seq < REQUESTS // 2 else 0.0))
    found = health(SPEC, caught_up)
    assert found.sent_early == 0
    assert found.bottleneck[0] == (
        "client caught up with what it was late by: it sent 1.5% faster than scheduled, 0.5% is allowed"
    )


def test_a_closed_loop_has_no_rate_to_fall_behind() -> None:
    """Its requests are due when others end, so only what is sent before its time, or late, tells of the client."""
    spec = replace(SPEC, arrival="concurrency", rate_per_s=0.0, concurrency=4)
    slower = cell(lambda seq: request(seq, 2 * MAX_RATE_ERROR * seq * EVERY_MS))
    found = health(spec, slower)
    assert found.dispatch_rate_error is None
    assert not any("behind" in reason or "caught up" in reason for reason in found.bottleneck)


@pytest.mark.parametrize(
    ("delay_ms", "kind"),
    [(100.0, None), (99.9, "client early"), (100.0 + 4_999.0, None), (100.0 + 5_001.0, "client late")],
)
def test_turns_that_went_out_early_or_very_late_are_held_against_the_client(
    tmp_path: Path, delay_ms: float, kind: str | None
) -> None:
    """The second turn waits 100 ms for the end of the first."""
    file = tmp_path / "sessions.jsonl"
    turn = {"new_tokens": 8, "output_tokens": TOKENS}
    file.write_text(json.dumps({"turns": [turn, {**turn, "after": [0], "wait_s": 0.1}]}) + "\n")
    first = replace(request(0), session=0, turn=0)
    assert first.t_end_ns is not None
    sent_ns = first.t_end_ns + round(delay_ms * MS)
    # Both are on time by the schedule, which only the generator itself knows.
    second = replace(
        *(first,),
        seq=1,
        turn=1,
        t_sched_ns=sent_ns,
        t_send_ns=sent_ns,
        t_first_token_ns=sent_ns + 20 * MS,
        t_last_token_ns=sent_ns + 60 * MS,
        t_end_ns=sent_ns + 60 * MS,
    )
    figures = health(replace(SPEC, sessions=str(file)), replace(cell(), requests=[first, second]))
    assert [reason.partition(":")[0] for reason in figures.bottleneck] == ([kind] if kind else [])


def test_the_rate_error_is_the_share_by_which_a_client_falls_behind() -> None:
    """1 % slower than scheduled: each arrival is 1 % of its own time late."""
    slow = [request(seq, 0.01 * seq * EVERY_MS) for seq in range(200)]
    assert dispatch_rate_error(slow) == pytest.approx(0.01)
    stalled = [request(seq, 100.0 if 50 <= seq < 60 else 0.0) for seq in range(200)]
    assert dispatch_rate_error(stalled) == 0.0
    assert dispatch_rate_error(slow[:10]) is None


def test_a_worker_without_a_core_to_spare_is_a_bottleneck() -> None:
    result = cell()
    assert said(replace(result, worker_cpu_share=[0.1, MAX_WORKER_CPU_SHARE])) == []
    assert said(replace(result, worker_cpu_share=[0.1, 1.01 * MAX_WORKER_CPU_SHARE])) == ["client out of CPU"]


def test_answers_that_come_whole_are_counted() -> None:
    whole = round(MAX_WHOLE_SHARE * REQUESTS)
    assert said(cell(lambda seq: request(seq, whole=seq < whole))) == []
    assert said(cell(lambda seq: request(seq, whole=seq < whole + 1))) == ["not streamed"]
    # An engine that guesses ahead makes four tokens in one step.
    short = cell(lambda seq: replace(request(seq, whole=True), completion_tokens=4))
    assert health(SPEC, short).whole_answer_share is None


def test_requests_that_were_sent_again_are_counted() -> None:
    again = cell(lambda seq: replace(request(seq), resends=int(seq % 50 == 0)))
    assert (health(SPEC, again).resends, health(SPEC, cell()).resends) == (2, 0)
    # Lines of requests that were sent once say nothing of it, as those of earlier versions.
    lines = [r.to_line() for r in again.requests[:2]]
    assert ['"resends":1' in line for line in lines] == [True, False]
    assert "resends" not in lines[1]
    assert [RequestRecord.from_json(json.loads(line)) for line in lines] == again.requests[:2]


def test_requests_that_the_client_had_no_socket_for_are_its_own() -> None:
    def unsent(seq: int) -> RequestRecord:
        error = f"{NO_SOCKET}: [Errno 24] Too many open files"
        return request(seq) if seq else replace(request(seq), status="aborted", error=error)

    found = health(SPEC, cell(unsent))
    assert found.requests_without_socket == 1
    assert found.bottleneck[0].startswith("client out of sockets: 1 requests were not sent")
    died = "load-generator worker 1 ended by signal 9"
    assert health(SPEC, replace(cell(unsent), deaths=[died])).bottleneck[0] == died
    assert health(SPEC, cell()).requests_without_socket == 0
