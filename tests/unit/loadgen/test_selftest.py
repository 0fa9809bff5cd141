"""The self-test finds the errors that a client makes, and the truth server tells the truth."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from connector_tax.base.errors import EngineError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.messages import Observe
from connector_tax.run.selftest.__main__ import (
    Errors,
    Seen,
    Truth,
    accuracy,
    beyond,
    errors,
    print_table,
    read_truth,
    seen_of,
    truth_server,
)

MS = 1_000_000
SPEC = CellSpec("a", 50, 16, 3, "fixed", 0.1, 0.3, 5, 5, 5, 64, 0xAB, 100, 200)


def test_each_error_is_the_clients_time_less_the_servers() -> None:
    """Worked by hand: sent 2 ms late, 1 ms on the way, first token read 3 ms after its write, last 5 ms after."""
    seen = Seen(7, 10 * MS, 12 * MS, 36 * MS, 6 * MS, [36 * MS, 41 * MS, 48 * MS])
    truth = {"ab-7": Truth(13 * MS, 13 * MS, [33 * MS, 38 * MS, 43 * MS])}
    found = errors(SPEC.seed, [seen], truth)
    assert found.lateness.tolist() == [2000]
    assert found.dispatch.tolist() == [3000]
    # 36 - 12 = 24 ms by the client, 33 - 13 = 20 ms by the server.
    assert found.ttft.tolist() == [4000]
    # Gaps of 6 ms by the client, 5 ms by the server.
    assert found.tpot.tolist() == [1000]
    # 5 ms where there were 5, then 7 ms where there were 5.
    assert found.itl.tolist() == [0, 2000]


def test_a_failed_request_is_no_basis_for_a_comparison() -> None:
    failed = RequestRecord(3, 0, None, None, None, 0, "connect_error", None, None, 0, 0, "window", "refused")
    with pytest.raises(EngineError, match=r"request 3 .* connect_error: refused"):
        seen_of([failed], {})


def test_the_judgement_names_what_is_beyond_its_limit() -> None:
    """Everything well inside, then one figure after the other pushed out."""
    quiet = np.full(100, 10.0)
    fine = Errors(quiet, quiet, quiet, quiet / 100, quiet)
    assert beyond(fine) == {}
    late = np.where(np.arange(100) < 90, 10.0, 2000.0)
    assert list(beyond(replace(fine, dispatch=late))) == ["dispatch p99"]
    assert beyond(replace(fine, ttft=quiet + 700)) == {"TTFT p50": 710, "TTFT p99": 710}
    assert list(beyond(replace(fine, tpot=-quiet))) == ["TPOT p99"]
    assert list(beyond(replace(fine, itl=late))) == ["ITL p99"]


def test_the_client_is_held_against_the_truth_and_says_what_it_cost() -> None:
    found, cost = accuracy(replace(SPEC, duration_s=0.5), 20, 4)
    assert found.ttft.size >= 25 and found.itl.size == found.ttft.size * (SPEC.output_tokens - 1)
    assert (found.ttft > 0).all() and cost > 0


def test_every_request_is_matched_with_what_the_server_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamps = tmp_path / "stamps.jsonl"
    with truth_server(20, 4, stamps) as url:
        outcome = measure_cell(SPEC, target_of(url, "truth"), observe=Observe(token_times=True))
    truth = read_truth(stamps)
    assert len(truth) == len(outcome.requests) >= 15
    for true in truth.values():
        assert true.last_byte_ns >= true.first_byte_ns
        due_ns = true.last_byte_ns + np.array([20, 24, 28]) * MS
        assert (np.array(true.writes_ns) >= due_ns).all(), "nothing is written before its time"
    found = errors(SPEC.seed, seen_of(outcome.requests, dict(outcome.session.token_ns)), truth)
    # Nothing arrives before it was sent, and nothing is read before it was written.
    assert (found.dispatch >= found.lateness).all()
    assert (found.ttft > 0).all()
    assert len(found.itl) == 2 * len(outcome.requests)
    print_table(found)
    assert "ITL, client - server" in capsys.readouterr().out
