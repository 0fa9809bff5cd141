"""The self-test finds the errors that a client makes, and the truth server tells the truth."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from connector_tax.loadgen.cell import CellOutcome, measure_cell
from connector_tax.loadgen.selftest import Truth, errors, print_table, read_truth, truth_server
from connector_tax.loadgen.session import Observe
from connector_tax.records.cell import CellSpec, CellWindow
from connector_tax.records.request import RequestRecord

MS = 1_000_000
SPEC = CellSpec("a", 50, 16, 3, "fixed", 0.1, 0.3, 5, 5, 5, 64, 0xAB, 100, 200)


def record(seq: int, sched_ms: float, send_ms: float, first_ms: float, last_ms: float) -> RequestRecord:
    times = (round(t * MS) for t in (sched_ms, send_ms, first_ms, last_ms, last_ms))
    return RequestRecord(seq, *times, "ok", 16, 3, 0, 0, "window")


def outcome_of(one: RequestRecord, token_ns: dict[int, list[int]]) -> CellOutcome:
    window = CellWindow(0, 0, MS, MS, True)
    return CellOutcome(window, [one], {}, SimpleNamespace(token_ns=token_ns))


def test_each_error_is_the_clients_time_less_the_servers() -> None:
    """Worked by hand: sent 2 ms late, 1 ms on the way, first token read 3 ms after its write, last 5 ms after."""
    outcome = outcome_of(record(7, 10, 12, 36, 48), {7: [36 * MS, 41 * MS, 48 * MS]})
    truth = {"ab-7": Truth(13 * MS, 13 * MS, [33 * MS, 38 * MS, 43 * MS])}
    found = errors(SPEC, outcome, truth)
    assert found.lateness.tolist() == [2000]
    assert found.dispatch.tolist() == [3000]
    # 36 - 12 = 24 ms by the client, 33 - 13 = 20 ms by the server.
    assert found.ttft.tolist() == [4000]
    # Gaps of 6 ms by the client, 5 ms by the server.
    assert found.tpot.tolist() == [1000]
    # 5 ms where there were 5, then 7 ms where there were 5.
    assert found.itl.tolist() == [0, 2000]


def test_a_failed_request_is_no_basis_for_a_comparison() -> None:
    failed = RequestRecord(0, 0, None, None, None, 0, "connect_error", None, None, 0, 0, "window")
    with pytest.raises(AssertionError):
        errors(SPEC, outcome_of(failed, {}), {})


def test_every_request_is_matched_with_what_the_server_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamps = tmp_path / "stamps.jsonl"
    with truth_server(20, 4, stamps) as url:
        outcome = measure_cell(SPEC, url, "truth", observe=Observe(token_times=True))
    truth = read_truth(stamps)
    assert len(truth) == len(outcome.requests) >= 15
    for true in truth.values():
        assert true.last_byte_ns >= true.first_byte_ns
        due_ns = true.last_byte_ns + np.array([20, 24, 28]) * MS
        assert (np.array(true.writes_ns) >= due_ns).all(), "nothing is written before its time"
    found = errors(SPEC, outcome, truth)
    # Nothing arrives before it was sent, and nothing is read before it was written.
    assert (found.dispatch >= found.lateness).all()
    assert (found.ttft > 0).all()
    assert len(found.itl) == 2 * len(outcome.requests)
    print_table(found, outcome)
    assert "client CPU" in capsys.readouterr().out
