"""One tax stands for a configuration at a reference rate, of one launch or over blocks, and everything that needs one takes that."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from analysed import QUEUED, analysed, campaign_of, copy_of, one, rows
from builders import ROOT, SMALL, Campaign, fail
from jsonschema import Draft202012Validator

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.files import read_json, to_json, write_json
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn
from connector_tax.read.report.view import page_view
from connector_tax.read.stats.cell_rows import aggregate_csv

Aggregate = dict[str, Any]
MOONCAKE = {"config": "mooncake_both", "metric": "ttft_p90"}
NIXL = {"config": "nixl_both", "metric": "ttft_p90"}


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Mooncake saturates between the reference rates; two blocks, so that Phase B is a block of ref_safe alone."""
    campaign = campaign_of(tmp_path_factory.mktemp("kinds") / "demo", QUEUED, repeats=2)
    rates = campaign.measure_everything()
    assert (rates.ref_safe_per_s, rates.ref_load_per_s, rates.b_prime_needed) == (4, 8, True)
    return campaign


def without(queued: Campaign, root: Path, config: str, *phases: str) -> Aggregate:
    """The aggregate of the campaign when it lost cells at ref_safe."""
    campaign = copy_of(queued, root / "demo")
    for phase in phases:
        campaign.run(config, phase).cell("r4_256x16").requests.unlink()  # type: ignore[arg-type]
    return analysed(campaign)


@pytest.fixture(scope="module")
def once(queued: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Aggregate:
    """NIXL has two blocks of four at ref_safe, too few, and its one launch; at ref_load it has three."""
    return without(queued, tmp_path_factory.mktemp("once"), "nixl_both", "b", "r1")


def test_amplification_is_the_tax_at_load_less_that_at_safe(tmp_path: Path) -> None:
    """Mooncake's tax at 8 is mostly queue."""
    campaign = campaign_of(tmp_path, QUEUED)
    campaign.measure_everything()
    value = analysed(campaign)
    row = one(value, "amplification", input_tokens=256, **MOONCAKE)
    at = {
        r: one(value, "taxes", reference=r, phase="a", **MOONCAKE)["point"] for r in ("ref_safe", "ref_load")
    }
    assert row["point"] == pytest.approx(at["ref_load"] - at["ref_safe"])
    assert row["low"] > 1
    assert {(t["config"], t["reference"]) for t in rows(value, "taxes", phase="b_prime")} == {
        ("mooncake_both", "ref_load")
    }
    # And at the shape that Phase B' measured beside Phase A's.
    of_b = {
        p: one(value, "taxes", phase=p, input_tokens=64, output_tokens=16, **MOONCAKE)["point"]
        for p in ("b", "b_prime")
    }
    row = one(value, "amplification", input_tokens=64, metric="ttft_p90")
    assert row["point"] == pytest.approx(of_b["b_prime"] - of_b["b"])
    assert (row["config"], row["rate_per_s"], row["safe_rate_per_s"]) == ("mooncake_both", 8, 4)
    # Phase A's cell at ref_safe is lost: Phase B's of the same rate and shape stands in, as it does in the figures.
    campaign.run("mooncake_both", "a").cell("r4_256x16").requests.unlink()
    less = analysed(campaign)
    chosen = {t["reference"]: t["phase"] for t in rows(less, "main_taxes", **MOONCAKE)}
    assert chosen == {"neither": "a", "ref_safe": "b", "ref_load": "a"}
    row = one(less, "amplification", input_tokens=256, **MOONCAKE)
    safe = one(less, "taxes", phase="b", input_tokens=256, output_tokens=16, **MOONCAKE)
    assert row["point"] == pytest.approx(at["ref_load"] - safe["point"])
    # What load adds to a shape that Phase B has not is not known.
    shutil.rmtree(campaign.run("mooncake_both", "b").path)
    for row in rows(analysed(campaign), "amplification", input_tokens=64):
        assert (row["reason"], row.get("subject")) == ("no_cell", "phase_b")
        assert (row["rate_per_s"], row.get("safe_rate_per_s")) == (8, None)


def test_a_shape_that_phase_b_prime_left_out_is_said(queued: Campaign, tmp_path: Path) -> None:
    campaign = copy_of(queued, tmp_path / "demo")
    rates = read_json(campaign.folder.reference_rates)
    rates["load_shapes"]["64x16"]["rate_per_s"] = None
    write_json(campaign.folder.reference_rates, {**rates, "b_prime_needed": False})
    for config in ("plain", "mooncake_both"):
        shutil.rmtree(campaign.run(config, "b_prime").path)
    value = analysed(campaign)
    left_out = rows(value, "amplification", input_tokens=64)
    assert {(a["config"], a["point"], a["reason"]) for a in left_out} == {("mooncake_both", None, "not_held")}
    assert value["problems"] == []


def test_at_one_reference_rate_nothing_says_what_load_adds(value: Aggregate) -> None:
    """The tax less itself is 0 [0, 0], which reads as if load had been tried."""
    rates = value["reference_rates"]
    assert rates["ref_safe_per_s"] == rates["ref_load_per_s"]
    assert value["amplification"]
    for row in value["amplification"]:
        assert (row["point"], row["low"], row["high"]) == (None, None, None)
        assert row["reason"] in ("one_rate", "no_steps")


def test_hypotheses_and_parts_stand_on_the_cell_that_figures_show(copied: Campaign) -> None:
    """Phase A's cell at the reference rate is damaged; Phase B's launch measured the same rate and shape, or has none either."""
    copied.run("mooncake_both", "a").cell("r8_256x16").requests.unlink()
    value = analysed(copied)
    tax = one(value, "taxes", phase="b", input_tokens=256, output_tokens=16, **MOONCAKE)
    chosen = one(value, "main_taxes", reference="ref_safe", **MOONCAKE)
    assert (chosen["phase"], chosen["point"], chosen["low"]) == ("b", tax["point"], tax["low"])
    h1 = one(value, "hypotheses", id="H1", subject="mooncake_both")
    assert h1["outcome"] == "supported"
    assert h1["numbers"]["tax_ttft_p90"]["point"] == tax["point"]
    assert one(value, "decomposition", **MOONCAKE)["total"]["point"] == tax["point"]
    assert "other_phase" in one(value, "connectors", config="mooncake_both")["marks"]
    assert {m["phase"] for m in rows(value, "main_taxes", config="nixl_both")} == {"a"}

    copied.run("mooncake_both", "b").cell("r8_256x16").requests.unlink()
    value = analysed(copied)
    chosen = one(value, "main_taxes", reference="ref_safe", **MOONCAKE)
    assert (chosen["phase"], chosen["point"]) == ("a", None)
    (missing,) = one(value, "hypotheses", id="H1", subject="mooncake_both")["missing"]
    assert missing["reason"] == "cell_lost"


@pytest.mark.parametrize("config", ["mooncake_both", "plain"])
def test_no_launch_stands_in_for_one_of_which_requests_failed(copied: Campaign, config: str) -> None:
    """Phase B's is a good one; taking it would leave out what went wrong."""
    copied.measure(config, "a", change=fail(every=7))
    value = analysed(copied)
    chosen = one(value, "main_taxes", reference="ref_safe", **MOONCAKE)
    assert (chosen["phase"], chosen["point"]) == ("a", None)
    assert chosen["reason"] == "requests_failed"
    row = one(value, "connectors", config="mooncake_both")
    assert row["reason"] == {"code": "requests_failed", "subject": config}


def test_taxes_over_blocks_stand_before_those_of_one_launch(queued: Campaign) -> None:
    """For the hypotheses, amplification and decomposition alike, with the requests of all blocks."""
    value = analysed(queued)
    assert {t["phase"] for t in value["taxes"]} == {"a", "b", "b_prime"}
    points = {}
    for reference in ("ref_safe", "ref_load"):
        entry = one(value, "repeats", reference=reference, metric="ttft_p90")
        over = one(entry, "taxes", config="nixl_both")
        chosen = one(value, "main_taxes", reference=reference, **NIXL)
        points[reference] = chosen["point"]
        for key in ("point", "low", "high", "verdict"):
            assert chosen[key] == over[key]
        # Phase A is a block as well, and Phase B one of the rate at which it measures Phase A's shape.
        blocks = ["a", *(["b"] if reference == "ref_safe" else []), "r1", "r2"]
        assert list(over["by_block"]) == blocks
        assert (chosen["n_blocks"], chosen["phase"]) == (len(blocks), None)

        def requests(*ids: str, blocks: list[str] = blocks, cell_id: str = chosen["cell_id"]) -> int:
            cells = [c for c in rows(value, "cells", cell_id=cell_id) if c["phase"] in blocks]
            return sum(c["n_window"] for c in cells if c["config"] in ids)

        assert chosen["n"] == requests("nixl_both")
        assert chosen["n_plain"] == requests("plain", "plain_again")
    safe = one(value, "repeats", reference="ref_safe", metric="tpot_p90")
    assert abs(safe["noise_floor"]["point"]) < 0.05 and safe["drift"]["hours"] > 0
    row = one(value, "amplification", **NIXL)
    assert row["point"] == pytest.approx(points["ref_load"] - points["ref_safe"])
    assert row["n_blocks"] == 3  # ref_safe has four
    main = one(value, "main_taxes", reference="ref_safe", **MOONCAKE)
    ends = {key: main[key] for key in ("point", "low", "high")}
    numbers = {h["id"]: h["numbers"] for h in rows(value, "hypotheses", subject="mooncake_both")}
    for same in (
        numbers["H1"]["tax_ttft_p90"],
        numbers["H3"]["tax_connector"],
        one(value, "decomposition", **MOONCAKE)["total"],
    ):
        assert {key: same[key] for key in ends} == pytest.approx(ends)
    step = one(value, "main_taxes", config="nixl_both", metric="step_p50_us", reference="ref_safe")
    assert (step["n_blocks"], step["phase"]) == (1, "a")


def test_no_verdict_rests_on_both_kinds(once: Aggregate, queued: Campaign, tmp_path: Path) -> None:
    h2 = one(once, "hypotheses", id="H2")
    assert (h2["outcome"], h2["n_blocks"], h2["p_value"]) == ("not testable", None, None)
    assert [m["reason"] for m in h2["missing"]] == ["unlike_launches"]
    assert one(once, "hypotheses", id="H3")["n_blocks"] == 4
    h2 = one(without(queued, tmp_path, "nixl_both", "r1"), "hypotheses", id="H2")
    # Three blocks of 80 requests.
    assert (h2["n_blocks"], h2["numbers"]["gap"]["n"]) == (3, 240)


def test_no_amplification_and_no_part_is_made_of_both_kinds(once: Aggregate) -> None:
    row = one(once, "amplification", **NIXL)
    assert (row["point"], row["reason"], "n_blocks" in row) == (None, "unlike_launches", False)
    assert one(once, "amplification", input_tokens=256, **MOONCAKE)["n_blocks"] == 3
    assert one(once, "amplification", input_tokens=64, **MOONCAKE)["n_blocks"] == 1
    split = one(once, "decomposition", **NIXL)
    assert (split["total"]["n_blocks"], split["parts"], split["implementation"]["point"]) == (1, 0, None)
    assert split["implementation"]["reason"] == "unlike_launches"
    assert split["implementation"]["subject"] == "noop_connector"
    drawn = FIGURES["fig7_decomposition"](aggregate_of(once))
    assert isinstance(drawn, Drawn) and "Not split: nixl_both." in drawn.caption
    assert one(once, "two_parts", **NIXL)["rest"]["reason"] == "unlike_launches"
    marked = {r["config"]: r["marks"] for r in once["connectors"]}
    assert "fewer_blocks" in marked["nixl_both"] and "fewer_blocks" not in marked["mooncake_both"]


def test_every_rate_of_phase_a_has_the_tax_that_stands_there(once: Aggregate) -> None:
    for config in ("noop_connector", "mooncake_both", "nixl_both"):
        found = rows(once, "main_taxes", config=config, metric="ttft_p90")
        assert {m["rate_per_s"]: m["reference"] for m in found} == {
            2: "neither",
            4: "ref_safe",
            8: "ref_load",
        }
    own, plain = (
        one(once, "cells", config=c, phase="a", cell_id="r2_256x16")["ttft_ms"]["p90"]["point"]
        for c in ("nixl_both", "plain")
    )
    at = one(once, "main_taxes", rate_per_s=2, **NIXL)
    assert (at["point"], at["n_blocks"]) == (pytest.approx(own / plain - 1), 1)


def test_a_rate_and_shape_has_one_tax_in_every_table_and_picture(queued: Campaign, tmp_path: Path) -> None:
    """Phase A's cell is lost, Phase B's is there, and there are blocks: those stand for both."""
    value = without(queued, tmp_path, "mooncake_both", "a")
    main = one(value, "main_taxes", reference="ref_safe", **MOONCAKE)
    assert main["n_blocks"] == 3
    lines = list(csv.DictReader(io.StringIO(aggregate_csv(aggregate_of(value)))))
    own = [r for r in lines if (r["config"], r["cell_id"]) == ("mooncake_both", "r4_256x16")]
    taxed = {r["phase"]: (r["tax_ttft_p90"], r["tax_ttft_p90_n_blocks"]) for r in own if r["tax_ttft_p90"]}
    assert taxed == {p: (str(main["point"]), "3") for p in "ab"}
    other = one({"csv": lines}, "csv", config="mooncake_both", phase="b", cell_id="r4_64x8")
    assert other["tax_ttft_p90_n_blocks"] == "1"
    drawn = FIGURES["fig5_shape_heatmaps"](aggregate_of(value))
    assert isinstance(drawn, Drawn)
    tile = one(
        {"tiles": drawn.data_rows}, "tiles", config="mooncake_both", input_tokens=256, output_tokens=16
    )
    assert (tile["point"], tile["low"], tile["n_blocks"]) == (main["point"], main["low"], 3)
    texts = [t.get_text() for axes in drawn.figure.axes for t in axes.texts]
    assert any(t.endswith("\n3 blocks") for t in texts)
    (shown,) = [c for c in page_view(aggregate_of(value)).multiples if c.label == "Mooncake (both)"]
    assert main["point"] in [v.point for _, v, _ in shown.points["ttft_p90"]]


def test_an_aggregate_with_both_kinds_fits_its_schema_and_says_what_shaped_it(once: Aggregate) -> None:
    schema = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
    found = Draft202012Validator(schema).iter_errors(json.loads(to_json(once)))
    assert [e.message[:200] for e in found] == []
    settings = once["provenance"]["settings"]
    assert settings["cell"]["min_completed"] == SMALL["cell"]["min_completed"]
    assert settings["cell"]["arrival"] == "fixed"
    assert (settings["repeats"], settings["phase_a_rates_per_s"]) == (2, [2, 4, 8])
    assert settings["connectors"]["noop_connector"]["kv_transfer_config"]["kv_role"] == "kv_both"
    assert "label" not in settings["connectors"]["plain"] and "port" not in settings["engine"]


def test_blocks_that_are_not_whole_are_named(queued: Campaign, tmp_path: Path) -> None:
    """Fewer than three whole ones: the taxes are those of one launch, and that is said."""
    campaign = copy_of(queued, tmp_path / "demo")
    for phase in ("b", "r2"):
        shutil.rmtree(campaign.run("plain_again", phase).path)  # type: ignore[arg-type]
    found = analysed(campaign)
    assert found["repeats"] == []
    lost = rows(found, "problems", code="no_cell_in_block")
    assert {(p["subject"], *p["names"]) for p in lost} == {
        ("phase_b", "plain_again"),
        ("phase_r2", "plain_again"),
    }
    few = rows(found, "problems", code="few_blocks")
    assert {"complete": 2, "of": 4, "needed": 3} in [p["numbers"] for p in few]
