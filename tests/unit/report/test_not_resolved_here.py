"""A ratio whose interval holds zero and is wider than 100 points: neither a tax nor "no tax found", in every place that says which."""

import copy
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import MainTaxRow, aggregate_of
from connector_tax.read.report.headline import headline
from connector_tax.read.report.tax_text import tax_text

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from made_pages import text_of, view_of
from whole_aggregate import typed

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
WIDE = {"point": 0.3, "low": -0.4, "high": 0.9, "verdict": "no_tax_found"}
NARROW = {"point": 0.3, "low": -0.2, "high": 0.8, "verdict": "no_tax_found"}
WHAT_IT_MEANS = (
    "Not resolved here: the interval holds zero and is wider than 100 percentage points. connector-tax rehearse --earlier "
    "says, of a campaign with blocks of launches, how large a tax has to be for so many blocks to find it."
)


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def words(aggregate: dict[str, Any]) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text_of(aggregate).partition("<body>")[2])).split())


def tax_of(aggregate: dict[str, Any], rows: str, **keys: str) -> dict[str, Any]:
    found: dict[str, Any] = next(t for t in aggregate[rows] if all(t[k] == v for k, v in keys.items()))
    return found


def test_a_table_says_it_of_wide_intervals_alone(aggregate: dict[str, Any]) -> None:
    tax = tax_of(aggregate, "main_taxes", metric="ttft_p90", reference="ref_safe")
    assert tax_text(typed(tax, MainTaxRow, **WIDE)).verdict == "not resolved here, of one launch"
    assert tax_text(typed(tax, MainTaxRow, **NARROW)).verdict == "no tax found, of one launch"
    step = tax_of(aggregate, "main_taxes", metric="step_p50_us", reference="ref_safe")
    wide = typed(step, MainTaxRow, point=30.0, low=-40.0, high=90.0, verdict="no_tax_found")
    assert tax_text(wide).verdict == "no tax found, of one launch"


@pytest.mark.parametrize("rows", ["main_taxes", "taxes"])
def test_what_it_means_is_said_where_a_table_says_it(rows: str, aggregate: dict[str, Any]) -> None:
    """Also where only a shape of Phase B has such a tax."""
    phase = {} if rows == "main_taxes" else {"phase": "b"}
    tax = tax_of(aggregate, rows, metric="ttft_p90", reference="ref_safe", **phase)
    tax |= NARROW
    assert WHAT_IT_MEANS not in words(aggregate)
    tax |= WIDE
    assert WHAT_IT_MEANS in words(aggregate)


def test_the_headline_says_it(aggregate: dict[str, Any]) -> None:
    tax = tax_of(aggregate, "main_taxes", metric="ttft_p90", reference="ref_safe", config="mooncake_both")
    tax |= NARROW
    assert headline(aggregate_of(aggregate)).sentence.startswith(
        "Mooncake (both): no tax on TTFT p90 is found"
    )
    tax |= WIDE
    found = headline(aggregate_of(aggregate))
    assert "Mooncake (both): whether it has a tax on TTFT p90 at ref_safe" in found.sentence
    assert "is not resolved here; the estimate is +30" in found.sentence
    assert any("not resolved here, since the interval is wider than 100 points" in d for d in found.details)


def test_repeated_launches_say_it(aggregate: dict[str, Any]) -> None:
    tax = {
        "config": "nixl_both",
        "kind": "over 4 blocks",
        "n": 4,
        "sd": 0.1,
        "by_block": {"a": 0.1, "b": 0.2, "r1": 0.3, "r2": 0.4},
    }
    tax |= {"adjusted": None, "at_equal_host_speed": None}
    entry = {
        "metric": "ttft_p90", "reference": "ref_safe", "rate_per_s": 2.0, "blocks": 4, "between_launch_sd": 0.0, "within_launch_sd": 0.0, "requests": 80.0, "drift": None, "host_speed_slope": None, "between_launches": None,
        "noise_floor": {"point": 0.0, "low": -0.1, "high": 0.1, "n": 4, "half_width": 0.1, "found_4_of_5": None, "at_equal_host_speed": None},
    }  # fmt: skip
    for value, verdict in ((WIDE, "not resolved here"), (NARROW, "no tax found")):
        aggregate["repeats"] = [entry | {"taxes": [tax | value]}]
        rows = view_of(aggregate).blocks[0].rows
        assert next(r for r in rows if r.label == "NIXL (both)").verdict == verdict
