"""Figure 5 at Phase A's shape: the main tax, whatever became of Phase B's cell, and whose launch it is of, by configuration."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
NAME = "fig5_shape_heatmaps"
AT_PHASE_AS = {"input_tokens": 4096, "output_tokens": 256}


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def drawn(aggregate: dict[str, Any]) -> Drawn:
    with drawing_style(NAME):
        found = FIGURES[NAME](aggregate_of(aggregate))
    assert isinstance(found, Drawn)
    return found


def of_phase_b(aggregate: dict[str, Any], config: str) -> list[dict[str, Any]]:
    return [
        t for t in aggregate["taxes"] if (t["config"], t["phase"], t["metric"]) == (config, "b", "ttft_p90")
    ]


def main_tax(aggregate: dict[str, Any], config: str) -> dict[str, Any]:
    found = (
        t
        for t in aggregate["main_taxes"]
        if (t["config"], t["metric"], t["reference"]) == (config, "ttft_p90", "ref_safe")
    )
    return next(found)


def shapes_drawn(found: Drawn, config: str) -> list[tuple[int, int]]:
    return [(r["input_tokens"], r["output_tokens"]) for r in found.data_rows if r["config"] == config]


def test_a_tax_that_stands_is_drawn_though_phase_bs_cell_is_lost(aggregate: dict[str, Any]) -> None:
    for tax in of_phase_b(aggregate, "nixl_both"):
        if tax["input_tokens"] == 4096 and tax["output_tokens"] == 256:
            tax |= {"point": None, "low": None, "high": None, "available": False, "reason": "lost"}
    found = drawn(aggregate)
    assert (4096, 256) in shapes_drawn(found, "nixl_both")
    assert "nixl_both 4096x256" not in found.caption


@pytest.mark.parametrize("rows", ["with a reason", "not there"])
def test_it_is_drawn_though_all_of_phase_b_is_lost(aggregate: dict[str, Any], rows: str) -> None:
    """A run that failed has rows with its reason; one whose folder is gone has none."""
    own = of_phase_b(aggregate, "nixl_both")
    for tax in own:
        tax |= {"point": None, "low": None, "high": None, "available": False, "reason": "failed"}
    if rows == "not there":
        aggregate["taxes"] = [t for t in aggregate["taxes"] if t not in own]
    found = drawn(aggregate)
    assert shapes_drawn(found, "nixl_both") == [(4096, 256)]
    main = main_tax(aggregate, "nixl_both")
    (row,) = (r for r in found.data_rows if r["config"] == "nixl_both")
    assert row["point"] == main["point"]


def test_one_without_any_number_is_named(aggregate: dict[str, Any]) -> None:
    """Also where its cells of Phase B are gone, so that nothing says that it was measured in that phase."""
    for tax in (*of_phase_b(aggregate, "nixl_both"), *aggregate["main_taxes"]):
        if tax["config"] == "nixl_both":
            tax |= {"point": None, "low": None, "high": None, "available": False, "reason": "lost"}
    aggregate["cells"] = [c for c in aggregate["cells"] if (c["config"], c["phase"]) != ("nixl_both", "b")]
    assert "Without a number here: nixl_both" in drawn(aggregate).caption


def test_whose_launch_a_tax_is_of_stands_beside_each_configuration(aggregate: dict[str, Any]) -> None:
    configs = [c for c in aggregate["configs"] if of_phase_b(aggregate, c) and c != "plain"]
    for config in configs:
        main_tax(aggregate, config)["phase"] = "a"
    main_tax(aggregate, "mooncake_both")["phase"] = "b"
    main_tax(aggregate, "lmcache_only").update(phase=None, n_blocks=4)
    rows = drawn(aggregate).data_rows
    blocks = {
        r["config"]: r["n_blocks"] for r in rows if (r["input_tokens"], r["output_tokens"]) == (4096, 256)
    }
    assert (blocks["lmcache_only"], blocks["nixl_both"]) == (4, 1)


def test_plain_with_a_connectors_settings_is_no_connector(aggregate: dict[str, Any]) -> None:
    more = [{**t, "config": "plain_matched_nixl_both", "point": 9.0, "low": 8.0, "high": 10.0} for t in of_phase_b(aggregate, "nixl_both")]  # fmt: skip
    aggregate["taxes"] += more
    found = drawn(aggregate)
    assert not shapes_drawn(found, "plain_matched_nixl_both")


def test_no_launch_stands_in_for_a_tax_that_blocks_lost(aggregate: dict[str, Any]) -> None:
    """Phase A's launch and Phase B's of its shape have numbers; the tax that was chosen has none."""
    main_tax(aggregate, "nixl_both").update(
        point=None, low=None, high=None, verdict="unavailable", reason="its ttft_p90 has no value in block r2"
    )
    found = drawn(aggregate)
    assert (4096, 256) not in shapes_drawn(found, "nixl_both") and shapes_drawn(found, "nixl_both")
    assert "nixl_both 4096x256" in found.caption
