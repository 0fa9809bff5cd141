"""The definitions of a cell's numbers, against hand-worked examples and numpy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import (
    effective_throughput_per_s,
    in_window,
    latencies_ms,
    summarise_cell,
)
from connector_tax.base.statistics.percentiles import percentile

S = 1_000_000_000
MS = 1_000_000
WINDOW = CellWindow(
    t0_ns=0, window_start_ns=10 * S, t_stop_ns=20 * S, drained_ns=25 * S, min_completed_reached=True
)


def request(
    seq: int, t_sched_s: float, *, ttft_ms: float = 100, tokens: int = 11, status: str = "ok"
) -> RequestRecord:
    sched = int(t_sched_s * S)
    first = sched + int(ttft_ms * MS)
    ok = status == "ok"
    return RequestRecord(
        seq=seq,
        t_sched_ns=sched,
        t_send_ns=sched + MS,
        t_first_token_ns=first if ok else None,
        t_last_token_ns=first + (tokens - 1) * 10 * MS if ok else None,
        t_end_ns=first + tokens * 10 * MS,
        status=status,  # type: ignore[arg-type]
        prompt_tokens=8 if ok else None,
        completion_tokens=tokens if ok else None,
        inflight_at_send=0,
        worker=0,
        phase=WINDOW.phase_of(sched),
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([50, 90, 99]))
def test_percentiles_of_finite_values_are_numpys(values: list[float], q: int) -> None:
    assert percentile(values, q) == pytest.approx(np.percentile(values, q))


def test_a_percentile_that_falls_on_a_failure_is_unavailable() -> None:
    """Nine fast requests and two failures have a median and no p90: survivors are not quoted."""
    values = [1.0] * 9 + [np.inf, np.inf]
    assert percentile(values, 50) == 1.0
    assert percentile(values, 90) is None


def test_failures_beyond_the_percentile_do_not_hide_it() -> None:
    assert percentile([*range(100), np.inf], 50) == 50


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 50) is None


def test_latencies_count_from_the_intended_send() -> None:
    """A client that sends 1 ms late makes TTFT 1 ms longer, and the figure from the send tells it."""
    found = latencies_ms([request(0, 12, ttft_ms=100, tokens=11)])
    assert found["ttft_ms"] == [100]
    assert found["ttft_from_send_ms"] == [99]
    assert found["e2e_ms"] == [200]
    assert found["tpot_ms"] == [10]


def test_an_answer_that_came_whole_has_no_tpot() -> None:
    """It counted as 0 ms, so that up to a tenth of a cell's answers made its p90 that of a lower percentile."""
    found = [request(k, 12, tokens=tokens) for k, tokens in enumerate((11, 8, 7))]
    whole = [replace(r, t_last_token_ns=r.t_first_token_ns) for r in found]
    assert latencies_ms([found[0], *whole])["tpot_ms"] == [10, 0], "seven tokens may be one step's"
    assert latencies_ms(whole)["ttft_ms"] == [100] * 3


def test_one_token_has_no_tpot() -> None:
    assert latencies_ms([request(0, 12, tokens=1)])["tpot_ms"] == []


def test_warm_up_requests_count_for_throughput_but_not_for_percentiles() -> None:
    """A request sent in warm-up that finishes in the window is work the engine did in the window."""
    requests = [request(0, 9.95, ttft_ms=100), request(1, 12), request(2, 19.95, ttft_ms=100)]
    assert [r.seq for r in in_window(requests, WINDOW)] == [1, 2]
    # seq 0 ends at 10.15 s (counts), seq 1 at 12.2 s (counts), seq 2 at 20.15 s (after the window).
    assert effective_throughput_per_s(requests, WINDOW) == pytest.approx(2 / 10)


def test_a_slow_but_healthy_cell_keeps_its_throughput() -> None:
    """With a latency of 4 s throughout, completions per window second still equal the rate."""
    requests = [request(i, i, ttft_ms=3900, tokens=11) for i in range(20)]
    assert effective_throughput_per_s(requests, WINDOW) == pytest.approx(1.0)


def test_the_summary_counts_everything_that_was_scheduled() -> None:
    spec = CellSpec("a", 1.0, 8, 11, "fixed", 10, 10, 1, 60, 5, 256, 1, 10, 100)
    requests = [
        request(0, 5),
        request(1, 12),
        request(2, 13, status="dropped"),
        request(3, 14, status="timeout"),
    ]
    found = summarise_cell(spec, WINDOW, requests)
    assert (found.n_scheduled, found.n_window, found.n_ok) == (4, 3, 1)
    assert found.statuses == {"dropped": 1, "ok": 1, "timeout": 1}
    assert found.ttft_ms["p50"] is None
