"""Titles, captions and reasons of figures where a cell is lost, a rate has no value, or a side did not keep up."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import Interval, aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style
from connector_tax.read.figures.words import levels

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example, knee, no_number, number

EXAMPLE = example()
CONNECTORS = ("noop_connector", "mooncake_both", "nixl_both", "lmcache_only")


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def drawn(name: str, aggregate: dict[str, Any]) -> Drawn | Omitted:
    with drawing_style(name):
        return FIGURES[next(n for n in FIGURES if n.startswith(name))](aggregate_of(aggregate))


def title(name: str, aggregate: dict[str, Any]) -> str:
    found = drawn(name, aggregate)
    assert isinstance(found, Drawn)
    return found.title


def caption(name: str, aggregate: dict[str, Any]) -> str:
    found = drawn(name, aggregate)
    assert isinstance(found, Drawn)
    return found.caption


def reason(name: str, aggregate: dict[str, Any]) -> str:
    found = drawn(name, aggregate)
    assert isinstance(found, Omitted)
    return found.reason


def swept(
    aggregate: dict[str, Any], knees: dict[str, float | None], lost: tuple[tuple[str, float], ...] = ()
) -> None:
    """Phase A at 2, 4 and 8 req/s of plain and ``CONNECTORS``, which saturate from their knees on."""
    one = next(c for c in aggregate["cells"] if c["phase"] == "a" and c["config"] == "plain")
    kept = {c: v for c, v in aggregate["configs"].items() if c in ("plain", *CONNECTORS)}
    aggregate["configs"] = {c: {**v, "status": "measured", "reason": None} for c, v in kept.items()}
    aggregate["cells"] = [
        {**one, "config": c, "rate_per_s": r, "cell_id": f"r{r:g}"}
        for c in aggregate["configs"]
        for r in (2.0, 4.0, 8.0)
        if (c, r) not in lost
    ]
    aggregate["saturation"] = {c: knee(knees.get(c, 8.0)) for c in aggregate["configs"]}


# Figure 3.
def test_all_that_saturate_first_are_named(aggregate: dict[str, Any]) -> None:
    swept(aggregate, {"mooncake_both": 2.0, "nixl_both": 4.0, "lmcache_only": 2.0})
    assert title("fig3", aggregate) == (
        "Plain saturates at 8 req/s; 3 of 4 connectors saturate earlier, Mooncake (both) and LMCache first at 2 req/s"
    )


def test_of_a_lost_cell_nothing_is_known(aggregate: dict[str, Any]) -> None:
    swept(aggregate, {}, lost=(("nixl_both", 4.0),))
    assert title("fig3", aggregate) == (
        "Plain saturates at 8 req/s; whether NIXL (both) saturates earlier is not known, and no other connector does"
    )
    swept(aggregate, {"mooncake_both": 4.0}, lost=(("nixl_both", 4.0), ("lmcache_only", 2.0)))
    assert title("fig3", aggregate) == (
        "Plain saturates at 8 req/s; 1 of 4 connectors saturates earlier, Mooncake (both) first at 4 req/s, and whether "
        "NIXL (both) and LMCache saturate earlier is not known"
    )


def test_a_cell_that_is_lost_above_plains_rate_leaves_nothing_open(aggregate: dict[str, Any]) -> None:
    swept(aggregate, {"plain": 4.0}, lost=(("nixl_both", 8.0),))
    assert title("fig3", aggregate) == "Plain saturates at 4 req/s, and no connector saturates earlier"


def test_below_the_lowest_rate_nothing_is_known(aggregate: dict[str, Any]) -> None:
    swept(aggregate, dict.fromkeys(("plain", *CONNECTORS), 2.0))
    assert title("fig3", aggregate) == (
        "Plain saturates at 2 req/s, the lowest rate that was measured, so whether a connector saturates earlier is not known"
    )


def test_who_keeps_up_at_the_lowest_rate_does_not_saturate_earlier(aggregate: dict[str, Any]) -> None:
    lowest = "Plain saturates at 2 req/s, the lowest rate that was measured"
    swept(aggregate, {"plain": 2.0, CONNECTORS[0]: 2.0})
    first = aggregate["configs"][CONNECTORS[0]]["label"]
    assert (
        title("fig3", aggregate)
        == f"{lowest}; whether {first} saturates earlier is not known, and no other connector does"
    )
    swept(aggregate, {"plain": 2.0})
    assert title("fig3", aggregate) == f"{lowest}, and no connector saturates earlier"


def test_plains_own_gap_is_said(aggregate: dict[str, Any]) -> None:
    swept(aggregate, {}, lost=(("plain", 4.0),))
    assert title("fig3", aggregate).startswith("Plain saturates at 8 req/s, as far as measured, and no ")


def test_plain_with_a_connectors_settings_does_not_count(aggregate: dict[str, Any]) -> None:
    swept(aggregate, {})
    one = next(c for c in aggregate["cells"] if c["config"] == "plain" and c["rate_per_s"] == 2.0)
    aggregate["configs"]["plain_matched_nixl_both"] = {
        "label": "plain, NIXL's",
        "status": "measured",
        "reason": None,
    }
    aggregate["cells"].append({**one, "config": "plain_matched_nixl_both"})
    aggregate["saturation"]["plain_matched_nixl_both"] = knee(2.0)
    assert title("fig3", aggregate) == "Plain saturates at 8 req/s, and no connector saturates earlier"


# Figures 1 and 2.
@pytest.mark.parametrize("name", ["fig1", "fig2"])
def test_a_range_is_over_the_rates_that_have_a_value(name: str, aggregate: dict[str, Any]) -> None:
    swept(aggregate, {})
    quantity = {"fig1": "ttft_ms", "fig2": "tpot_ms"}[name]
    for cell in aggregate["cells"]:
        if cell["rate_per_s"] == 8.0 or (cell["config"], cell["rate_per_s"]) == ("plain", 2.0):
            cell[quantity] = {**cell[quantity], "p90": no_number("overloaded")}
    assert title(name, aggregate).endswith("] at 2 and 4 req/s; at 8 req/s no configuration has one")
    assert "over the measured rates" not in title(name, aggregate)


def test_a_connector_that_skips_prefill_is_not_counted_among_ttfts(aggregate: dict[str, Any]) -> None:
    """Its TTFT is the lowest of all, and is drawn; TPOT is counted."""
    swept(aggregate, {})
    aggregate["configs"]["nixl_both"]["ttft_is_no_tax"] = "prefill is skipped"
    for cell in aggregate["cells"]:
        if cell["config"] == "nixl_both":
            cell["ttft_ms"] = {**cell["ttft_ms"], "p90": number(1.0, 0.9, 1.1)}
    assert "with one of 3 from " in title("fig1", aggregate) and "NIXL" not in title("fig1", aggregate)
    assert "The title does not count nixl_both: its TTFT is no tax, prefill is skipped." in caption(
        "fig1", aggregate
    )
    assert "with one of 4 from " in title("fig2", aggregate)
    assert "nixl_both: its" not in caption("fig2", aggregate)


def test_levels_that_differ_do_not_read_alike() -> None:
    """Neither a number and its ends nor two numbers side by side; an end may read as another number's."""
    near = [Interval(100.06, 100.01, 100.11), Interval(100.09, 100.04, 100.16)]
    assert levels(near) == ["100.06 ms [100.01 ms, 100.11 ms]", "100.09 ms [100.04 ms, 100.16 ms]"]
    apart = [Interval(105.4, 103.6, 111.2), Interval(110.1, 103.7, None)]
    assert levels(apart) == ["105 ms [104 ms, 111 ms]", "110 ms [104 ms, unbounded]"]
    assert levels([Interval(12345.0, 11111.0, 14000.0)]) == ["12.3 s [11.1 s, 14.0 s]"]


# Figures 6 and 9.
def test_without_any_cell_step_times_are_not_said_to_be_switched_off(aggregate: dict[str, Any]) -> None:
    aggregate |= {"step_timing_available": False, "step_timing_reason": "the campaign has no usable cell"}
    for name in ("fig6", "fig9"):
        assert reason(name, aggregate) == "step times were not recorded: the campaign has no usable cell"


def test_figure_6_tells_a_lost_cell_from_one_without_records(aggregate: dict[str, Any]) -> None:
    at = aggregate["reference_rates"]["ref_safe_per_s"]
    for cell in list(aggregate["cells"]):
        if cell["phase"] == "a" and cell["rate_per_s"] == at:
            if cell["config"] == "nixl_both":
                cell["usable"] = False
            if cell["config"] == "lmcache_only":
                cell["step"] = {"available": False, "reason": "this cell has no step records"}
    said = caption("fig6", aggregate)
    assert "No step records at this rate: lmcache_only." in said
    assert "No usable cell of phase A at this rate: nixl_both." in said


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (("plain",), "plain has no decoding steps in phase A at ref_safe (2 req/s), so nobody's decoding steps can be set beside plain's"),
        (
            tuple(c for c in EXAMPLE["configs"] if c != "plain"),
            "no connector has decoding steps in phase A at ref_safe (2 req/s) to set beside plain's",
        ),
        ((), "plain or each connector has too few decoding steps in phase A at ref_safe (2 req/s) for an interval"),
    ],
    ids=["plain", "connectors", "nobody"],
)  # fmt: skip
def test_figure_9_says_whose_steps_are_missing(
    lost: tuple[str, ...], words: str, aggregate: dict[str, Any]
) -> None:
    aggregate["attribution"] = []
    for cell in aggregate["cells"]:
        if cell["config"] in lost:
            cell["step"] = {"available": False, "reason": "no records"}
        elif (cell.get("step") or {}).get("available"):
            cell["step"]["by_kind"]["decode_only"]["n"] = 9
    assert reason("fig9", aggregate) == words


def test_figure_9_says_what_became_of_plain(aggregate: dict[str, Any]) -> None:
    """Its cell there is lost, or all of it."""
    aggregate["attribution"] = []
    aggregate["cells"] = [c for c in aggregate["cells"] if (c["config"], c["rate_per_s"]) != ("plain", 2.0)]
    alone = "so nobody's decoding steps can be set beside plain's"
    assert reason("fig9", aggregate) == f"plain has no usable cell in phase A at ref_safe (2 req/s), {alone}"
    aggregate["configs"]["plain"] |= {"status": "failed", "reason": "the engine died at start"}
    assert reason("fig9", aggregate) == f"plain failed: the engine died at start, {alone}"


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig8", "fig9"])
def test_a_figure_of_one_rate_excludes_cells_of_that_rate_alone(name: str, aggregate: dict[str, Any]) -> None:
    """Figure 8 speaks of its stack and of what that is made of alone."""
    config = "mooncake_both" if name == "fig8" else "nixl_both"
    lost = {"usable": False, "verdict": "invalid", "reasons": ["the engine died"]}
    one = next(
        c for c in aggregate["cells"] if (c["config"], c["phase"], c["rate_per_s"]) == ("plain", "a", 2.0)
    )
    aggregate["cells"].append({**one, **lost, "config": config, "rate_per_s": 64.0, "cell_id": "r64"})
    assert "Excluded cells: none." in caption(name, aggregate)
    aggregate["cells"].append({**one, **lost, "config": config, "cell_id": "r2"})
    assert f"Excluded cells: {config} r2 (the engine died)." in caption(name, aggregate)


def test_figure_6_says_whom_its_title_does_not_count(aggregate: dict[str, Any]) -> None:
    one = next(
        c for c in aggregate["cells"] if (c["config"], c["phase"], c["rate_per_s"]) == ("plain", "a", 2.0)
    )
    aggregate["configs"]["plain_matched_nixl_both"] = {
        "label": "plain, NIXL's",
        "status": "measured",
        "reason": None,
    }
    aggregate["cells"].append({**one, "config": "plain_matched_nixl_both"})
    assert (
        "The title does not count plain_matched_nixl_both, plain vLLM with a connector's settings."
        in caption("fig6", aggregate)
    )


# What qualifies their numbers.
@pytest.mark.parametrize("name", ["fig1", "fig2", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9"])
def test_flags_of_the_reference_rates_stand_under_each_figure_that_rests_on_them(
    name: str, aggregate: dict[str, Any]
) -> None:
    assert "Reference rates carry" not in caption(name, aggregate)
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    assert "Reference rates carry: fallback_lowest_rate." in caption(name, aggregate)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fig4", "At ref_safe plain and nixl_both did not keep up: those taxes hold queueing."),
        (
            "fig6",
            "Plain and nixl_both did not keep up at this rate, which moves the median step to another mixture of steps.",
        ),
        ("fig7", "Plain and nixl_both did not keep up: those taxes hold queueing."),
        ("fig9", "Plain and nixl_both did not keep up at this rate, so more requests share a step."),
    ],
)
def test_who_did_not_keep_up_stands_under_each_figure(
    name: str, words: str, aggregate: dict[str, Any]
) -> None:
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        if tax["reference"] == "ref_safe":
            tax["overloaded"] = ["own", "plain"] if tax["config"] == "nixl_both" else []
    assert words in caption(name, aggregate)
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        tax["overloaded"] = []
    assert "did not keep up" not in caption(name, aggregate)


def test_figure_8_says_who_did_not_keep_up(aggregate: dict[str, Any]) -> None:
    for tax in aggregate["main_taxes"]:
        tax["overloaded"] = ["own"] if tax["config"] == "lmcache_only" else []
    assert "lmcache_only did not keep up: those taxes hold queueing." in caption("fig8", aggregate)


def test_figure_7_names_every_launch_that_a_part_is_of(aggregate: dict[str, Any]) -> None:
    """Also the no-op connector's and a matched baseline's, which are parts and not split."""
    row = next(r for r in aggregate["decomposition"] if r["config"] == "mooncake_both")
    for tax in aggregate["main_taxes"]:
        if tax["config"] == "noop_connector":
            tax["phase"] = "b"
    assert "noop_connector (phase B)" in caption("fig7", aggregate).partition("stands in where")[2]
    assert interval_there(row, "framework")
    matched = [{**t, "config": "plain_matched_mooncake_both", "phase": "b"} for t in aggregate["main_taxes"] if t["config"] == "mooncake_both"]  # fmt: skip
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] != "plain_matched_mooncake_both"] + matched  # fmt: skip
    said = caption("fig7", aggregate).partition("stands in where")[2]
    assert ("plain_matched_mooncake_both (phase B)" in said) == interval_there(row, "flags")


def interval_there(row: dict[str, Any], part: str) -> bool:
    return row[part]["point"] is not None


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.1), (-0.1, None)], ids=["no tax found", "open"])
def test_figure_8_says_what_additivity_would_be_held_against(
    low: float, high: float | None, aggregate: dict[str, Any]
) -> None:
    """The sum may lie apart from the stack's interval all the same, so both are given."""
    for tax in aggregate["main_taxes"]:
        if tax["config"] == "multi_mooncake_lmcache" and tax["metric"] == "ttft_p90":
            tax |= {"point": 0.02, "low": low, "high": high}
    said = title("fig8", aggregate)
    assert "so additivity cannot be held against 30 % of the stack's tax; its parts are +" in said
    assert said.endswith("] as a sum")
