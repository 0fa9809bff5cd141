"""Criterion 7: time that was spent, by what launches wrote down."""

import time
from pathlib import Path
from typing import Any

import pytest
from builders import SMALL, Campaign, campaign_config
from msgspec import UNSET

from connector_tax.base.artifacts.receipts import read_launches, timed_launch, write_receipt
from connector_tax.base.documents.aggregate import CriterionOutcome, Hypothesis, Problem, VerdictNumbers
from connector_tax.base.files import read_json, write_json
from connector_tax.base.statistics.outcomes import NOT_TESTABLE
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.completeness import judge_criteria

CONFIG = campaign_config(**{**SMALL, "connectors": ["plain", "nixl_both"], "phase_b_prime": {"configs": [], "shapes": []},
                            "repeats": 3, "analysis": {"time_budget_h": 6}})  # fmt: skip
RATES = (4.0, 4.0)


def launches(*elapsed_s: float | None) -> list[dict[str, Any]]:
    return [
        {"attempt": k, "started_utc": "2026-11-20T08:00:00Z", "elapsed_s": e}
        for k, e in enumerate(elapsed_s, start=1)
    ]


def measure(
    campaign: Campaign, connector: str, phase: str, *elapsed_s: float | None, receipt: bool = True
) -> None:
    """One run whose launches took so long; none wrote anything where there are none."""
    run = campaign.run(connector, phase)
    if elapsed_s:
        write_json(run.launches, {"schema": 1, "launches": launches(*elapsed_s)})
    rates = None if phase == "a" else RATES
    campaign.measure(connector, phase, rates=rates, receipt=receipt, attempt=max(1, len(elapsed_s)))


def preflight(campaign: Campaign, elapsed_s: float) -> None:
    path = campaign.folder.preflight_status
    write_json(path, read_json(path) | {"elapsed_s": elapsed_s})


def phase_a_s(found: CriterionOutcome) -> float:
    return next(p.numbers["time_s"] for p in found.evidence if (p.code, p.subject) == ("phase_took", "a"))


def untimed(found: CriterionOutcome) -> Problem:
    return next(p for p in found.evidence if p.code == "runs_untimed")


def seventh(campaign: Campaign) -> CriterionOutcome:
    verdicts = [
        Hypothesis(
            id=f"H{k}",  # type: ignore[arg-type]
            subject="x",
            outcome=NOT_TESTABLE,
            conclusions=(),
            numbers=VerdictNumbers(),
            p_value=None,
            p_holm=None,
        )
        for k in range(1, 7)
    ]
    return judge_criteria(read_campaign(campaign.root, steps=False), verdicts)[6]


def test_preflight_and_launches_add_up_and_blocks_are_told_apart(tmp_path: Path) -> None:
    """20 min, 2 h in two tries and 2 h 30 min: under six hours; with two hours in blocks over them."""
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    preflight(campaign, 1200)
    measure(campaign, "plain", "a", 1800, 5400)
    measure(campaign, "plain", "b", 9000)
    for block in ("r1", "r2"):
        measure(campaign, "plain", block, 3600)
    found = seventh(campaign)
    assert found.outcome == "met"
    by_phase = {"a": 7200, "b": 9000, "r1": 3600, "r2": 3600}
    assert found.evidence == (
        Problem("time_spent", numbers={"time_s": 17400}),
        Problem("preflight_took", numbers={"time_s": 1200}),
        *(Problem("phase_took", phase, numbers={"time_s": s}) for phase, s in by_phase.items()),
    )
    preflight(campaign, 1200 + 4260)
    assert seventh(campaign).outcome == "not met"


def test_an_interruption_between_two_launches_is_not_time_spent(tmp_path: Path) -> None:
    """A week between Phase A and Phase B, by the clocks of their cells."""
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    measure(campaign, "plain", "a", 600)
    campaign._now_ns += 7 * 24 * 3600 * 10**9
    measure(campaign, "plain", "b", 600)
    found = seventh(campaign)
    assert found.outcome == "undetermined"
    assert found.evidence[:2] == (
        Problem("time_spent", numbers={"time_s": 1200}),
        Problem("preflight_untimed"),
    )


def test_a_campaign_from_before_launches_were_timed_counts_its_cells(tmp_path: Path) -> None:
    """Receipts without launches: from the first cell of a run to its last, and that is said."""
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    for connector in ("plain", "nixl_both"):
        measure(campaign, connector, "a")
        path = campaign.run(connector, "a").receipt
        receipt = read_json(path)
        del receipt["launches"]
        write_json(path, receipt)
    found = seventh(campaign)
    assert found.outcome == "undetermined"
    assert Problem("runs_untimed", numbers={"untimed": 2, "of": 2}) in found.evidence
    cells = [c.window for c in read_campaign(campaign.root, steps=False).runs[0].cells]
    one_run_s = (max(w.drained_ns for w in cells) - min(w.t0_ns for w in cells)) / 1e9
    assert phase_a_s(found) == round(2 * one_run_s)


def test_a_launch_that_was_killed_counts_by_its_cells_and_the_next_by_its_clock(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    measure(campaign, "plain", "a", None, 3600, receipt=False)
    found = seventh(campaign)
    assert 3600 <= phase_a_s(found) < 3660
    assert untimed(found).numbers == {"untimed": 1, "of": 1}


def test_a_run_that_failed_without_a_record_of_its_launch_was_not_timed(tmp_path: Path) -> None:
    """Runs had none before launches were timed; a sum within the budget lacks it and passes nothing."""
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    preflight(campaign, 1200)
    measure(campaign, "plain", "a", 600)
    write_receipt(campaign.run("nixl_both", "a"), campaign="demo", status="failed", reason="it died")
    found = seventh(campaign)
    assert untimed(found).numbers == {"untimed": 1, "of": 2}
    assert found.outcome == "undetermined"


def test_nothing_launched_is_not_judged(tmp_path: Path) -> None:
    found = seventh(Campaign(tmp_path, CONFIG))
    assert (found.outcome, found.evidence) == ("undetermined", (Problem("nothing_launched"),))


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_launch_is_written_down_however_it_ends(tmp_path: Path, ends: str) -> None:
    """Tries add up; one that is still under way, or was killed, has no duration."""
    file = tmp_path / "launches.json"
    with timed_launch(file, 1):
        assert [x.elapsed_s for x in read_launches(file)] == [None]
    if ends == "well":
        with timed_launch(file):
            pass
    else:
        with pytest.raises(ValueError), timed_launch(file):
            raise ValueError
    found = read_launches(file)
    assert [x.attempt for x in found] == [1, 2]
    assert all(x.elapsed_s >= 0 and x.started_utc.endswith("Z") for x in found)


def test_the_end_of_a_launch_is_timed_from_when_its_engine_is_told(tmp_path: Path) -> None:
    """A sitting keeps as much time for it."""
    file = tmp_path / "launches.json"
    with timed_launch(file) as told_to_end:
        time.sleep(0.2)
        told_to_end()
        time.sleep(0.1)
    with timed_launch(file):
        pass
    first, second = read_launches(file)
    assert isinstance(first.ending_s, float) and first.elapsed_s is not None
    assert 0.1 <= first.ending_s <= first.elapsed_s - 0.2
    assert second.ending_s is UNSET


def test_damaged_launches_are_named_and_taken_as_not_timed(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, CONFIG, step_timing=False)
    measure(campaign, "plain", "a", 600, receipt=False)
    file = campaign.run("plain", "a").launches
    write_json(file, {"launches": [{"attempt": 1, "elapsed_s": "600"}]})
    data = read_campaign(campaign.root, steps=False)
    (problem,) = data.problems
    assert problem.code == "launches_untimed" and problem.subject.endswith("phase_a/launches.json")
    assert "Expected `float | null`, got `str` - at `$.launches[0].elapsed_s`" in problem.detail
    assert untimed(seventh(campaign)).numbers["untimed"] == 1
