"""The table of taxes for a page: the page's own numbers, and a place that only it fills."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.cli import command
from connector_tax.read.figures.questions import main_taxes
from connector_tax.read.figures.words import hold_together, with_interval
from connector_tax.read.report.sections import part_of, with_part
from connector_tax.read.report.tax_table import tax_table

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "aggregate_example.json").read_text())


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def rows(table: str) -> dict[str, list[str]]:
    """Configuration -> its other cells."""
    found = [line.strip("|").strip().split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in found[1:]}


def test_every_configuration_but_plain_has_a_row_with_its_taxes(aggregate: dict[str, Any]) -> None:
    whole = aggregate_of(aggregate)
    found = rows(tax_table(whole))
    others = [c for c in whole.config_ids if c != "plain"]
    assert [*found] == [*map(whole.label_of, others)]
    taxes = main_taxes(whole, metric="tpot_p90", reference="ref_safe")
    for config in others:
        tax = taxes.get(config)
        wanted = ("–", "–")
        if tax is not None and tax.interval is not None:
            wanted = (hold_together(with_interval(tax.interval)), f"{tax.n} and {tax.n_plain}")
        assert (found[whole.label_of(config)][1], found[whole.label_of(config)][2]) == wanted


def of_ttft(aggregate: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        t["config"]: t
        for t in aggregate["main_taxes"]
        if (t["metric"], t["reference"]) == ("ttft_p90", "ref_safe")
    }


def over_blocks(aggregate: dict[str, Any]) -> dict[str, Any]:
    for tax in aggregate["main_taxes"]:
        tax |= {"phase": None, "blocks": 4, "kind": "over 4 blocks", "n": 800, "n_plain": 1600}
    return aggregate


def test_what_all_taxes_are_of_is_said_once_above_them(aggregate: dict[str, Any]) -> None:
    table = tax_table(aggregate_of(aggregate))
    assert table.startswith(
        "Taxes of one launch:\n\n| configuration | TTFT p90 | TPOT p90 | requests with it, and with plain | "
    )
    assert table.count("launch") == 1
    table = tax_table(aggregate_of(over_blocks(aggregate)))
    assert table.startswith("Taxes over 4 blocks of launches:\n\n| ") and table.count("launch") == 1
    assert {cells[2] for cells in rows(table).values()} - {"–"} == {"800 and 1,600"}


def test_a_tax_of_another_kind_than_most_says_so(aggregate: dict[str, Any]) -> None:
    """Over other blocks, of one launch, of another launch than Phase A's, at a rate that stands in for none."""
    own = of_ttft(over_blocks(aggregate))
    own["nixl_both"] |= {"blocks": 3, "kind": "over 3 blocks", "n": 600, "n_plain": 1200}
    own["lmcache_only"] |= {"phase": "b", "blocks": None, "kind": "of one launch"}
    table = tax_table(aggregate_of(aggregate))
    assert table.startswith("Taxes over 4 blocks of launches, but for those that say otherwise:\n\n| ")
    found = rows(table)
    assert found["NIXL (both)"][0].endswith("], over 3 blocks of launches")
    assert found["NIXL (both)"][1].endswith("]")
    assert found["NIXL (both)"][2] == "600 and 1,200 of TTFT p90; 800 and 1,600 of TPOT p90"
    assert found["LMCache"][0].endswith("], of one launch, by phase B's launch")
    assert not table.endswith(".")
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    assert tax_table(aggregate_of(aggregate)).endswith("|\n\nReference rates carry: fallback_lowest_rate.")


def test_what_is_not_known_is_a_dash(aggregate: dict[str, Any]) -> None:
    aggregate |= {"main_taxes": [], "attribution": []}
    table = tax_table(aggregate_of(aggregate))
    assert all(cells == ["–"] * 5 for cells in rows(table).values())
    assert table.startswith("| configuration | ")


def test_the_reason_of_a_dash_stands_below_the_table(aggregate: dict[str, Any]) -> None:
    """Of a connector that was measured: one of which requests failed in a block is not one that was skipped."""
    why = "its ttft_p90 has no value in block R1: requests failed or did not finish"
    of_ttft(aggregate)["nixl_both"] |= {
        "point": None,
        "low": None,
        "high": None,
        "available": False,
        "reason": why,
    }
    table = tax_table(aggregate_of(aggregate))
    assert table.endswith(f"|\n\nNIXL (both) has no number of TTFT p90: {why}.")
    assert rows(table)["NIXL (both)"][0] == "–" and rows(table)["NIXL (both)"][2] != "–"


def test_a_name_cannot_end_its_cell(aggregate: dict[str, Any]) -> None:
    aggregate["configs"]["noop_connector"]["label"] = "a | b"
    assert "| a \\| b | " in tax_table(aggregate_of(aggregate))


def test_report_prints_it_and_writes_nothing(
    aggregate: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "aggregate.json").write_text(json.dumps(aggregate))
    assert command("report").call(["--root", str(tmp_path), "--markdown"]) == 0
    assert capsys.readouterr().out == tax_table(aggregate_of(aggregate)) + "\n"
    assert [p.name for p in tmp_path.iterdir()] == ["aggregate.json"]


def test_a_part_of_a_page_is_replaced_and_nothing_else() -> None:
    page = "# Title\n\n<!-- begin taxes x -->\nold\n<!-- end taxes x -->\n\nend\n"
    changed = with_part(page, "taxes x", "new \\1\nlines")
    assert changed == page.replace("old", "new \\1\nlines")
    assert part_of(changed, "taxes x") == "new \\1\nlines"
    assert part_of(changed, "taxes y") is None
    assert with_part("# Title\n", "taxes x", "new").endswith(
        "\n\n<!-- begin taxes x -->\nnew\n<!-- end taxes x -->\n"
    )
