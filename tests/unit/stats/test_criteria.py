"""Criteria of success: those that ask for numbers, for a decision, and for time that was spent, by what launches wrote down."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import SMALL, Campaign, campaign_config
from msgspec import UNSET

from connector_tax.base.artifacts.receipts import read_launches, timed_launch, write_receipt
from connector_tax.base.documents.aggregate import CriterionOutcome, Hypothesis, Problem, VerdictNumbers
from connector_tax.base.documents.receipt import Decision
from connector_tax.base.files import read_json, write_json
from connector_tax.base.statistics.decisions import NOT_TESTABLE, UNDETERMINED
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.completeness import judge_criteria

CONFIG = campaign_config(**{**SMALL, "connectors": ["plain", "nixl_both"], "phase_b_prime": {"configs": [], "shapes": []},
                            "repeats": 3, "analysis": {"time_budget_h": 6}})  # fmt: skip


def verdict(hypothesis: Any, outcome: Any, subject: str = "mooncake_both") -> Hypothesis:
    rest: Any = {"conclusions": (), "numbers": VerdictNumbers(), "p_value": None, "p_holm": None}
    return Hypothesis(id=hypothesis, subject=subject, outcome=outcome, **rest)


def criteria(
    skipped: tuple[str, ...] = (), lengths: int = 2, more: Sequence[Hypothesis] = (), **outcomes: str
) -> dict[int, str]:
    verdicts = [*(verdict(f"H{k}", outcomes.get(f"h{k}", UNDETERMINED)) for k in range(1, 7)), *more]
    config = SimpleNamespace(
        connector_ids=("plain", "noop_connector", "mooncake_both", "nixl_both"),
        phase_b_input_tokens=(64, 256)[:lengths],
        phase_b_output_tokens=(8, 16),
        phase_b_prime=SimpleNamespace(configs=()),
        analysis=SimpleNamespace(time_budget_h=1),
    )
    data: Any = SimpleNamespace(
        document=SimpleNamespace(order={}),
        config=config,
        skipped={*skipped},
        decisions={i: Decision("skip") for i in skipped},
        preflight=None,
        runs=[],
        reference_rates=None,
    )
    return {c.number: c.outcome for c in judge_criteria(data, verdicts)}


def test_a_criterion_whose_data_were_lost_fails() -> None:
    """It is undetermined where nobody could be asked."""
    assert criteria(h2=NOT_TESTABLE)[2] == "not met"
    assert criteria(("nixl_both",), h2=NOT_TESTABLE)[2] == "undetermined"
    assert criteria(("nixl_both",), h1=NOT_TESTABLE)[1] == "not met"
    assert criteria(h4=NOT_TESTABLE)[4] == "undetermined", "the stack is not part of the campaign"
    assert criteria(h5=NOT_TESTABLE)[5] == "not met"
    assert criteria(lengths=1, h5=NOT_TESTABLE)[5] == "undetermined"


def test_no_criterion_is_met_beside_an_undetermined_hypothesis() -> None:
    """1, 2 and 5 ask for numbers and are reported; 3 asks for a decision, 4 that the hypothesis holds."""
    found = criteria()
    assert [found[n] for n in (1, 2, 5)] == ["reported"] * 3
    assert [found[n] for n in (3, 4)] == ["undetermined"] * 2
    assert criteria(h3="refuted")[3] == criteria(h4="supported")[4] == "met"
    assert criteria(h4="refuted")[4] == "not met"
    assert criteria(h1="refuted")[1] == criteria(h1="supported")[1] == "reported"


def test_a_criterion_that_names_nobody_takes_the_answer_about_another_stack() -> None:
    """Where the stack that it was registered for is not part of the campaign; a stack that was lost fails all the same."""
    other = verdict("H4", "supported", "multi_mooncake_nixl")
    assert criteria(h4=NOT_TESTABLE, more=[other])[4] == "met"
    nixl = verdict("H3", "refuted", "nixl_both")
    assert criteria((), h3=NOT_TESTABLE, more=[nixl])[3] == "not met"
    assert criteria(("noop_connector",), h3=NOT_TESTABLE, more=[nixl])[3] == "met"


def measure(
    campaign: Campaign, connector: str, phase: Any, *elapsed_s: float | None, receipt: bool = True
) -> None:
    """One run whose launches took so long; none wrote anything where there are none."""
    run = campaign.run(connector, phase)
    if elapsed_s:
        launches = [
            {"attempt": k, "started_utc": "2026-11-20T08:00:00Z", "elapsed_s": e}
            for k, e in enumerate(elapsed_s, start=1)
        ]
        write_json(run.launches, {"schema": 1, "launches": launches})
    rates = None if phase == "a" else (4.0, 4.0)
    campaign.measure(connector, phase, rates=rates, receipt=receipt, attempt=max(1, len(elapsed_s)))


def preflight(campaign: Campaign, elapsed_s: float) -> None:
    path = campaign.folder.preflight_status
    write_json(path, read_json(path) | {"elapsed_s": elapsed_s})


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path, CONFIG, step_timing=False)


def seventh(campaign: Campaign) -> CriterionOutcome:
    verdicts = [verdict(f"H{k}", NOT_TESTABLE) for k in range(1, 7)]
    return judge_criteria(read_campaign(campaign.root, steps=False), verdicts)[6]


def phase_a_s(found: CriterionOutcome) -> float:
    return next(p.numbers["time_s"] for p in found.evidence if (p.code, p.subject) == ("phase_took", "a"))


def untimed(found: CriterionOutcome) -> Any:
    return next(p.numbers for p in found.evidence if p.code == "runs_untimed")


def test_preflight_and_launches_add_up_and_blocks_are_told_apart(campaign: Campaign) -> None:
    """20 min, 2 h in two tries and 2 h 30 min: under six hours; with two hours in blocks over them."""
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


def test_an_interruption_between_two_launches_is_not_time_spent(campaign: Campaign) -> None:
    """A week between Phase A and Phase B, by the clocks of their cells."""
    measure(campaign, "plain", "a", 600)
    campaign._now_ns += 7 * 24 * 3600 * 10**9
    measure(campaign, "plain", "b", 600)
    found = seventh(campaign)
    assert found.outcome == "undetermined"
    assert found.evidence[:2] == (
        Problem("time_spent", numbers={"time_s": 1200}),
        Problem("preflight_untimed"),
    )


def test_a_campaign_from_before_launches_were_timed_counts_its_cells(campaign: Campaign) -> None:
    """Receipts without launches: from the first cell of a run to its last, and that is said."""
    for connector in ("plain", "nixl_both"):
        measure(campaign, connector, "a")
        path = campaign.run(connector, "a").receipt
        receipt = read_json(path)
        del receipt["launches"]
        write_json(path, receipt)
    found = seventh(campaign)
    assert found.outcome == "undetermined"
    assert untimed(found) == {"untimed": 2, "of": 2}
    cells = [c.window for c in read_campaign(campaign.root, steps=False).runs[0].cells]
    one_run_s = (max(w.drained_ns for w in cells) - min(w.t0_ns for w in cells)) / 1e9
    assert phase_a_s(found) == round(2 * one_run_s)


def test_a_launch_that_was_killed_counts_by_its_cells_and_the_next_by_its_clock(campaign: Campaign) -> None:
    measure(campaign, "plain", "a", None, 3600, receipt=False)
    found = seventh(campaign)
    assert 3600 <= phase_a_s(found) < 3660
    assert untimed(found) == {"untimed": 1, "of": 1}


def test_a_run_that_failed_without_a_record_of_its_launch_was_not_timed(campaign: Campaign) -> None:
    """Runs had none before launches were timed; a sum within the budget lacks it and passes nothing."""
    assert seventh(campaign).evidence == (Problem("nothing_launched"),)
    preflight(campaign, 1200)
    measure(campaign, "plain", "a", 600)
    write_receipt(campaign.run("nixl_both", "a"), campaign="demo", status="failed", reason="it died")
    found = seventh(campaign)
    assert untimed(found) == {"untimed": 1, "of": 2}
    assert found.outcome == "undetermined"


def test_damaged_launches_are_named_and_taken_as_not_timed(campaign: Campaign) -> None:
    measure(campaign, "plain", "a", 600, receipt=False)
    file = campaign.run("plain", "a").launches
    write_json(file, {"launches": [{"attempt": 1, "elapsed_s": "600"}]})
    data = read_campaign(campaign.root, steps=False)
    (problem,) = data.problems
    assert problem.code == "launches_untimed" and problem.subject.endswith("phase_a/launches.json")
    assert "at `$.launches[0].elapsed_s`" in problem.detail
    assert untimed(seventh(campaign))["untimed"] == 1


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
