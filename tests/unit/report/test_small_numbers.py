"""Numbers near zero on the page, and what it calls the parts of a tax."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.report.headline import headline
from connector_tax.read.report.repeats import repeats_view

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_pages import text_of
from whole_aggregate import over_blocks

EXAMPLE = Path(__file__).parents[2] / "data" / "aggregate_example.json"


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return dict(json.loads(EXAMPLE.read_text()))


def said(aggregate: dict[str, Any]) -> str:
    """What a reader sees of the page."""
    page = text_of(aggregate)
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_a_small_tax_does_not_cost_nothing(aggregate: dict[str, Any]) -> None:
    """Its interval excludes zero, and so do the words."""
    for tax in aggregate["main_taxes"]:
        if (tax["config"], tax["reference"], tax["metric"]) == ("mooncake_both", "ref_safe", "ttft_p90"):
            tax |= {"point": 0.0004, "low": 0.0001, "high": 0.0012, "verdict": "tax"}
    sentence = headline(aggregate_of(aggregate)).sentence.replace("\u00a0", " ")
    assert "costs 0.04 % more TTFT p90" in sentence
    assert "interval 0.01 % to 0.1 %" in sentence


def test_a_slope_near_zero_has_no_signed_zero(aggregate: dict[str, Any]) -> None:
    slope = {"point": -0.0016, "low": -0.0096, "high": 0.0042}
    aggregate["repeats"] = [over_blocks(0.0, -0.01, 0.01, host_speed_slope=slope)]
    _, sentence = repeats_view(aggregate_of(aggregate))[0].sentences
    assert sentence.endswith("(slope -0.002 [-0.010, 0.004] on the log scale).")
    slope |= {"low": -0.5, "high": 0.4}
    _, sentence = repeats_view(aggregate_of(aggregate))[0].sentences
    assert sentence.endswith("(slope 0 [-0.50, 0.40] on the log scale).")


def test_the_framework_is_what_the_parts_say_it_is(aggregate: dict[str, Any]) -> None:
    assert "Framework: the no-op connector's tax less its own flags." in said(aggregate)
