"""A tax of one launch and one over blocks of launches are never put into one number, and each stands in one place only."""

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.files import to_json
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.view import page_view
from connector_tax.read.stats.cell_rows import aggregate_csv

sys.path.insert(0, str(Path(__file__).parents[2]))
from analysed import aggregate_json
from builders import DATE, ROOT, SMALL, Campaign, campaign_config
from invented_server import Behaviour

PLAIN = Behaviour(noise=0.05)
# Mooncake saturates between 4 and 8 req/s, plain does not; Phase B is a block of ref_safe alone.
BEHAVIOURS = {
    "plain": PLAIN,
    "plain_again": PLAIN,
    "noop_connector": PLAIN.taxed(0.05, hooks_us=(2.0, 1.0, 1.0)),
    "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7, hooks_us=(1, 1, 1)),
    "nixl_both": PLAIN.taxed(0.20),
}
SAFE = "r4_256x16"
Lose = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def lose(tmp_path_factory: pytest.TempPathFactory) -> Lose:
    """``lose(config, phases)``: the aggregate of a campaign of four blocks that lost cells at ref_safe."""
    place = tmp_path_factory.mktemp("kinds")
    config = campaign_config(**{**SMALL, "analysis": {"bootstrap_draws": 200}}, repeats=2)
    whole = Campaign(place / "whole", config, BEHAVIOURS, max_steps=60)
    rates = whole.measure_everything()
    assert (rates.ref_safe_per_s, rates.ref_load_per_s) == (4, 8)

    def lost(config: str = "", phases: tuple[str, ...] = ()) -> dict[str, Any]:
        root = place / "_".join((config, *phases))
        if not root.exists():
            shutil.copytree(whole.root, root)
            for phase in phases:
                CampaignFolder(root).run(DATE, config, phase).cell(SAFE).requests.unlink()
        return aggregate_json(read_campaign(root))

    return lost


@pytest.fixture(scope="module")
def once(lose: Lose) -> dict[str, Any]:
    """NIXL has two blocks of four at ref_safe, too few, and its one launch; at ref_load it has three."""
    return lose("nixl_both", ("b", "r1"))


def one(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (found,) = [r for r in rows if all(r[k] == v for k, v in wanted.items())]
    return found


def test_no_verdict_rests_on_both_kinds(once: dict[str, Any], lose: Lose) -> None:
    h2 = one(once["hypotheses"], id="H2")
    assert (h2["outcome"], h2["n_blocks"], h2["p_value"]) == ("not testable", None, None)
    assert [m["reason"] for m in h2["missing"]] == ["unlike_launches"]
    assert one(once["hypotheses"], id="H3")["n_blocks"] == 4
    lost_one = one(lose("nixl_both", ("r1",))["hypotheses"], id="H2")
    # Three blocks of 80 requests.
    assert (lost_one["n_blocks"], lost_one["numbers"]["gap"]["n"]) == (3, 240)


def test_no_amplification_and_no_part_is_made_of_both_kinds(once: dict[str, Any]) -> None:
    row = one(once["amplification"], config="nixl_both", metric="ttft_p90")
    assert (row["point"], row["reason"], "n_blocks" in row) == (None, "unlike_launches", False)
    own = {"config": "mooncake_both", "metric": "ttft_p90"}
    assert one(once["amplification"], **own, input_tokens=256)["n_blocks"] == 3
    assert one(once["amplification"], **own, input_tokens=64)["n_blocks"] == 1
    split = one(once["decomposition"], config="nixl_both", metric="ttft_p90")
    assert (split["total"]["n_blocks"], split["parts"], split["implementation"]["point"]) == (1, 0, None)
    assert split["implementation"]["reason"] == "unlike_launches"
    assert split["implementation"]["subject"] == "noop_connector"
    drawn = FIGURES["fig7_decomposition"](aggregate_of(once))
    assert isinstance(drawn, Drawn) and "Not split: nixl_both." in drawn.caption
    row = one(once["two_parts"], config="nixl_both", metric="ttft_p90")
    assert row["rest"]["reason"] == "unlike_launches"
    assert {d["total"]["n_blocks"] for d in once["decomposition"]} == {1, 4}


def test_what_is_of_one_launch_says_so_beside_what_is_not(once: dict[str, Any]) -> None:
    marked = {r["config"]: r["marks"] for r in once["connectors"]}
    assert "fewer_blocks" in marked["nixl_both"] and "fewer_blocks" not in marked["mooncake_both"]


def test_every_rate_of_phase_a_has_the_tax_that_stands_there(once: dict[str, Any]) -> None:
    for config in ("noop_connector", "mooncake_both", "nixl_both"):
        found = [m for m in once["main_taxes"] if (m["config"], m["metric"]) == (config, "ttft_p90")]
        assert {m["rate_per_s"]: m["reference"] for m in found} == {
            2: "neither",
            4: "ref_safe",
            8: "ref_load",
        }
    own, plain = (
        one(once["cells"], config=c, phase="a", cell_id="r2_256x16")["ttft_ms"]["p90"]["point"]
        for c in ("nixl_both", "plain")
    )
    at = one(once["main_taxes"], config="nixl_both", metric="ttft_p90", rate_per_s=2)
    assert (at["point"], at["n_blocks"]) == (pytest.approx(own / plain - 1), 1)


def test_a_rate_and_shape_has_one_tax_in_every_table_and_picture(lose: Lose) -> None:
    """Phase A's cell is lost, Phase B's is there, and there are blocks: those stand for both."""
    value = lose("mooncake_both", ("a",))
    main = one(value["main_taxes"], config="mooncake_both", metric="ttft_p90", reference="ref_safe")
    assert main["n_blocks"] == 3
    rows = list(csv.DictReader(io.StringIO(aggregate_csv(aggregate_of(value)))))
    own = [r for r in rows if (r["config"], r["cell_id"]) == ("mooncake_both", SAFE)]
    taxed = {r["phase"]: (r["tax_ttft_p90"], r["tax_ttft_p90_n_blocks"]) for r in own if r["tax_ttft_p90"]}
    assert taxed == {p: (str(main["point"]), "3") for p in "ab"}
    other = one(rows, config="mooncake_both", phase="b", cell_id="r4_64x8")
    assert other["tax_ttft_p90_n_blocks"] == "1"
    drawn = FIGURES["fig5_shape_heatmaps"](aggregate_of(value))
    assert isinstance(drawn, Drawn)
    tile = one(drawn.data_rows, config="mooncake_both", input_tokens=256, output_tokens=16)
    assert (tile["point"], tile["low"], tile["n_blocks"]) == (main["point"], main["low"], 3)
    texts = [t.get_text() for axes in drawn.figure.axes for t in axes.texts]
    assert any(t.endswith("\n3 blocks") for t in texts)
    page = page_view(aggregate_of(value))
    (shown,) = [c for c in page.multiples if c.label == "Mooncake (both)"]
    assert main["point"] in [v.point for _, v, _ in shown.points["ttft_p90"]]


def test_an_aggregate_with_both_kinds_fits_its_schema(once: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
    found = Draft202012Validator(schema).iter_errors(json.loads(to_json(once)))
    assert [e.message[:200] for e in found] == []


def test_what_shapes_a_measurement_stands_in_the_aggregate_by_name(once: dict[str, Any]) -> None:
    settings = once["provenance"]["settings"]
    assert settings["cell"]["min_completed"] == SMALL["cell"]["min_completed"]
    assert settings["cell"]["arrival"] == "fixed"
    assert (settings["repeats"], settings["phase_a_rates_per_s"]) == (2, [2, 4, 8])
    assert settings["connectors"]["noop_connector"]["kv_transfer_config"]["kv_role"] == "kv_both"
    assert "label" not in settings["connectors"]["plain"] and "port" not in settings["engine"]
