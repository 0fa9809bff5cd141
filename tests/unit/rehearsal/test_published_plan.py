"""The published campaign, rehearsed whole: it fits its six hours and answers what it asks."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import read_json
from connector_tax.base.plan import SIDE_BY_SIDE, wall_s
from connector_tax.base.units import duration_text
from connector_tax.outlook import outlook, outlook_text
from connector_tax.read.report.status import seconds_left
from connector_tax.run.rehearsal.campaign import PhaseTime, analyse, measuring_s, preflight_s, rehearse


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[PhaseTime]]:
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    root, times = rehearse(config, tmp_path_factory.mktemp("published"))
    analyse(root)
    return root, times


@pytest.fixture(scope="module")
def aggregate(rehearsed: tuple[Path, list[PhaseTime]]) -> dict[str, Any]:
    found: dict[str, Any] = read_json(rehearsed[0] / "aggregate.json")
    return found


def test_it_fits_in_six_hours_with_preflight_and_launches(rehearsed: tuple[Path, list[PhaseTime]]) -> None:
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


@pytest.mark.parametrize("gpus", [(0,), (0, 1), (0, 1, 2, 3)])
def test_status_says_as_much_before_anything_is_measured(
    rehearsed: tuple[Path, list[PhaseTime]], tmp_path: Path, gpus: tuple[int, ...]
) -> None:
    """A sum lacks queues and looks of the stopping rule, of which the simulation has a few percent."""
    _, times = rehearsed
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    config = replace(config, engine=replace(config.engine, gpus=gpus))
    rehearsed_s = preflight_s(times) + wall_s(config, measuring_s(times))
    assert seconds_left(config, CampaignFolder(tmp_path)) == pytest.approx(rehearsed_s, rel=0.15)


def test_every_hypothesis_is_decided_or_undetermined(aggregate: dict[str, Any]) -> None:
    outcomes = {h["id"]: h["outcome"] for h in aggregate["hypotheses"]}
    assert set(outcomes) == {"H1", "H2", "H3", "H4", "H5", "H6"}
    assert "not testable" not in outcomes.values()
    assert aggregate["problems"] == []


def test_no_percentile_is_missing_outside_overloaded_cells(aggregate: dict[str, Any]) -> None:
    """One rate of each sweep is overloaded: 4 req/s, for everyone and for plain's second launch."""
    overloaded = [c for c in aggregate["cells"] if "overloaded" in c["flags"]]
    assert {(c["phase"], c["rate_per_s"]) for c in overloaded} == {("a", 4.0)}
    assert len(overloaded) == 9
    for cell in aggregate["cells"]:
        known = [cell[name][q]["point"] for name in ("ttft_ms", "tpot_ms", "e2e_ms") for q in ("p50", "p90")]
        assert all(v is None for v in known) if cell in overloaded else None not in known


def test_the_headline_is_over_four_blocks_and_all_else_says_of_one_launch(aggregate: dict[str, Any]) -> None:
    latencies = [t for t in aggregate["main_taxes"] if t["metric"] in ("ttft_p90", "tpot_p90")]
    at_reference = [t for t in latencies if t["reference"] != "neither"]
    assert at_reference and {t["n_blocks"] for t in at_reference} == {4}
    assert {t["n_blocks"] for t in aggregate["taxes"]} == {1}
    launches = {h["id"]: h["n_blocks"] for h in aggregate["hypotheses"]}
    assert launches == dict.fromkeys(("H1", "H2", "H3", "H4"), 4) | dict.fromkeys(("H5", "H6"), 1)


def test_long_prompts_have_a_rate_of_their_own(
    rehearsed: tuple[Path, list[PhaseTime]], aggregate: dict[str, Any]
) -> None:
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


def text(rehearsed: tuple[Path, list[PhaseTime]], config: CampaignConfig, gpus: int | None = None) -> str:
    return outlook_text(outlook(*rehearsed, config, gpus), rehearsed[1], config, "connector-tax run x", gpus)


def test_a_person_is_told_on_a_screen_what_it_takes_and_finds(
    rehearsed: tuple[Path, list[PhaseTime]],
) -> None:
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    said = text(rehearsed, config)
    assert len(said.splitlines()) <= 20
    assert "9 cells overloaded; without a p90 beside those: none" in said
    assert "card" not in said and "Next: connector-tax run x" in said
    # Of 4 blocks A and B are two; both tables say which they count.
    assert "\n  2 repeats " in said and "\n  4 (yours) " in said and "blocks, with A and B" in said


def test_what_is_simulated_says_so_and_is_no_tax_and_no_verdict(
    rehearsed: tuple[Path, list[PhaseTime]],
) -> None:
    """It would be a claim, one copy away."""
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    plan = outlook(*rehearsed, config)
    said = text(rehearsed, config) + msgspec.json.encode(plan).decode()
    assert said.count("SIMULATED") == 2 and plan.simulated is True
    for word in ("supported", "refuted", "undetermined", "revised", "outcome", "main_taxes"):
        assert word not in said


def test_programs_are_told_hours_who_is_tested_and_what_more_blocks_find(
    rehearsed: tuple[Path, list[PhaseTime]],
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


def test_two_cards_are_told_when_each_phase_is_measured_and_where(
    rehearsed: tuple[Path, list[PhaseTime]],
) -> None:
    """Card 0 has A, B' and R2, card 1 has B, which takes longest, and R1."""
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    config = replace(config, engine=replace(config.engine, gpus=(2, 5)))
    of = {t.phase: t.total_s for t in rehearsed[1]}
    ends_s = of["preflight"] + of["a"] + max(of["b"] + of["r1"], of["b_prime"] + of["r2"])
    lines = text(rehearsed, config).splitlines()
    together = f"all launches together {duration_text(sum(of.values()))}"
    assert f"{together}; on the 2 cards of this campaign: about {duration_text(ends_s)}" in lines
    begin, end = of["preflight"] + of["a"], of["preflight"] + of["a"] + of["b"]
    assert f"  phase B     {duration_text(begin)} to {duration_text(end)}, on card 5" in lines
    assert SIDE_BY_SIDE in lines
    one = text(rehearsed, config, gpus=1)
    assert f"of this campaign, 1 at a time: about {duration_text(sum(of.values()))}" in one
    assert SIDE_BY_SIDE not in one
