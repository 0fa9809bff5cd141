"""Reasons that name phase and owner, answers that differ from plain's, criteria whose data were lost, and time that adds up."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from analysed import aggregate_json
from builders import SMALL, Campaign, campaign_config
from invented_server import Behaviour
from mutations import gone, lost, without_rates
from specs import spec_of

from connector_tax.base.documents.aggregate import Hypothesis, VerdictNumbers
from connector_tax.base.documents.receipt import Decision
from connector_tax.base.errors import AnalysisError
from connector_tax.base.files import write_json
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.outcomes import NOT_TESTABLE, UNDETERMINED
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.attribution import _share
from connector_tax.read.stats.completeness import judge_criteria
from connector_tax.read.stats.decomposition import decompose
from connector_tax.read.stats.reference import select_reference_rates
from connector_tax.read.stats.taxes import Tax

QUICK: dict[str, Any] = {**SMALL, "analysis": {"bootstrap_draws": 200}}
TAXED = {c: Behaviour().taxed(0.3) for c in ("noop_connector", "mooncake_both", "nixl_both")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    campaign = Campaign(
        tmp_path_factory.mktemp("whole") / "demo", campaign_config(**QUICK), TAXED, max_steps=40
    )
    campaign.measure_everything()
    return campaign


@pytest.fixture
def campaign(whole: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    monkeypatch.setattr("os.fsync", lambda _: None)
    shutil.copytree(whole.root, tmp_path / "demo")
    copied = Campaign(tmp_path / "other", whole.config, TAXED)
    copied.root = tmp_path / "demo"
    return copied


def analysed(campaign: Campaign) -> dict[str, Any]:
    found: dict[str, Any] = aggregate_json(read_campaign(campaign.root))
    return found


def of(value: dict[str, Any], table: str, **keys: Any) -> list[dict[str, Any]]:
    return [row for row in value[table] if all(row.get(k) == v for k, v in keys.items())]


# Reasons.
def test_a_lost_cell_is_the_reason_of_its_taxes(campaign: Campaign) -> None:
    at = campaign.folder.reference_rates
    safe = json.loads(at.read_text())["ref_safe_per_s"]
    lost("plain", "a", cell_id=f"r{safe:g}_256x16")(campaign)
    lost("nixl_both", "b", cell_id=f"r{safe:g}_64x8")(campaign)
    value = analysed(campaign)
    own = of(value, "taxes", phase="a", reference="ref_safe", metric="ttft_p90")
    assert {(t["reason"], t["subject"]) for t in own} == {("no_cell", "plain")}
    (tax,) = of(value, "taxes", config="nixl_both", phase="b", metric="ttft_p90", input_tokens=64, output_tokens=8)  # fmt: skip
    assert tax["reason"] == "cell_lost"
    (problem,) = of(value, "problems", subject=f"2026-11-20_nixl_both/phase_b/cells/r{safe:g}_64x8")
    missing = {"code": "file_missing", "subject": f"requests_B_r{safe:g}_64x8.jsonl"}
    assert (problem["code"], problem["because"]) == ("cell_left_out", missing)


def estimate(point: float) -> Estimate:
    return Estimate(point, np.full(50, point), 50)


def test_the_no_op_connectors_reason_is_not_taken_for_the_connectors() -> None:
    def main(config: str, found: Estimate) -> Tax:
        return Tax(config, "ref_safe", "a", spec_of(2.0, 256, 16), "ttft_p90", found, 50, 50)

    lost_one = unavailable("cell_lost")
    chosen = [main("mooncake_both", estimate(0.3)), main("noop_connector", lost_one)]
    (row,) = decompose(chosen, {"mooncake_both": {}, "noop_connector": {}}, 0.95)
    for part in (row.framework, row.implementation):
        assert (part.reason, part.subject) == ("cell_lost", "noop_connector")
    matched = [*chosen, main("plain_matched_mooncake_both", lost_one)]
    (row,) = decompose(matched, {"mooncake_both": {"x": {}}, "noop_connector": {}}, 0.95)
    assert row.flags.subject == "plain_matched_mooncake_both"


# Reference rates.
def test_without_plain_the_file_of_rates_is_said_to_be_used(campaign: Campaign) -> None:
    safe = json.loads(campaign.folder.reference_rates.read_text())["ref_safe_per_s"]
    gone("plain")(campaign)
    value = analysed(campaign)
    assert value["reference_rates"]["ref_safe_per_s"] == safe
    assert [p["code"] for p in of(value, "problems", subject="reference_rates.json")] == ["rates_kept"]
    assert of(value, "problems", code="no_plain") == []


def test_without_plain_the_rates_are_refused_with_what_to_do(campaign: Campaign) -> None:
    gone("plain")(campaign)
    with pytest.raises(AnalysisError, match=r"no reference rate\. Remove bad cells .* start the campaign"):
        select_reference_rates(read_campaign(campaign.root))


def test_rates_that_were_worked_out_anew_are_a_problem(campaign: Campaign) -> None:
    """The page would be that of a sound campaign otherwise."""
    assert analysed(campaign)["problems"] == []
    without_rates(campaign)
    (problem,) = analysed(campaign)["problems"]
    assert problem == {"code": "rates_remade", "subject": "reference_rates.json"}


def test_without_a_cell_step_timing_is_not_said_to_be_off(campaign: Campaign) -> None:
    assert analysed(campaign)["step_timing_reason"] is None
    gone(*campaign.config.connector_ids)(campaign)
    value = analysed(campaign)
    assert (value["step_timing_available"], value["step_timing_reason"]) == (
        False,
        {"code": "no_usable_cell"},
    )


# Answers.
def answer(campaign: Campaign, *launches: tuple[str, str, int]) -> None:
    for connector, phase, token in launches:
        outputs = [{"token_ids": [1]}, {"token_ids": [token]}]
        document = {"campaign": campaign.config.campaign, "connector": connector, "outputs": outputs}
        write_json(campaign.run(connector, phase).outputs, document)


def test_a_configuration_that_computes_something_else_has_no_tax_anywhere(campaign: Campaign) -> None:
    """In one launch is enough; its levels and its hooks' cells stay."""
    answer(campaign, ("plain", "a", 1), ("nixl_both", "a", 1), ("nixl_both", "b", 2))
    value = analysed(campaign)
    why = "answers_differ"
    for table in ("taxes", "main_taxes"):
        own = of(value, table, config="nixl_both")
        assert own and {(t["point"], t["verdict"], t["reason"]) for t in own} == {(None, "unavailable", why)}
    assert {d["total"]["reason"] for d in of(value, "decomposition", config="nixl_both")} == {why}
    assert of(value, "attribution", config="nixl_both") == of(value, "two_parts", config="nixl_both") == []
    (h2,) = of(value, "hypotheses", id="H2")
    assert (h2["outcome"], h2["missing"][0]["reason"]) == (NOT_TESTABLE, why)
    assert of(value, "criteria", number=2)[0]["outcome"] == "not met"
    assert of(value, "cells", config="nixl_both", usable=True)
    assert of(value, "main_taxes", config="mooncake_both", metric="ttft_p90")[0]["point"] is not None


def test_over_blocks_it_has_none_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    config = campaign_config(**QUICK | {"repeats": 1, "observer_effect": True})
    campaign = Campaign(tmp_path / "demo", config, TAXED, step_timing=False)
    campaign.measure_everything()
    assert {t["config"] for e in analysed(campaign)["repeats"] for t in e["taxes"]} >= {"nixl_both"}
    answer(campaign, ("plain", "a", 1), ("nixl_both", "a", 2))
    value = analysed(campaign)
    assert value["repeats"]
    assert "nixl_both" not in {t["config"] for e in value["repeats"] for t in e["taxes"]}
    assert {t["point"] for t in of(value, "main_taxes", config="nixl_both")} == {None}
    rows = of(value, "observer_effect", config="nixl_both")
    assert rows and all(r["tax"]["point"] is None and r["effect"]["point"] is not None for r in rows)


# Criteria.
def verdict(hypothesis: Any, outcome: Any, subject: str = "mooncake_both") -> Hypothesis:
    return Hypothesis(
        id=hypothesis,
        subject=subject,
        outcome=outcome,
        conclusions=(),
        numbers=VerdictNumbers(),
        p_value=None,
        p_holm=None,
    )


def criteria(
    skipped: tuple[str, ...] = (), lengths: int = 2, more: Sequence[Hypothesis] = (), **outcomes: str
) -> dict[int, str]:
    verdicts = [*(verdict(f"H{k}", outcomes.get(f"h{k}", UNDETERMINED)) for k in range(1, 7)), *more]
    ids = ("plain", "noop_connector", "mooncake_both", "nixl_both")
    config = SimpleNamespace(
        connector_ids=ids,
        phase_b_input_tokens=(64, 256)[:lengths],
        phase_b_output_tokens=(8, 16),
        phase_b_prime=SimpleNamespace(configs=()),
        analysis=SimpleNamespace(time_budget_h=1),
    )
    decisions = {i: Decision("skip") for i in skipped}
    data: Any = SimpleNamespace(
        document=SimpleNamespace(order={}),
        config=config,
        skipped={*skipped},
        decisions=decisions,
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
    asked = (1, 2, 3, 4, 5)
    assert [criteria()[n] for n in asked] == [
        "reported",
        "reported",
        "undetermined",
        "undetermined",
        "reported",
    ]
    assert criteria(h3="refuted", h4="supported")[3] == criteria(h4="supported")[4] == "met"
    assert criteria(h4="refuted")[4] == "not met"
    assert {criteria(**{f"h{k}": v})[1] for k in (1, 2) for v in ("supported", "refuted")} == {"reported"}


def test_a_criterion_that_names_nobody_takes_the_answer_about_another_stack() -> None:
    """Where the stack that it was registered for is not part of the campaign; a stack that was lost fails all the same."""
    other = verdict("H4", "supported", "multi_mooncake_nixl")
    assert criteria(h4=NOT_TESTABLE, more=[other])[4] == "met"
    assert criteria((), h3=NOT_TESTABLE, more=[verdict("H3", "refuted", "nixl_both")])[3] == "not met"
    assert (
        criteria(("noop_connector",), h3=NOT_TESTABLE, more=[verdict("H3", "refuted", "nixl_both")])[3]
        == "met"
    )


# Shares.
def test_the_ends_of_a_share_are_those_of_the_difference() -> None:
    """Hooks of exactly 100 us: what the difference leaves open is all that the share leaves open."""
    draws = np.sort(np.random.default_rng(1).normal(222.6, 100.0, 4000))
    whole = Estimate(222.6, draws, 51, freedom=4.0)
    low, high = whole.interval(0.95)
    found = _share(whole, 100.0, np.full(4000, 100.0), 0.95)
    assert low is not None and high is not None and low > 0 and found is not None
    assert found.point == pytest.approx(100 / 222.6)
    assert (found.low, found.high) == pytest.approx((100 / high, 100 / low), rel=1e-6)


def test_of_nothing_there_is_no_share() -> None:
    whole = Estimate(50.0, np.random.default_rng(1).normal(50.0, 100.0, 400), 51)
    assert _share(whole, 100.0, np.full(400, 100.0), 0.95) is None
