"""What a page claims beside its numbers, each claim no wider than what was measured."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.figures.fig4_tax_bars import draw
from connector_tax.figures.style import Omitted
from connector_tax.report.headline import headline
from connector_tax.stats.time_spent import TimeSpent

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "aggregate_example.json").read_text())


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def test_without_tails_the_page_names_the_taxes_that_it_lacks(aggregate: dict[str, Any]) -> None:
    """Steps may have taxes all the same."""
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["metric"].startswith("step")]
    found = draw(aggregate)
    assert isinstance(found, Omitted)
    assert found.reason == "no tax of TTFT or TPOT p90 is available at either reference rate"
    said = str(headline(aggregate)["sentence"]).replace("\xa0", " ")
    assert said.startswith("No connector's tax on TTFT p90 could be measured at ref_safe (")


def test_the_lowest_rate_in_place_of_a_reference_rate_may_hold_queueing(aggregate: dict[str, Any]) -> None:
    """Requests that failed saturate a cell as well, and queue nowhere."""
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    (flag,) = headline(aggregate)["flags"]
    assert flag.endswith("stands in for the reference rate and the tax may hold queueing")


def test_the_headline_says_what_its_tax_holds(aggregate: dict[str, Any]) -> None:
    where = "copying KV to host memory (LMCache's CPU store)"
    assert not any(where in d for d in headline(aggregate)["details"])
    for tax in aggregate["main_taxes"]:
        if tax["config"] == "mooncake_both":
            tax["holds"] = where
    assert f"The tax holds {where}." in headline(aggregate)["details"]


@pytest.mark.parametrize(("blocks", "words"), [(1, "1 block of"), (2, "2 blocks of")])
def test_time_with_blocks(blocks: int, words: str) -> None:
    by_phase = {"a": 600.0, **{f"r{k}": 60.0 for k in range(1, blocks + 1)}}
    said = TimeSpent(0.0, by_phase, 1 + blocks, 0).sentence()
    assert said.endswith(f" {10 + blocks} min in all, with {words} repeated launches.")
