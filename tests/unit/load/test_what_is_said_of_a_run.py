"""Whose fault an end was, and whether anything was counted: remarks, exit codes, and bounds on what strangers answer."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from made_outcomes import S, failed, outcome_of, record, spec_of

from connector_tax.base.errors import ConfigError
from connector_tax.load.find_rate import never_observed
from connector_tax.load.measured import first_failure, not_believed, remarks_of, result_of
from connector_tax.load.output import rate_curves
from connector_tax.load.plan import Content, parse_slo, workers_for
from connector_tax.run.loadgen.cell import CellOutcome
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.loadgen.descriptors import Core
from connector_tax.run.workload.protocol import CellProtocol


def overloaded(outcome: CellOutcome, given_up: str) -> CellOutcome:
    window = replace(outcome.window, overloaded=True)
    return replace(outcome, window=window, session=replace(outcome.session, given_up=given_up))


def test_a_server_that_does_not_keep_up_is_a_result_and_a_remark() -> None:
    """A search is there to find it: the cell counts, and the search goes on."""
    spec = spec_of()
    found = overloaded(outcome_of(spec, [record(k, k * 0.1) for k in range(100)]), "behind a growing queue")
    assert not any("given up" in why for why in not_believed(spec, found))
    assert "given up: behind a growing queue" in remarks_of(spec, found, None).values()
    hung = replace(found, window=replace(found.window, overloaded=False))
    assert "given up: behind a growing queue" in not_believed(spec, hung)


def test_rates_that_are_all_overloaded_have_a_page_without_curves() -> None:
    """None has a percentile: nothing can be drawn on a logarithmic scale."""
    cells = []
    for rate in (10.0, 20.0):
        spec = spec_of(rate_per_s=rate)
        found = overloaded(
            outcome_of(spec, [record(k, k * 0.1) for k in range(20)]), "behind a growing queue"
        )
        cells.append(result_of(spec, found, percentiles=(50.0,), limits=(), hits=None))
    assert rate_curves(cells) == {}


def test_a_window_without_a_request_is_no_result() -> None:
    spec = spec_of(warmup_s=5.0)
    outcome = outcome_of(spec, [record(k, k * 0.1) for k in range(10)])
    late = replace(outcome.window, window_start_ns=5 * S, t_stop_ns=5 * S)
    why = not_believed(spec, replace(outcome, window=late))
    assert why == ("no request is counted: all 10 were sent in the warm-up of 5 s (--warmup)",)


def test_what_the_client_did_not_send_is_said_to_be_its_own_cap() -> None:
    spec = spec_of(inflight_cap=8)
    nothing = {"t_send_ns": None, "t_first_token_ns": None, "t_last_token_ns": None, "t_end_ns": None}
    dropped = [record(k, k * 0.1, status="dropped", completion_tokens=None, **nothing) for k in range(50, 60)]
    outcome = outcome_of(spec, [*(record(k, k * 0.1) for k in range(50)), *dropped])
    said = remarks_of(spec, outcome, None).values()
    assert (
        "10 of 60 requests were not sent, since 8 were in flight, which is the client's own cap (--inflight-cap)"
        in said
    )


def test_a_queue_that_nobody_saw_is_not_said_to_grow() -> None:
    spec = cell_spec(rate_per_s=40.0, warmup_s=0.0, duration_s=3.0, min_completed=10, inflight_cap=8)
    protocol = CellProtocol(spec, 0)
    protocol.ended(0, True, 1)
    for k in range(96):
        protocol.dropped(S + k)
    assert (
        protocol.gives_up(3 * S + 2)
        == "96 arrivals found 8 requests in flight, the client's cap, and were dropped"
    )


def test_a_fixed_number_is_given_the_time_that_a_request_may_take() -> None:
    spec = cell_spec(
        warmup_s=0.0, duration_s=0.0, min_completed=0, drain_timeout_s=1.0, num_requests=8, max_cell_s=60.0
    )
    protocol = CellProtocol(spec, 0)
    assert protocol.gives_up(2 * S) is None
    assert protocol.gives_up(61 * S) is not None


def test_a_failure_moves_no_cursor() -> None:
    said = first_failure([failed(0, 0.0, error="HTTP 500: \x1b[2J\x1b]0;title\x07 bad\nline two")])
    assert said is not None and said.isprintable()


def closed(concurrency: int, num_requests: int | None) -> list[Content]:
    spec = cell_spec(
        arrival="concurrency", rate_per_s=0.0, concurrency=concurrency, num_requests=num_requests
    )
    return [Content(spec, 8.0)]


CORES = tuple(Core(0, (k,), 0) for k in range(16))


def test_a_closed_loop_of_a_fixed_number_is_shared_evenly_or_refused() -> None:
    with pytest.raises(ConfigError, match="--workers 3: 64 requests in flight"):
        workers_for(closed(64, 6), CORES, asked=3, here=False)
    assert workers_for(closed(64, None), CORES, asked=3, here=False) == 3
    for concurrency in (1, 7, 4_001, 6_000):
        assert concurrency % workers_for(closed(concurrency, 9), CORES, asked=None, here=False) == 0


def test_a_limit_on_what_answers_do_not_have_ends_a_search() -> None:
    limits = parse_slo("tpot_p90=50ms")
    one_token = [record(k, k * 0.1, completion_tokens=1) for k in range(100)]
    spec = spec_of()
    for requests, unknown in ((one_token, "TPOT"), ([record(k, k * 0.1) for k in range(100)], None)):
        cell = result_of(spec, outcome_of(spec, requests), percentiles=(90.0,), limits=(), hits=None)
        assert never_observed(cell, limits) == unknown


def test_a_long_folder_for_temporary_files_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with worker_pool(1) as pool:
        pool.revive()


@pytest.mark.parametrize("closed_stream", [1, 2])
def test_a_stream_that_was_closed_beforehand_loses_nothing(closed_stream: int) -> None:
    command = [sys.executable, "-m", "connector_tax", "--version"]
    done = subprocess.run(
        command,
        preexec_fn=lambda: os.close(closed_stream),
        stdin=subprocess.DEVNULL,
        stdout=None,
        stderr=None,
    )
    assert done.returncode == 0
