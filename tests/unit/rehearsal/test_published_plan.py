"""The published campaign, rehearsed whole: it fits its six hours and answers what it asks."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import read_json
from connector_tax.outlook import outlook, outlook_text
from connector_tax.run.rehearsal.campaign import PhaseTime, analyse, rehearse

Rehearsed = tuple[Path, list[PhaseTime]]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    root, times = rehearse(config, tmp_path_factory.mktemp("published"))
    analyse(root)
    return root, times


@pytest.fixture(scope="module")
def aggregate(rehearsed: Rehearsed) -> dict[str, Any]:
    found: dict[str, Any] = read_json(rehearsed[0] / "aggregate.json")
    return found


def test_it_fits_in_six_hours_with_preflight_and_launches(rehearsed: Rehearsed) -> None:
    _, times = rehearsed
    assert [t.phase for t in times] == ["preflight", "a", "b", "b_prime", "r1", "r2"]
    assert sum(t.total_s for t in times) <= 6 * 3600
    assert sum(t.overloaded_s for t in times) < 0.05 * sum(t.total_s for t in times)


def test_it_fits_where_phase_b_prime_is_needed(tmp_path: Path) -> None:
    """On an engine that takes 60 % of the time plain holds 4 req/s and connectors do not: B' has four launches, and blocks a second rate."""
    model = yaml.safe_load((PROJECT_ROOT / "config" / "engine_model.yaml").read_text())
    for cost in ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us"):
        model["engine"][cost] *= 0.6
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(model))
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    config = replace(config, engine=replace(config.engine, model_file=str(tmp_path / "model.yaml")))
    root, times = rehearse(config, tmp_path / "out")
    rates = read_json(root / "reference_rates.json")
    assert (rates["ref_safe_per_s"], rates["ref_load_per_s"], rates["b_prime_needed"]) == (2, 4, True)
    load = {k: v["rate_per_s"] for k, v in rates["load_shapes"].items()}
    assert load == {"512x256": 4, "4096x256": 4, "32768x256": None}
    assert rates["load_shapes"]["32768x256"]["plain_use"] > 0.85
    assert next(t for t in times if t.phase == "b_prime").runs == 4
    assert sum(t.total_s for t in times) <= 6 * 3600


def test_every_hypothesis_is_decided_or_undetermined(aggregate: dict[str, Any]) -> None:
    outcomes = {h["id"]: h["outcome"] for h in aggregate["hypotheses"]}
    assert set(outcomes) == {"H1", "H2", "H3", "H4", "H5", "H6"}
    assert "not testable" not in outcomes.values()
    assert aggregate["problems"] == []


def test_the_headline_is_over_four_blocks_and_all_else_says_of_one_launch(aggregate: dict[str, Any]) -> None:
    latencies = [t for t in aggregate["main_taxes"] if t["metric"] in ("ttft_p90", "tpot_p90")]
    at_reference = [t for t in latencies if t["reference"] != "neither"]
    assert at_reference and {t["n_blocks"] for t in at_reference} == {4}
    assert {t["n_blocks"] for t in aggregate["taxes"]} == {1}
    launches = {h["id"]: h["n_blocks"] for h in aggregate["hypotheses"]}
    assert launches == dict.fromkeys(("H1", "H2", "H3", "H4"), 4) | dict.fromkeys(("H5", "H6"), 1)


def test_long_prompts_have_a_rate_of_their_own(rehearsed: Rehearsed, aggregate: dict[str, Any]) -> None:
    rates = read_json(rehearsed[0] / "reference_rates.json")
    assert rates["ref_safe_per_s"] == 2
    assert {k: v["rate_per_s"] for k, v in rates["shapes"].items() if v["not_held_by"]} == {
        "4096x1024": 1.0,
        "32768x64": 0.25,
        "32768x256": 0.25,
        "32768x1024": 0.125,
    }
    (h5,) = [h for h in aggregate["hypotheses"] if h["id"] == "H5"]
    assert 0.25 in h5["numbers"]["rates_per_s"]["32768"]


def text(rehearsed: Rehearsed, config: CampaignConfig, gpus: int | None = None) -> str:
    return outlook_text(outlook(*rehearsed, config, gpus), rehearsed[1], config, "connector-tax run x", gpus)


def test_a_person_is_told_on_a_screen_what_it_takes_and_finds(
    rehearsed: Rehearsed,
) -> None:
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    said = text(rehearsed, config)
    assert len(said.splitlines()) <= 20
    assert "SIMULATED" in said, "it would be a claim, one copy away"
    assert "9 cells overloaded; without a p90 beside those: none" in said
    assert "card" not in said and "Next: connector-tax run x" in said
    # Of 4 blocks A and B are two; both tables say which they count.
    assert "\n  2 repeats " in said and "\n  4 (yours) " in said and "blocks, with A and B" in said


def test_programs_are_told_hours_who_is_tested_and_what_more_blocks_find(
    rehearsed: Rehearsed,
) -> None:
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    plan = outlook(*rehearsed, config)
    assert 3600 * plan.hours == pytest.approx(sum(t.total_s for t in rehearsed[1]))
    assert [a.subject for a in plan.tests["H1"]] == ["mooncake_both"]
    assert [(f.repeats, f.blocks) for f in plan.smallest_tax] == [(1, 3), (2, 4), (4, 6)]
    fewer, own, more = plan.smallest_tax
    assert fewer.hours < own.hours == plan.hours < more.hours
    for metric in ("ttft_p90", "tpot_p90"):
        found = [getattr(f, metric) for f in plan.smallest_tax]
        assert found[0].point > found[1].point > found[2].point > 0
        assert all(f.low < f.point < f.high for f in found)
