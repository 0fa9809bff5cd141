"""The table of taxes for a page: the page's own numbers, and a place that only it fills."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.figures.lookup import configs, interval, main_taxes
from connector_tax.figures.words import with_interval
from connector_tax.report.sections import part_of, with_part
from connector_tax.report.tax_table import tax_table

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "aggregate_example.json").read_text())


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def test_every_configuration_but_plain_has_a_row_with_its_taxes(aggregate: dict[str, Any]) -> None:
    lines = tax_table(aggregate).splitlines()[2:]
    others = [c for c in configs(aggregate) if c.id != "plain"]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [c.label for c in others]
    taxes = main_taxes(aggregate, metric="tpot_p90", reference="ref_safe")
    for config, line in zip(others, lines, strict=True):
        found = interval(taxes.get(config.id))
        assert line.split(" | ")[2] == ("–" if found is None else f"{with_interval(found)}, of one launch")


def test_what_is_not_known_is_a_dash(aggregate: dict[str, Any]) -> None:
    aggregate |= {"main_taxes": [], "attribution": []}
    assert all(line.split(" | ")[1:-1] == ["–"] * 3 for line in tax_table(aggregate).splitlines()[2:])


def test_a_name_cannot_end_its_cell(aggregate: dict[str, Any]) -> None:
    aggregate["configs"]["noop_connector"]["label"] = "a | b"
    assert "| a \\| b | " in tax_table(aggregate)


def test_a_part_of_a_page_is_replaced_and_nothing_else() -> None:
    page = "# Title\n\n<!-- begin taxes x -->\nold\n<!-- end taxes x -->\n\nend\n"
    changed = with_part(page, "taxes x", "new \\1\nlines")
    assert changed == page.replace("old", "new \\1\nlines")
    assert part_of(changed, "taxes x") == "new \\1\nlines"
    assert part_of(changed, "taxes y") is None
    assert with_part("# Title\n", "taxes x", "new").endswith(
        "\n\n<!-- begin taxes x -->\nnew\n<!-- end taxes x -->\n"
    )
