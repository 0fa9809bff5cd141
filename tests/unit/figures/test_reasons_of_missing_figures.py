"""Lists in captions, and reasons of figures that are not drawn."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style
from connector_tax.read.figures.words import label

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example

EXAMPLE = example()


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def drawn(name: str, aggregate: dict[str, Any]) -> Drawn | Omitted:
    with drawing_style(name):
        return FIGURES[next(n for n in FIGURES if n.startswith(name))](aggregate_of(aggregate))


def reason(name: str, aggregate: dict[str, Any]) -> str:
    found = drawn(name, aggregate)
    assert isinstance(found, Omitted)
    return found.reason


# Figures 6 and 9.
def test_without_any_cell_step_times_are_not_said_to_be_switched_off(aggregate: dict[str, Any]) -> None:
    aggregate |= {"step_timing_available": False, "step_timing_reason": {"code": "no_usable_cell"}}
    for name in ("fig6", "fig9"):
        assert reason(name, aggregate) == "step times were not recorded: no usable cell"


def test_figure_9_says_what_became_of_plain(aggregate: dict[str, Any]) -> None:
    """Its cell there is lost, or all of it."""
    aggregate["attribution"] = []
    aggregate["cells"] = [c for c in aggregate["cells"] if (c["config"], c["rate_per_s"]) != ("plain", 2.0)]
    words = label("omitted", "no_plain_steps")
    assert reason("fig9", aggregate) == words.format(plain="plain has no usable number here")
    aggregate["configs"]["plain"] |= {"status": "failed", "reason": {"code": "no_usable_cell"}}
    assert reason("fig9", aggregate) == words.format(plain="plain failed: no usable cell")


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        (("plain",), "no_plain_steps"),
        (tuple(c for c in EXAMPLE["configs"] if c != "plain"), "no_decoding_steps"),
        ((), "few_decoding_steps"),
    ],
    ids=["plain", "connectors", "nobody"],
)
def test_figure_9_says_whose_steps_are_missing(
    lost: tuple[str, ...], code: str, aggregate: dict[str, Any]
) -> None:
    aggregate["attribution"] = []
    for cell in aggregate["cells"]:
        if cell["config"] in lost:
            cell["step"] = {"available": False, "reason": "no records"}
        elif (cell.get("step") or {}).get("available"):
            cell["step"]["by_kind"]["decode_only"]["n"] = 9
    said = reason("fig9", aggregate)
    assert said.startswith(label("omitted", code).partition("{")[0])
    assert [c for c in EXAMPLE["configs"] if f"{c} has no usable number" in said] == [
        c for c in lost if EXAMPLE["configs"][c]["status"] == "measured"
    ]


def test_without_a_connector_figure_9_says_so(aggregate: dict[str, Any]) -> None:
    aggregate["attribution"] = []
    aggregate["configs"] = {"plain": aggregate["configs"]["plain"]}
    aggregate["cells"] = [c for c in aggregate["cells"] if c["config"] == "plain"]
    assert reason("fig9", aggregate) == label("omitted", "no_connector")


def caption(name: str, aggregate: dict[str, Any]) -> str:
    found = drawn(name, aggregate)
    assert isinstance(found, Drawn)
    return found.caption


def test_figure_6_names_who_has_no_line(aggregate: dict[str, Any]) -> None:
    at = aggregate["reference_rates"]["ref_safe_per_s"]
    for cell in aggregate["cells"]:
        if (cell["config"], cell["phase"], cell["rate_per_s"]) == ("lmcache_only", "a", at):
            cell["step"] = {"available": False, "reason": "this cell has no step records"}
    assert "Without a number here: lmcache_only." in caption("fig6", aggregate)


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig8", "fig9"])
def test_a_figure_of_one_rate_excludes_cells_of_that_rate_alone(name: str, aggregate: dict[str, Any]) -> None:
    """Figure 8 speaks of its stack and of what that is made of alone."""
    config = "mooncake_both" if name == "fig8" else "nixl_both"
    lost = {
        "usable": False,
        "verdict": "invalid",
        "reasons": [{"code": "invalid", "detail": "the engine died"}],
    }
    one = next(
        c for c in aggregate["cells"] if (c["config"], c["phase"], c["rate_per_s"]) == ("plain", "a", 2.0)
    )
    aggregate["cells"].append({**one, **lost, "config": config, "rate_per_s": 64.0, "cell_id": "r64"})
    assert "Excluded cells" not in caption(name, aggregate)
    aggregate["cells"].append({**one, **lost, "config": config, "cell_id": "r2"})
    assert f"Excluded cells: {config} r2 (the engine died)." in caption(name, aggregate)


@pytest.mark.parametrize("name", ["fig4", "fig6", "fig7", "fig9"])
def test_sides_that_were_saturated_are_listed(name: str, aggregate: dict[str, Any]) -> None:
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        own = tax["reference"] == "ref_safe" and tax["config"] == "nixl_both"
        tax["overloaded"] = ["own", "plain"] if own else []
    assert "Saturated here: plain and nixl_both." in caption(name, aggregate)
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        tax["overloaded"] = []
    assert "Saturated" not in caption(name, aggregate)


def test_captions_count_requests_and_exclusions(aggregate: dict[str, Any]) -> None:
    said = caption("fig5", aggregate)
    assert "n = 200 requests per cell" in said and "mooncake_consumer (skipped)" in said
    assert "mooncake_producer r2_32768x1024 (engine died in it)" in said


def test_launches_behind_bars_are_listed(aggregate: dict[str, Any]) -> None:
    """Over blocks, of one launch, and of which connector another phase stands in."""
    taxes = [t for t in aggregate["main_taxes"] if t["unit"] == "ratio"]
    for row in taxes:
        row |= {"phase": None, "n_blocks": 5}
    assert "Over 5 blocks of launches." in caption("fig8", aggregate)
    for row in taxes:
        if row["config"] == "lmcache_only":
            row |= {"phase": "b", "n_blocks": 1}
    for name in ("fig4", "fig7"):
        said = caption(name, aggregate)
        assert "Over 5 blocks of launches. Of one launch: lmcache_only. Not of phase A: lmcache_only (phase B)." in said  # fmt: skip
    assert reason("fig8", aggregate) == (
        "taxes of one launch (lmcache_only) and over blocks of launches are not added up or compared"
    )


@pytest.mark.parametrize("name", FIGURES)
def test_a_title_is_one_clause_of_quantity_and_condition(name: str, aggregate: dict[str, Any]) -> None:
    found = drawn(name, aggregate)
    assert isinstance(found, Drawn)
    assert len(found.title) < 90 and ";" not in found.title and "." not in found.title
    for tax in aggregate["main_taxes"]:
        tax |= {"point": 9.0, "low": 8.0, "high": 10.0, "verdict": "tax"}
    again = drawn(name, aggregate)
    assert isinstance(again, Drawn) and again.title == found.title, "no number is in it"
