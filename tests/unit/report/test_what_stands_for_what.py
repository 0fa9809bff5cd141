"""Tables say of which launch their numbers are, and give no kind where there is none."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connector_tax.base.documents.aggregate import TaxBase, aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style
from connector_tax.read.figures.words import counted_sides, left_out
from connector_tax.read.report.observer import observer_view
from connector_tax.read.report.parts import decomposition_view, two_parts_view
from connector_tax.read.report.tax_text import TaxText

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from made_pages import view_of

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
LOST = {"point": None, "low": None, "high": None, "n": 0, "kind": None, "reason": "requests failed"}


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def test_a_tax_without_a_number_has_no_kind(aggregate: dict[str, Any]) -> None:
    """The parts beside it keep their own."""
    row = aggregate["decomposition"][0]
    row |= {"kind": "of one launch", "total": LOST, "implementation": LOST}
    row["framework"]["kind"] = "over 5 blocks"
    found = decomposition_view(aggregate_of(aggregate))[0]
    assert found.kind == ""
    assert found.parts[2].range.endswith("], over 5 blocks")
    assert "launch" not in found.parts[3].range


def at_phase_as_shape(aggregate: dict[str, Any], **chosen: Any) -> TaxText:
    """A tax of Phase B's at Phase A's rate and shape, for which ``chosen`` stands; the page's row of it."""
    main = next(
        t for t in aggregate["main_taxes"] if t["metric"] == "ttft_p90" and t["reference"] == "ref_safe"
    )
    own = {
        **main,
        "phase": "b",
        "point": 0.5,
        "low": 0.4,
        "high": 0.6,
        "kind": "of one launch",
        "headline": False,
    }
    aggregate["taxes"] = [own]
    main |= {"phase": "a", "blocks": None, "kind": "of one launch", "available": True} | chosen
    return view_of(aggregate).shape_taxes[0].taxes[0]


def test_a_shape_says_whose_tax_stands_in_place_of_phase_bs(aggregate: dict[str, Any]) -> None:
    assert at_phase_as_shape(aggregate).n.endswith(", by phase A's launch, in place of phase B's launch")
    several = at_phase_as_shape(aggregate, phase=None, blocks=4, kind="over 4 blocks")
    assert several.n.endswith(", over 4 blocks of launches, in place of phase B's launch")
    lost = at_phase_as_shape(aggregate, point=None, low=None, high=None, reason="lost")
    assert (lost.text, lost.range, lost.n) == ("not available", "in phase A: lost", "")
    aggregate["taxes"][0]["phase"] = "b_prime"
    shown = view_of(aggregate).shape_taxes[0].taxes[0]
    assert shown.range == "in phase A: lost"
    # Where both have none the cell's own reason stays, also where both cells are lost; of a lost cell whose place another one holds it matters nothing.
    nothing = {"point": None, "low": None, "high": None}
    aggregate["taxes"][0] |= nothing | {"reason": "requests failed", "phase": "b"}
    cell = next(
        c for c in aggregate["cells"] if (c["config"], c["phase"]) == (aggregate["taxes"][0]["config"], "a")
    )
    aggregate["cells"] = [{**cell, "phase": "b", "cell_id": aggregate["taxes"][0]["cell_id"]}]
    assert view_of(aggregate).shape_taxes[0].taxes[0].range == "requests failed"
    aggregate["cells"] = []
    assert view_of(aggregate).shape_taxes[0].taxes[0].range == "requests failed"
    aggregate["cells"] = [cell]
    chosen = next(t for t in aggregate["main_taxes"] if t["config"] == cell["config"])
    cell["cell_id"] = chosen["cell_id"]
    assert view_of(aggregate).shape_taxes[0].taxes[0].range == "in phase A: lost"
    assert at_phase_as_shape(aggregate, point=0.1).n.endswith("in place of phase B's launch")
    aggregate["taxes"][0]["phase"] = "b_prime"
    shown = view_of(aggregate).shape_taxes[0].taxes[0]
    assert shown.n.endswith(", in place of the launch of phase B'")
    assert "in place" not in at_phase_as_shape(aggregate, phase="b", point=0.5, low=0.4, high=0.6).n


def test_figure_5_says_where_no_tax_of_phase_b_stands(aggregate: dict[str, Any]) -> None:
    name = "fig5_shape_heatmaps"
    at_phase_as_shape(aggregate)
    shape = f"{aggregate['taxes'][0]['input_tokens']} x {aggregate['taxes'][0]['output_tokens']}"
    with drawing_style(name):
        found = FIGURES[name](aggregate_of(aggregate))
    assert isinstance(found, Drawn)
    assert f"At {shape} tokens, Phase A's shape, the tax is of Phase A's launch for " in found.caption


def test_two_parts_say_by_which_phases_launch_they_are(aggregate: dict[str, Any]) -> None:
    part = {"point": 0.1, "low": 0.05, "high": 0.2, "n": 80, "kind": "of one launch"}
    row = {"config": "nixl_both", "metric": "ttft_p90", "unit": "ratio"}
    aggregate["two_parts"] = [row | dict.fromkeys(("total", "framework", "rest"), part)]
    own = {
        t["config"]: t
        for t in aggregate["main_taxes"]
        if (t["metric"], t["reference"]) == ("ttft_p90", "ref_safe")
    }
    assert all("phase" not in p.n for p in two_parts_view(aggregate_of(aggregate))[0].parts)
    own["nixl_both"]["phase"] = "b"
    total, framework, rest = (p.n for p in two_parts_view(aggregate_of(aggregate))[0].parts)
    assert total.endswith(", of one launch, by phase B's launch")
    assert framework.endswith(", of one launch, by phase A's launch")
    assert rest.endswith(", of one launch each, phase B's less phase A's")
    own["noop_connector"]["phase"] = "b"
    assert (
        two_parts_view(aggregate_of(aggregate))[0].parts[2].n.endswith(", of one launch, by phase B's launch")
    )


def test_a_lost_pair_gives_its_reason_and_is_in_no_figures_caption(aggregate: dict[str, Any]) -> None:
    assert observer_view(aggregate_of(aggregate)).lost == []
    cell = next(c for c in aggregate["cells"] if c["config"] == "nixl_both")
    twin = {"phase": "b", "usable": False, "reasons": ["died"], "cell_id": "r4_8x8_unrecorded"}
    aggregate["cells"] = [{**cell, **twin}]
    quiet = {"metric": "ttft_p90", "rate_per_s": 4, "effect": LOST, "tax": None, "tax_unrecorded": None}
    aggregate["observer_effect"] = [{"config": c, **quiet} for c in aggregate["configs"] if c != "nixl_both"]
    label = aggregate["configs"]["nixl_both"]["label"]
    assert observer_view(aggregate_of(aggregate)).lost == [f"{label}: r4_8x8_unrecorded, died"]
    assert "Excluded cells: none." in left_out(aggregate_of(aggregate), "b")


def test_both_sides_are_counted_by_themselves() -> None:
    tax = aggregate_of(EXAMPLE).chosen_taxes[0]

    def of(n: int, n_plain: int) -> TaxBase:
        return msgspec.structs.replace(tax, n=n, n_plain=n_plain)

    one, other = of(320, 640), of(240, 640)
    assert counted_sides([one]) == "n = 320 requests with the connector and 640 without per point"
    assert counted_sides([one, other], "bar").startswith("n = 240 to 320 requests with")
    assert counted_sides([of(n, n) for n in (80, 200)], "cell") == "n = 80 to 200 requests per cell"
