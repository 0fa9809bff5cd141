"""The limits beyond which the client was the bottleneck, each on a made-up cell just within and just beyond it."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from connector_tax.loadgen.health import (
    MAX_DIFFERENCE_P50,
    MAX_RATE_ERROR,
    MAX_WHOLE_SHARE,
    MAX_WORKER_CPU_SHARE,
    dispatch_rate_error,
    health,
)
from connector_tax.loadgen.session import SessionResult
from connector_tax.records.cell import CellSpec, CellWindow
from connector_tax.records.request import RequestRecord

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
    return [reason.partition(":")[0] for reason in health(SPEC, result)["bottleneck"]]


def test_a_client_on_time_is_no_bottleneck() -> None:
    assert said(cell()) == []


def test_lateness_counts_by_its_share_of_ttft_and_e2e_at_the_median() -> None:
    e2e_ms = TTFT_MS + (TOKENS - 1) * TPOT_MS
    within, beyond = MAX_DIFFERENCE_P50 - 0.01, MAX_DIFFERENCE_P50 + 0.01
    assert said(cell(lambda seq: request(seq, within * TTFT_MS))) == []
    (late,) = health(SPEC, cell(lambda seq: request(seq, beyond * TTFT_MS)))["bottleneck"]
    assert late == "client late: its own lateness is 16% of the ttft p50"
    assert said(cell(lambda seq: request(seq, beyond * e2e_ms))) == ["client late", "client late"]


def test_one_stall_however_long_is_no_median() -> None:
    """A tenth of the cell is late by a second: flagged, and not refused."""
    stalled = cell(lambda seq: request(seq, 1000.0 if 40 <= seq < 50 else 0.0))
    figures = health(SPEC, replace(stalled, stall_max_us=1e6))
    assert (figures["bottleneck"], figures["client_stalled"]) == ([], True)


def test_a_client_that_falls_ever_further_behind_is_a_bottleneck() -> None:
    def slower(by: float) -> SessionResult:
        return cell(lambda seq: request(seq, by * seq * EVERY_MS))

    assert "client fell behind" not in said(slower(0.9 * MAX_RATE_ERROR))
    assert "client fell behind" in said(slower(1.1 * MAX_RATE_ERROR))


def test_the_rate_error_is_the_share_by_which_a_client_falls_behind() -> None:
    """1 % slower than scheduled: each arrival is 1 % of its own time late."""
    slow = [request(seq, 0.01 * seq * EVERY_MS) for seq in range(200)]
    assert dispatch_rate_error(slow) == pytest.approx(0.01)
    stalled = [request(seq, 100.0 if 50 <= seq < 60 else 0.0) for seq in range(200)]
    assert dispatch_rate_error(stalled) == 0.0
    assert dispatch_rate_error(slow[:10]) is None


def test_a_worker_without_a_core_to_spare_is_a_bottleneck() -> None:
    result = cell()
    assert said(replace(result, worker_cpu_s=[1.0, MAX_WORKER_CPU_SHARE * result.wall_s])) == []
    assert said(replace(result, worker_cpu_s=[1.0, 1.01 * MAX_WORKER_CPU_SHARE * result.wall_s])) == [
        "client out of CPU"
    ]


def test_answers_that_come_whole_are_counted() -> None:
    whole = round(MAX_WHOLE_SHARE * REQUESTS)
    assert said(cell(lambda seq: request(seq, whole=seq < whole))) == []
    assert said(cell(lambda seq: request(seq, whole=seq < whole + 1))) == ["not streamed"]


def test_requests_that_were_sent_again_are_counted() -> None:
    again = cell(lambda seq: replace(request(seq), resends=int(seq % 50 == 0)))
    assert (health(SPEC, again)["resends"], health(SPEC, cell())["resends"]) == (2, 0)
    # Lines of requests that were sent once say nothing of it, as those of earlier versions.
    lines = [r.to_line() for r in again.requests[:2]]
    assert ['"resends":1' in line for line in lines] == [True, False]
    assert "resends" not in lines[1]
    assert [RequestRecord.from_json(json.loads(line)) for line in lines] == again.requests[:2]


def test_a_worker_that_died_is_said_first() -> None:
    assert said(replace(cell(), deaths=["load-generator worker 1 ended by signal 9"])) == [
        "load-generator worker 1 ended by signal 9"
    ]
