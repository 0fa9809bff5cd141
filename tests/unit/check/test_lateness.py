"""A clock that ran late costs a check its precision and not its verdict."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import GIVEN, QUIET, Behaviour, measured

from connector_tax.base.documents.health import RAN_LATE
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.check.document import check_json
from connector_tax.check.findings import Findings, read_findings
from connector_tax.check.lateness import counts, only_late
from connector_tax.check.load_tax import LoadTax
from connector_tax.check.text import check_text
from connector_tax.check.verdict import FINE, NOT_JUDGED, Judged, judge, verdict


def clock(late_share: float, p99_us: float = 100.0) -> dict[str, Any]:
    return {
        "steps": 400,
        "late_share": late_share,
        "lateness_us": {"p50": 50.0, "p99": p99_us, "max": 3000.0},
        "device_busy_share": 1.0,
        "slack_us": {"p10": 4000.0, "p50": 5000.0},
    }


def ran_late(late_share: float) -> dict[str, Any]:
    """What a cell says whose clock did; above 2 % it is invalid."""
    found: dict[str, Any] = {"health": {"device_clock": clock(late_share)}}
    if late_share > 0.02:
        found |= {"verdict": "invalid", "reasons": [f"{RAN_LATE}: by {late_share:.1%}"]}
    return found


def findings_of(folder: Path, own: float, plain: float, behaviour: Behaviour = QUIET) -> Findings:
    """One way of scheduling; how late the clock ran beside the connector and beside plain."""
    late = {GIVEN: ran_late(own), "plain": ran_late(plain), "plain_again": ran_late(plain)}
    return read_findings(measured(folder, own=behaviour, documents=late, modes=("async",)), {})


def of_tpot(findings: Findings) -> list[Judged]:
    """The one over the loads together."""
    found = [j for j in judge(findings.modes[0]) if j.metric == "tpot_p90"]
    assert len(found) == 1
    return found


@pytest.mark.parametrize(
    ("late_share", "reasons", "kept"),
    [
        (0.03, [f"{RAN_LATE}: by 3 %"], True),
        (0.05, [f"{RAN_LATE}: by 5 %"], True),
        (0.051, [f"{RAN_LATE}: by 5.1 %"], False),
        (0.03, [f"{RAN_LATE}: by 3 %", "requests failed"], False),
        (0.03, [], False),
    ],
)
def test_a_cell_counts_whose_clock_alone_ran_a_little_late(
    late_share: float, reasons: list[str], kept: bool
) -> None:
    document = {"verdict": "invalid", "reasons": reasons, "health": {"device_clock": clock(late_share)}}
    assert counts(document) is kept
    assert counts({**document, "verdict": "valid"})
    late_alone = bool(reasons) and all(r.startswith(RAN_LATE) for r in reasons)
    assert only_late(document) is late_alone


def test_a_late_cell_without_a_number_does_not_count() -> None:
    assert not counts({"verdict": "invalid", "reasons": [RAN_LATE], "health": {}})


def test_lateness_of_the_connectors_clock_may_be_the_tax(tmp_path: Path) -> None:
    """TPOT is 2.9 % longer beside it, and its clock ran 3 % late where plain's ran 0.1 % late."""
    slower = replace(QUIET, tpot_ms=1.029 * QUIET.tpot_ms)
    findings = findings_of(tmp_path, 0.03, 0.001, slower)
    for judged in of_tpot(findings):
        assert judged.point == pytest.approx(0.029, abs=0.002)
        assert not judged.told_apart
    assert not findings.modes[0].lost and verdict(findings, None).exit_code == FINE
    late = [t.late for t in findings.modes[0].taxes if t.metric == "tpot_p90"]
    assert late == [pytest.approx(1.03 / 1.001 - 1)] * 3


def test_a_tax_above_what_lateness_explains_is_one(tmp_path: Path) -> None:
    assert all(j.told_apart for j in of_tpot(findings_of(tmp_path, 0.03, 0.001, QUIET.taxed(0.06))))


def test_a_clock_that_kept_the_time_takes_nothing_from_a_tax(tmp_path: Path) -> None:
    assert all(j.told_apart for j in of_tpot(findings_of(tmp_path, 0.004, 0.004, QUIET.taxed(0.03))))


def test_a_late_clock_beside_plain_may_hide_a_tax(tmp_path: Path) -> None:
    assert all(j.high is not None and j.high > 0.035 for j in of_tpot(findings_of(tmp_path, 0.0, 0.04)))


def test_a_first_token_waits_for_a_late_step(tmp_path: Path) -> None:
    """3 ms of the 20 ms that plain's takes."""
    document = ran_late(0.01)
    document["health"]["device_clock"]["lateness_us"]["p99"] = 3000.0
    late = {GIVEN: document, "plain": ran_late(0.0), "plain_again": ran_late(0.0)}
    findings = read_findings(measured(tmp_path, documents=late, modes=("async",)), {})
    found = [t.late for t in findings.modes[0].taxes if t.metric == "ttft_p90"]
    assert found == [pytest.approx(0.15, rel=0.1)] * 3


def test_lateness_of_a_first_token_is_held_against_plains(tmp_path: Path) -> None:
    """The connector's TTFT is 4 ms longer, and so late was its clock: nothing is left."""
    document = ran_late(0.01)
    document["health"]["device_clock"]["lateness_us"]["p99"] = 4000.0
    late = {GIVEN: document, "plain": ran_late(0.0), "plain_again": ran_late(0.0)}
    for config in ("plain", "plain_again"):
        late[config]["health"]["device_clock"]["lateness_us"]["p99"] = 0.0
    own = replace(QUIET, ttft_ms=QUIET.ttft_ms + 4.0)
    findings = read_findings(measured(tmp_path, own=own, documents=late, modes=("async",)), {})
    left = [
        t.at_equal_lateness(t.own.point or 0.0) for t in findings.modes[0].taxes if t.metric == "ttft_p90"
    ]
    assert left == [pytest.approx(0.0, abs=0.01)] * 3


def test_cells_that_count_although_late_are_named(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, 0.03, 0.001)
    found = verdict(findings, None)
    assert "clock late, and the cell counts: checked, " in check_text(findings, found, explain=False)
    document = check_json(findings, found, None, 1.0)["modes"]["async"]
    assert len(document["cells_late"]) == 3 and document["cells_lost"] == []


def test_over_blocks_a_late_cell_does_not_count_and_is_named(tmp_path: Path) -> None:
    late = {GIVEN: ran_late(0.03)}
    campaigns = measured(tmp_path, documents=late, modes=("async",), blocks=3)
    found = verdict(read_findings(campaigns, {}), None)
    assert found.exit_code == NOT_JUDGED and RAN_LATE in found.line


def test_a_clock_that_ran_far_too_late_leaves_no_verdict(tmp_path: Path) -> None:
    found = verdict(findings_of(tmp_path, 0.08, 0.0), None)
    assert found.exit_code == NOT_JUDGED and RAN_LATE in found.line


def test_without_a_clock_nothing_is_late() -> None:
    nothing = unavailable("none")
    tax = LoadTax(8.0, "tpot_p90", nothing, nothing, (None, None, None))
    assert isinstance(tax.own, Estimate) and tax.at_equal_lateness(0.1) == pytest.approx(0.1)
