"""Tables of the report: whose launch a number is of, why there is none, what its columns are, and what its words mean."""

import copy
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connector_tax.base.documents.aggregate import Cell, MainTaxRow, Provenance, TaxRow, aggregate_of
from connector_tax.read.report.conversations import conversations_view
from connector_tax.read.report.growth import growth_view
from connector_tax.read.report.mechanism import mechanism
from connector_tax.read.report.parts import settings_view
from connector_tax.read.report.provenance import provenance_view
from connector_tax.read.report.qualifiers import flagged, repeatable
from connector_tax.read.report.repeats import repeats_view
from connector_tax.read.report.tax_tables import ReferenceRow
from connector_tax.read.report.tax_text import shape_text, tax_text

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from made_pages import text_of, view_of
from whole_aggregate import attribution_of, device_clock, hook, typed

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
NOTHING = {"point": None, "low": None, "high": None}


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def words(aggregate: dict[str, Any]) -> str:
    text = text_of(aggregate).partition("<body>")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def row_of(aggregate: dict[str, Any], config: str, reference: str = "ref_safe") -> ReferenceRow:
    table = next(t for t in view_of(aggregate).taxes if t.reference == reference)
    return next(r for r in table.rows if r.id == config)


def main_rows(aggregate: dict[str, Any], config: str, reference: str = "ref_safe") -> list[dict[str, Any]]:
    return [t for t in aggregate["main_taxes"] if (t["config"], t["reference"]) == (config, reference)]


# Whose launch, and why.
def test_why_another_launch_stands_in_is_said_once_per_row(aggregate: dict[str, Any]) -> None:
    why = "plain has no usable cell of phase A at this rate and shape"
    for tax in aggregate["taxes"]:
        if (tax["config"], tax["reference"], tax["phase"]) == ("nixl_both", "ref_safe", "a"):
            tax |= NOTHING | {"reason": why}
    for tax in main_rows(aggregate, "nixl_both"):
        tax["phase"] = "b"
    row = row_of(aggregate, "nixl_both")
    assert row.note == f"by phase B's launch, since {why}"
    assert all(t.n.endswith("by phase B's launch") for t in row.taxes)
    assert row_of(aggregate, "mooncake_both").note == ""


def test_the_headline_gives_the_same_reason(aggregate: dict[str, Any]) -> None:
    for tax in aggregate["taxes"]:
        if (tax["config"], tax["reference"], tax["phase"]) == ("mooncake_both", "ref_safe", "a"):
            tax |= NOTHING | {"reason": "its cell of phase A is lost: gone"}
    for tax in main_rows(aggregate, "mooncake_both"):
        tax["phase"] = "b"
    assert "Measured by phase B's launch, since its cell of phase A is lost: gone." in words(aggregate)


# Columns.
def test_the_words_above_the_tables_are_about_columns_that_they_have(aggregate: dict[str, Any]) -> None:
    assert "read its column at ref_safe." in words(aggregate)
    assert "n counts requests with the connector and without, or steps where" in words(aggregate)
    for tax in aggregate["main_taxes"]:
        if tax["metric"] == "step_p50_us" and tax["reference"] == "ref_safe":
            tax |= NOTHING
    said = words(aggregate)
    assert "Near saturation the median step" in said and "read its column" not in said
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if not t["metric"].endswith("_us")]
    said = words(aggregate)
    assert "Near saturation" not in said and "lies elsewhere" not in said
    assert "n counts requests with the connector and without." in said


def test_a_part_without_its_whole_names_the_step(aggregate: dict[str, Any]) -> None:
    """Without plain nothing but the hooks has a number."""
    for rows in ("taxes", "main_taxes"):
        aggregate[rows] = [t for t in aggregate[rows] if t["metric"] == "callback_p50_us"]
    (table, *_) = view_of(aggregate).taxes
    assert table.columns == ["in the connector's hooks, per step (median)"]
    assert "A connector's own hooks, with 95 % intervals in brackets; n counts steps. Plain has no number here." in words(aggregate)  # fmt: skip
    assert "n counts requests" not in words(aggregate) and "TTFT is the time" not in words(aggregate)


def test_a_column_where_nobody_kept_up_is_not_recommended(aggregate: dict[str, Any]) -> None:
    for tax in aggregate["main_taxes"]:
        if tax["metric"] == "step_p50_us" and tax["reference"] == "ref_safe":
            tax |= {"overloaded": ["plain"], "holds": None}
    first = next(
        t for t in aggregate["main_taxes"] if (t["metric"], t["reference"]) == ("step_p50_us", "ref_safe")
    )
    assert "Near saturation the median step" in words(aggregate) and "read its column" not in words(aggregate)
    # What else qualifies a number says nothing of that.
    first |= {"overloaded": [], "holds": "the copy of each prompt's KV to its own store"}
    assert "read its column at ref_safe." in words(aggregate)


def test_hooks_between_two_steps_are_no_part_of_the_step(aggregate: dict[str, Any]) -> None:
    names = {"of it in the connector's hooks", "of it elsewhere"}
    apart = {"in the connector's hooks, also those between two steps", "median step less these hooks"}
    assert names <= {*view_of(aggregate).taxes[0].columns}
    assert "The part of the median step that lies elsewhere is no tax by itself" in words(aggregate)
    aggregate["attribution"][0]["hooks"].append(hook("scheduler/on_new_request", 0.4, None))
    assert names <= {*view_of(aggregate).taxes[0].columns}
    aggregate["attribution"][0]["hooks"].append(hook("scheduler/on_new_request", 80.0, None))
    columns = {*view_of(aggregate).taxes[0].columns}
    assert apart <= columns and not names & columns
    assert "The median step less these hooks is no tax by itself: below zero, hooks are called between steps" in words(aggregate)  # fmt: skip
    assert "lies elsewhere" not in words(aggregate)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [("tax", "above zero"), ("gain", "below zero"), ("no_tax_found", "not told apart from zero")],
)
def test_a_part_of_a_step_is_neither_a_tax_nor_a_gain(
    verdict: str, word: str, aggregate: dict[str, Any]
) -> None:
    """Hooks that overlap make what lies elsewhere negative."""
    tax = next(t for t in aggregate["main_taxes"] if t["metric"] == "unexplained_us")
    found = tax_text(typed(tax, MainTaxRow, verdict=verdict))
    assert (found.verdict, found.mood) == (f"{word}, of one launch", "none")
    step = next(t for t in aggregate["main_taxes"] if t["metric"] == "step_p50_us")
    assert tax_text(typed(step, MainTaxRow, verdict="gain")).verdict == "gain, of one launch"


# Flags of the cells behind a number.
def flag_cells(aggregate: dict[str, Any], flag: str, *configs: str) -> dict[str, Any]:
    """Of a shape of Phase B; the tax of NIXL there."""
    tax = next(t for t in aggregate["taxes"] if (t["config"], t["phase"], t["metric"]) == ("nixl_both", "b", "ttft_p90"))  # fmt: skip
    for cell in aggregate["cells"]:
        if (cell["phase"], cell["cell_id"]) == ("b", tax["cell_id"]) and cell["config"] in configs:
            cell["flags"] = [*cell.get("flags", []), flag]
    found: dict[str, Any] = tax
    return found


@pytest.mark.parametrize(
    ("configs", "whose"),
    [
        (("plain",), " (plain's)"),
        (("nixl_both",), " (its own)"),
        (("plain", "nixl_both"), ""),
    ],
)
def test_a_number_carries_the_flags_of_its_cells(
    configs: tuple[str, ...], whose: str, aggregate: dict[str, Any]
) -> None:
    for cell in aggregate["cells"]:
        cell["flags"] = ["cores_shared"]
    tax = flag_cells(aggregate, "client_limited", *configs)
    assert flagged(aggregate_of(aggregate), typed(tax, TaxRow)) == f"flagged client_limited{whose}"
    shapes = view_of(aggregate).shape_taxes
    said = [r for r in shapes if r.label == "NIXL (both)" and "client_limited" in r.taxes[0].overloaded]
    assert len(said) == 1


def test_a_flag_that_every_cell_carries_stands_in_its_table_alone(aggregate: dict[str, Any]) -> None:
    for cell in aggregate["cells"]:
        cell["flags"] = ["cores_shared"]
    assert all("cores_shared" not in t.overloaded for t in row_of(aggregate, "nixl_both").taxes)


def test_a_cell_without_the_recorder_says_so() -> None:
    cell = next(c for c in EXAMPLE["cells"] if c["phase"] == "b") | {"input_tokens": 256, "output_tokens": 16}
    assert shape_text(typed(cell, Cell, cell_id="r4_256x16")) == "256 x 16"
    assert shape_text(typed(cell, Cell, cell_id="r4_256x16_unrecorded")) == "256 x 16, unrecorded"


# Blocks of launches.
def blocks(aggregate: dict[str, Any], low: float = -0.02, spread: float = 0.0) -> dict[str, Any]:
    """TTFT over four blocks of which NIXL is not among the taxes; plain against itself from ``low`` on."""
    entry = {
        "metric": "ttft_p90",
        "reference": "ref_safe",
        "rate_per_s": 2.0,
        "blocks": 4,
        "noise_floor": {"point": 0.03, "low": low, "high": 0.08, "half_width": 0.05, "found_4_of_5": 0.1},
        "between_launch_sd": spread,
        "between_launches": {"point": spread, "low": 0.0, "high": 0.02},
        "drift": None,
        "taxes": [
            {
                "config": c,
                "point": 0.1,
                "low": 0.05,
                "high": 0.2,
                "verdict": "tax",
                "by_block": {"a": 0.1},
                "kind": "over 4 blocks",
                "n": 4,
                "sd": 0.01,
                "adjusted": None,
            }
            for c, v in aggregate["configs"].items()
            if c not in ("plain", "nixl_both") and v["status"] != "skipped"
        ],
    }
    aggregate["repeats"] = [entry]
    return entry


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (NOTHING | {"reason": "its ttft_p90 has no value in block R1: requests failed"}, "no value in block R1"),
        ({"blocks": None}, "too few of these blocks have its cell, so its tax is of one launch"),
        (None, "it was not measured yet"),
    ],
    ids=["failed", "too few", "never measured"],
)  # fmt: skip
def test_who_has_no_tax_over_blocks_has_a_row_with_the_reason(
    chosen: dict[str, Any] | None, why: str, aggregate: dict[str, Any]
) -> None:
    blocks(aggregate)
    own = next(t for t in main_rows(aggregate, "nixl_both") if t["metric"] == "ttft_p90")
    if chosen is None:
        aggregate["main_taxes"].remove(own)
        aggregate["configs"]["nixl_both"] |= {"status": "missing", "reason": "not measured yet"}
    else:
        own |= chosen
    row = repeats_view(aggregate_of(aggregate))[0].rows[-1]
    assert (row.label, row.tax) == ("NIXL (both)", "not available")
    assert why in row.blocks
    assert "Mooncake (consumer)" not in [r.label for r in repeats_view(aggregate_of(aggregate))[0].rows]
    assert (
        "A configuration's tax of a latency is not available at a rate and shape if in one of its launches there the percentile fell on "
        "requests that failed, or the cell was overloaded" in words(aggregate)
    )


def test_plains_second_launch_is_said_to_differ_where_it_does(aggregate: dict[str, Any]) -> None:
    """And what launches vary by beside that is not said to be nothing at all."""
    blocks(aggregate, low=0.01)
    said = " ".join(repeats_view(aggregate_of(aggregate))[0].sentences)
    assert "+8.0 %] in 4 pairs of launches, so its second launch is told apart from its first." in said
    assert "Beside that, launches of plain differ by up to 2.0 % (standard deviation)" in said
    blocks(aggregate, low=-0.01)
    said = " ".join(repeats_view(aggregate_of(aggregate))[0].sentences)
    assert "told apart" not in said and "Launches of plain differ by up to 2.0 %" in said


def test_one_slope_for_all_reads_plainly(aggregate: dict[str, Any]) -> None:
    blocks(aggregate)["host_speed_slope"] = {"point": 0.9, "low": 0.5, "high": 1.3}
    assert (
        "One slope of latency over that time, common to all configurations, removes from each block what slower or faster "
        "cores explain." in words(aggregate)
    )


# Parts, processes and phases.
def test_a_connector_whose_settings_were_not_seen_is_in_their_table(aggregate: dict[str, Any]) -> None:
    aggregate["engine_diff"] = {"mooncake_both": {"x": {"plain": 1, "own": 2}}, "lmcache_only": {}}
    found = {row.config: row.changes or row.nothing for row in settings_view(aggregate_of(aggregate))}
    assert found["mooncake_both"] == ["x: 1 → 2"]
    assert (found["lmcache_only"], found["nixl_both"]) == ("none", "not known")
    assert "mooncake_consumer" not in found, "it was skipped"
    aggregate["engine_diff"] = {"mooncake_both": None}
    assert settings_view(aggregate_of(aggregate)) == []


def clocked(aggregate: dict[str, Any], config: str, rate: float, late: float) -> None:
    for cell in aggregate["cells"]:
        if (cell["config"], cell["phase"], cell["rate_per_s"]) == (config, "a", rate):
            cell["health"] = {"device_clock": device_clock(late)}


def test_the_lateness_beside_a_steps_parts_is_that_of_its_own_cell(aggregate: dict[str, Any]) -> None:
    """Another rate's may be later."""
    for config, late in (("plain", 0.001), ("nixl_both", 0.011)):
        clocked(aggregate, config, 2.0, late)
        clocked(aggregate, config, 16.0, 0.019)
    said = mechanism(aggregate_of(aggregate), attribution_of(aggregate, "nixl_both", hooks=[]))
    assert said[-1].startswith(
        "The clock ran late by 1.1 % of the device's time with it and 0.1 % with plain,"
    )


def test_a_conversation_that_does_not_count_says_why(aggregate: dict[str, Any]) -> None:
    cell = {"config": "nixl_both", "phase": "c", "cell_id": "s_talk", "rate_per_s": 1.0}
    cell |= {"input_tokens": 8, "output_tokens": 8, "flags": []}
    aggregate["cells"] = [{**cell, "verdict": "invalid", "usable": False, "reasons": ["out of CPU"]}]
    (row,) = conversations_view(aggregate_of(aggregate))
    assert {t.range for t in row.taxes} == {"its cell does not count (out of CPU)"}


def test_taxes_of_medians_have_their_n_and_their_reason(aggregate: dict[str, Any]) -> None:
    value = {"point": 0.1, "low": 0.05, "high": 0.2, "n": 57}
    cell = {
        "cell_id": "c1",
        "cached_blocks": 100.0,
        "running": 1.0,
        "concurrency": 1,
        "cached_tokens_wanted": 1600,
        "medians_us": {"connector_total_us": value},
        "p50_taxes": {"ttft_p50": value, "tpot_p50": NOTHING | {"n": 0, "reason": "plain has no usable cell at this level"}},
    }  # fmt: skip
    aggregate["growth"] = [{"config": "nixl_both", "cells": [cell], "slopes": []}]
    found = growth_view(aggregate_of(aggregate))
    assert found is not None
    assert found.cells[0].taxes == (
        "+10 % [+5.0 %, +20 %], n 57",
        "not available: plain has no usable cell at this level",
    )
    assert found.cells[0].hooks.endswith("], n 57")
    assert "Slopes and taxes are of one launch each." in words(aggregate)


# Outputs, criteria, provenance.
def test_what_another_launch_of_plain_shows_is_said_where_there_is_one(aggregate: dict[str, Any]) -> None:
    def answered(*launches: tuple[str, str, str]) -> str:
        counts = {"n_prompts": 8, "n_same": 8, "n_failed": 0, "first_difference": None}
        rows = [{"config": c, "phase": p, "verdict": v, **counts} for c, p, v in launches]
        return repeatable(aggregate_of({**aggregate, "outputs": rows}))

    first = ("plain", "a", "reference")
    assert answered(first, ("nixl_both", "a", "same")) == (
        "No other launch of plain answered them, so whether the engine repeats itself is not known."
    )
    assert answered(first, ("plain", "b", "same")) == "1 other launch of plain shows how repeatable the engine itself is."  # fmt: skip
    assert answered(first, ("plain", "b", "same"), ("plain_again", "a", "same")).startswith("2 other launches of plain show ")  # fmt: skip


def test_the_page_says_what_a_criterion_asks_for(aggregate: dict[str, Any]) -> None:
    assert (
        "Criteria 1, 2 and 5 ask for numbers and are reported where these are there, whatever the verdict. Criteria 3 and 4 ask for a "
        "decision. not met also says that numbers were not measured, were lost, failed or differ from plain."
        in words(aggregate)
    )


def test_a_setting_that_was_not_made_is_not_unknown() -> None:
    value = {
        "settings": {"cell": {"gamma_shape": None}},
        "host": {"cpu": None},
        "gpu": [],
        "versions": {},
        "config_hash": 16 * "0",
    }
    found = dict(provenance_view(msgspec.convert(value, Provenance), None))
    assert found["settings.cell.gamma_shape"] == "not set"
    assert found["host.cpu"] == "unknown"
    assert found["gpu"] == "unknown", "no cell tells of the host"
    known = dict(provenance_view(typed(value, Provenance, versions={"vllm": "0.32.0"}), None))
    assert known["gpu"] == "none"


def test_nobody_says_that_an_unknown_host_has_no_gpu(aggregate: dict[str, Any]) -> None:
    aggregate["provenance"] |= {"gpu": [], "versions": {}, "host": {}}
    assert "CPU host" not in words(aggregate)
    aggregate["provenance"]["versions"] = {"vllm": "0.32.0"}
    assert "CPU host" in words(aggregate)


def test_who_saturates_nowhere_is_said_to(aggregate: dict[str, Any]) -> None:
    for entry in aggregate["saturation"].values():
        entry["saturation_rate_per_s"] = None
    rows = {r.id: r.saturation for r in view_of(aggregate).configs}
    assert rows["nixl_both"] == "at no measured rate"
