"""The table of taxes for a page: the page's own numbers, and a place that only it fills."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.questions import main_taxes
from connector_tax.read.figures.words import with_interval
from connector_tax.read.report.sections import part_of, with_part
from connector_tax.read.report.tax_table import tax_table

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "aggregate_example.json").read_text())


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def test_every_configuration_but_plain_has_a_row_with_its_taxes(aggregate: dict[str, Any]) -> None:
    whole = aggregate_of(aggregate)
    lines = tax_table(whole).splitlines()[2:]
    others = [c for c in whole.config_ids if c != "plain"]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [*map(whole.label_of, others)]
    taxes = main_taxes(whole, metric="tpot_p90", reference="ref_safe")
    for config, line in zip(others, lines, strict=True):
        tax = taxes.get(config)
        wanted = "–"
        if tax is not None and tax.interval is not None:
            wanted = f"{with_interval(tax.interval)}, of one launch, n {tax.n} and {tax.n_plain}"
        assert line.split(" | ")[2] == wanted


def test_a_tax_says_whose_launches_it_is_of_and_how_many(aggregate: dict[str, Any]) -> None:
    """Over blocks, of another launch than Phase A's, at a rate that stands in for none."""
    own = {
        t["config"]: t
        for t in aggregate["main_taxes"]
        if (t["metric"], t["reference"]) == ("ttft_p90", "ref_safe")
    }
    own["nixl_both"] |= {"phase": None, "blocks": 4, "kind": "over 4 blocks", "n": 800, "n_plain": 1600}
    own["lmcache_only"]["phase"] = "b"
    taxes = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1]
        for line in tax_table(aggregate_of(aggregate)).splitlines()[2:]
    }
    assert taxes["NIXL (both)"].endswith("], over 4 blocks, n 800 and 1,600")
    assert ", of one launch, by phase B's launch, n " in taxes["LMCache"]
    assert not tax_table(aggregate_of(aggregate)).endswith(".")
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    assert tax_table(aggregate_of(aggregate)).endswith("|\n\nReference rates carry: fallback_lowest_rate.")


def test_what_is_not_known_is_a_dash(aggregate: dict[str, Any]) -> None:
    aggregate |= {"main_taxes": [], "attribution": []}
    assert all(
        line.split(" | ")[1:-1] == ["–"] * 3 for line in tax_table(aggregate_of(aggregate)).splitlines()[2:]
    )


def test_the_reason_of_a_dash_stands_below_the_table(aggregate: dict[str, Any]) -> None:
    """Of a connector that was measured: one of which requests failed in a block is not one that was skipped."""
    why = "its ttft_p90 has no value in block R1: requests failed or did not finish"
    for tax in aggregate["main_taxes"]:
        if (tax["config"], tax["metric"], tax["reference"]) == ("nixl_both", "ttft_p90", "ref_safe"):
            tax |= {"point": None, "low": None, "high": None, "available": False, "reason": why}
    assert tax_table(aggregate_of(aggregate)).endswith(f"|\n\nNIXL (both) has no number of TTFT p90: {why}.")


def test_a_name_cannot_end_its_cell(aggregate: dict[str, Any]) -> None:
    aggregate["configs"]["noop_connector"]["label"] = "a | b"
    assert "| a \\| b | " in tax_table(aggregate_of(aggregate))


def test_a_part_of_a_page_is_replaced_and_nothing_else() -> None:
    page = "# Title\n\n<!-- begin taxes x -->\nold\n<!-- end taxes x -->\n\nend\n"
    changed = with_part(page, "taxes x", "new \\1\nlines")
    assert changed == page.replace("old", "new \\1\nlines")
    assert part_of(changed, "taxes x") == "new \\1\nlines"
    assert part_of(changed, "taxes y") is None
    assert with_part("# Title\n", "taxes x", "new").endswith(
        "\n\n<!-- begin taxes x -->\nnew\n<!-- end taxes x -->\n"
    )
