"""Lists in captions, and reasons of figures that are not drawn."""

import copy
from pathlib import Path
from typing import Any

import pytest
from mutations import MUTATIONS
from whole_aggregate import Aggregate, example

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style
from connector_tax.read.figures.words import label

EXAMPLE = example()


@pytest.fixture
def aggregate() -> Aggregate:
    return copy.deepcopy(EXAMPLE)


def drawn(name: str, aggregate: Aggregate) -> Drawn | Omitted:
    with drawing_style(name):
        return FIGURES[next(n for n in FIGURES if n.startswith(name))](aggregate_of(aggregate))


def reason(name: str, aggregate: Aggregate) -> str:
    found = drawn(name, aggregate)
    assert isinstance(found, Omitted)
    return found.reason


# Figures 6 and 9.
def test_without_any_cell_step_times_are_not_said_to_be_switched_off(aggregate: Aggregate) -> None:
    aggregate |= {"step_timing_available": False, "step_timing_reason": {"code": "no_usable_cell"}}
    for name in ("fig6", "fig9"):
        assert reason(name, aggregate) == "step times were not recorded: no usable cell"


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
    lost: tuple[str, ...], code: str, aggregate: Aggregate
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


def test_without_a_connector_figure_9_says_so(aggregate: Aggregate) -> None:
    aggregate["attribution"] = []
    aggregate["configs"] = {"plain": aggregate["configs"]["plain"]}
    aggregate["cells"] = [c for c in aggregate["cells"] if c["config"] == "plain"]
    assert reason("fig9", aggregate) == label("omitted", "no_connector")


def figure(name: str, aggregate: Aggregate) -> Drawn:
    found = drawn(name, aggregate)
    assert isinstance(found, Drawn), name
    return found


def caption(name: str, aggregate: Aggregate) -> str:
    return figure(name, aggregate).caption


def test_figure_6_names_who_has_no_line(aggregate: Aggregate) -> None:
    at = aggregate["reference_rates"]["ref_safe_per_s"]
    for cell in aggregate["cells"]:
        if (cell["config"], cell["phase"], cell["rate_per_s"]) == ("lmcache_only", "a", at):
            cell["step"] = {"available": False, "reason": "this cell has no step records"}
    assert "Without a number here: lmcache_only." in caption("fig6", aggregate)


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig8", "fig9"])
def test_a_figure_of_one_rate_excludes_cells_of_that_rate_alone(name: str, aggregate: Aggregate) -> None:
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


@pytest.mark.parametrize("name", ["fig4", "fig6", "fig9"])
def test_sides_that_were_saturated_are_listed(name: str, aggregate: Aggregate) -> None:
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        own = tax["reference"] == "ref_safe" and tax["config"] == "nixl_both"
        tax["overloaded"] = ["own", "plain"] if own else []
    assert "Saturated here: plain and nixl_both." in caption(name, aggregate)
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        tax["overloaded"] = []
    assert "Saturated" not in caption(name, aggregate)


def test_captions_count_requests_and_exclusions(aggregate: Aggregate) -> None:
    said = caption("fig5", aggregate)
    assert "n = 200 requests per cell" in said and "mooncake_consumer (skipped)" in said
    assert "mooncake_producer r2_32768x1024 (engine died in it)" in said


def test_launches_behind_bars_are_listed(aggregate: Aggregate) -> None:
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


# Figure 5 at Phase A's shape: the main tax, whatever became of Phase B's cell.
def of_phase_b(aggregate: Aggregate, config: str) -> list[dict[str, Any]]:
    return [
        t for t in aggregate["taxes"] if (t["config"], t["phase"], t["metric"]) == (config, "b", "ttft_p90")
    ]


def main_tax(aggregate: Aggregate, config: str) -> dict[str, Any]:
    found = (
        t
        for t in aggregate["main_taxes"]
        if (t["config"], t["metric"], t["reference"]) == (config, "ttft_p90", "ref_safe")
    )
    return next(found)


def shapes_drawn(found: Drawn, config: str) -> list[tuple[int, int]]:
    return [(r["input_tokens"], r["output_tokens"]) for r in found.data_rows if r["config"] == config]


@pytest.mark.parametrize("rows", ["with a reason", "not there"])
def test_it_is_drawn_though_all_of_phase_b_is_lost(aggregate: Aggregate, rows: str) -> None:
    """A run that failed has rows with its reason; one whose folder is gone has none."""
    own = of_phase_b(aggregate, "nixl_both")
    for tax in own:
        tax |= {"point": None, "low": None, "high": None, "available": False, "reason": "failed"}
    if rows == "not there":
        aggregate["taxes"] = [t for t in aggregate["taxes"] if t not in own]
    found = figure("fig5", aggregate)
    assert shapes_drawn(found, "nixl_both") == [(4096, 256)]
    main = main_tax(aggregate, "nixl_both")
    (row,) = (r for r in found.data_rows if r["config"] == "nixl_both")
    assert row["point"] == main["point"] and "nixl_both 4096x256" not in found.caption


def test_one_without_any_number_is_named(aggregate: Aggregate) -> None:
    """Also where its cells of Phase B are gone, so that nothing says that it was measured in that phase."""
    for tax in (*of_phase_b(aggregate, "nixl_both"), *aggregate["main_taxes"]):
        if tax["config"] == "nixl_both":
            tax |= {"point": None, "low": None, "high": None, "available": False, "reason": "lost"}
    aggregate["cells"] = [c for c in aggregate["cells"] if (c["config"], c["phase"]) != ("nixl_both", "b")]
    assert "Without a number here: nixl_both" in caption("fig5", aggregate)


def test_whose_launch_a_tax_is_of_stands_beside_each_configuration(aggregate: Aggregate) -> None:
    configs = [c for c in aggregate["configs"] if of_phase_b(aggregate, c) and c != "plain"]
    for config in configs:
        main_tax(aggregate, config)["phase"] = "a"
    main_tax(aggregate, "mooncake_both")["phase"] = "b"
    main_tax(aggregate, "lmcache_only").update(phase=None, n_blocks=4)
    rows = figure("fig5", aggregate).data_rows
    blocks = {
        r["config"]: r["n_blocks"] for r in rows if (r["input_tokens"], r["output_tokens"]) == (4096, 256)
    }
    assert (blocks["lmcache_only"], blocks["nixl_both"]) == (4, 1)


def test_plain_with_a_connectors_settings_is_no_connector(aggregate: Aggregate) -> None:
    more = [{**t, "config": "plain_matched_nixl_both", "point": 9.0, "low": 8.0, "high": 10.0} for t in of_phase_b(aggregate, "nixl_both")]  # fmt: skip
    aggregate["taxes"] += more
    found = figure("fig5", aggregate)
    assert not shapes_drawn(found, "plain_matched_nixl_both")


def test_no_launch_stands_in_for_a_tax_that_blocks_lost(aggregate: Aggregate) -> None:
    """Phase A's launch and Phase B's of its shape have numbers; the tax that was chosen has none."""
    main_tax(aggregate, "nixl_both").update(
        point=None, low=None, high=None, verdict="unavailable", reason="its ttft_p90 has no value in block r2"
    )
    found = figure("fig5", aggregate)
    assert (4096, 256) not in shapes_drawn(found, "nixl_both") and shapes_drawn(found, "nixl_both")
    assert "nixl_both 4096x256" in found.caption


@pytest.mark.parametrize(
    ("campaign", "said", "figures"),
    [
        ("huge taxes", "Without a number here: mooncake_both.", ("fig4_tax_bars", "fig5_shape_heatmaps", "fig7_decomposition")),
        ("hooks unheard", "Without a number here: nixl_both.", ("fig9_attribution",)),
        ("connector that fakes hits", "Without a number here: decode_bench.", ("fig5_shape_heatmaps",)),
        ("lost block of plain's second launch", "Excluded cells: plain_again r1/r4_256x16 (", ("fig8_additivity",)),
        ("lost cell of a connector", "Excluded cells: mooncake_both a/r4_256x16 (", ("fig5_shape_heatmaps",)),
    ],
)  # fmt: skip
def test_a_measured_connector_without_a_number_is_named(
    campaign: str, said: str, figures: tuple[str, ...], tmp_path: Path
) -> None:
    """Also one whose launch another phase stands in for, and plain's second launch that cost taxes a block."""
    aggregate = MUTATIONS[campaign].made(tmp_path / "campaign")
    for name in figures:
        assert said in caption(name, aggregate)
    if campaign == "huge taxes":  # its cells do not keep up at any rate, so it has no line
        for name in ("fig1_ttft_vs_rate", "fig2_tpot_vs_rate"):
            lost = caption(name, aggregate).partition("No point:")[2].partition(".")[0]
            assert "mooncake_both" in lost and "4 req/s" in lost
