"""Every picture says whether its numbers are of one launch or over blocks of launches, and adds up no two kinds."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import EXAMPLE, no_number


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLE.read_text())
    return found


def drawn(name: str, aggregate: dict[str, Any]) -> Drawn | Omitted:
    with drawing_style("x"):
        return FIGURES[name](aggregate_of(aggregate))


def test_figures_4_7_and_8_say_which_launches_are_behind_their_bars(example: dict[str, Any]) -> None:
    """Over blocks, and of which connector another phase stands in."""
    aggregate = copy.deepcopy(example)
    for row in aggregate["main_taxes"]:
        if row["unit"] == "ratio":
            row |= {"phase": None, "blocks": 5, "kind": "over 5 blocks"}
    result = drawn("fig8_additivity", aggregate)
    assert isinstance(result, Drawn) and "Over 5 blocks of launches." in result.caption
    for row in aggregate["main_taxes"]:
        if row["config"] == "lmcache_only":
            row |= {"phase": "b", "blocks": None, "kind": "of one launch"}
    for name in ("fig4_tax_bars", "fig7_decomposition"):
        result = drawn(name, aggregate)
        assert isinstance(result, Drawn)
        assert "Over 5 blocks of launches (one launch: lmcache_only)." in result.caption
        assert "lmcache_only (phase B)." in result.caption
    mixed = drawn("fig8_additivity", aggregate)
    assert isinstance(mixed, Omitted)
    assert mixed.reason == (
        "taxes of one launch (lmcache_only) and over blocks of launches are not added up or compared"
    )


def test_figures_of_phase_a_alone_say_that_they_are_of_one_launch(example: dict[str, Any]) -> None:
    """Beside taxes over blocks a reader would take their lines for the same."""
    for name in (
        "fig1_ttft_vs_rate",
        "fig2_tpot_vs_rate",
        "fig3_throughput",
        "fig6_step_cdf",
        "fig9_attribution",
    ):
        result = drawn(name, example)
        assert isinstance(result, Drawn)
        assert "one launch" in result.caption


def test_a_latency_of_one_launch_is_named_though_the_other_is_over_blocks(example: dict[str, Any]) -> None:
    aggregate = copy.deepcopy(example)
    for row in aggregate["main_taxes"]:
        if row["unit"] == "ratio" and (row["config"], row["metric"]) != ("nixl_both", "tpot_p90"):
            row |= {"phase": None, "blocks": 5, "kind": "over 5 blocks"}
    result = drawn("fig4_tax_bars", aggregate)
    assert isinstance(result, Drawn)
    assert (
        "Over 5 blocks of launches (one launch: TPOT p90 of nixl_both at ref_load and TPOT p90 of nixl_both at ref_safe)."
        in result.caption
    )


def test_three_numbers_of_blocks_are_listed(example: dict[str, Any]) -> None:
    aggregate = copy.deepcopy(example)
    taxes = [t for t in aggregate["main_taxes"] if t["unit"] == "ratio"]
    for k, row in enumerate(taxes):
        row |= {"phase": None, "blocks": 3 + k % 3, "kind": f"over {3 + k % 3} blocks"}
    result = drawn("fig4_tax_bars", aggregate)
    assert isinstance(result, Drawn) and "Over 3, 4 and 5 blocks of launches." in result.caption


def test_figure_7_names_parts_that_fewer_blocks_know(example: dict[str, Any]) -> None:
    """The no-op connector lost a block: the framework and what is left of a tax are over four, the tax over five."""
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        row["kind"] = row["total"]["kind"] = "over 5 blocks"
        for part in ("framework", "implementation"):
            row[part]["kind"] = "over 4 blocks"
    result = drawn("fig7_decomposition", aggregate)
    assert isinstance(result, Drawn)
    assert "Known in fewer blocks than the whole: framework, implementation of TTFT p90 of " in result.caption
    assert " over 4 blocks" in result.caption
    assert "fewer blocks" not in drawn("fig7_decomposition", example).caption  # type: ignore[union-attr]
    # The matched launches lost another block.
    for row in aggregate["decomposition"]:
        row["implementation"]["kind"] = "over 3 blocks"
    result = drawn("fig7_decomposition", aggregate)
    assert isinstance(result, Drawn)
    assert re.search(
        r"whole: framework of TTFT p90 of (\w+) over 4 blocks(, | and )implementation of TTFT p90 of \1 over 3 blocks",
        result.caption,
    )


def test_parts_over_more_blocks_are_not_said_to_be_over_fewer(example: dict[str, Any]) -> None:
    """The connector lost a block, and the no-op connector none."""
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        row["kind"] = "over 4 blocks"
        for part in ("total", "flags", "framework", "implementation"):
            row[part]["kind"] = "over 5 blocks" if part == "framework" else "over 4 blocks"
    result = drawn("fig7_decomposition", aggregate)
    assert isinstance(result, Drawn)
    assert "fewer blocks" not in result.caption
    assert "Known over other blocks than the whole: framework of TTFT p90 of " in result.caption


def test_taxes_without_a_number_are_not_said_to_be_none(example: dict[str, Any]) -> None:
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        row["total"] = no_number("requests failed")
    result = drawn("fig7_decomposition", aggregate)
    assert isinstance(result, Omitted)
    assert result.reason == (
        "the tax of no connector beside the no-op one is known at ref_safe: mooncake_producer, mooncake_both, nixl_both, lmcache_only and "
        "multi_mooncake_lmcache, each: requests failed"
    )


def test_the_gap_of_two_bars_is_not_put_down_to_queueing(example: dict[str, Any]) -> None:
    result = drawn("fig4_tax_bars", example)
    assert isinstance(result, Drawn)
    assert "queueing adds" not in result.caption
    assert "in percentage points; the report's table of it has the interval." in result.caption
