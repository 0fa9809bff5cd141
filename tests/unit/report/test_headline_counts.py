"""The page's first lines count all connectors, and name what is missing where there is no tax at all."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_pages import text_of

EXAMPLE = Path(__file__).parents[2] / "data" / "aggregate_example.json"


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return json.loads(EXAMPLE.read_text())


def said(aggregate: dict[str, Any]) -> str:
    text = text_of(aggregate)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_all_connectors_are_counted_beside_the_headline(aggregate: dict[str, Any]) -> None:
    """The subject's tax is one of several, and others may gain."""
    for tax in aggregate["main_taxes"]:
        half = 0.05 if tax["config"] in ("mooncake_both", "nixl_both") else 0.45
        tax |= {"point": 0.2 if tax["config"] == "mooncake_both" else -0.2}
        tax |= {"low": tax["point"] - half, "high": tax["point"] + half}
    assert (
        "TTFT p90 at ref_safe (2 req/s): a tax for 1 of 7 connectors, Mooncake (both) with +20 % [+15 %, +25 %]; "
        "a gain for 1 of 7 connectors, NIXL (both) with −20 % [−25 %, −15 %]; no difference is found for 4; "
        "one without a number, Mooncake (consumer). Of one launch each"
    ) in said(aggregate)


def test_without_plain_the_headline_says_that_it_is_plain(aggregate: dict[str, Any]) -> None:
    aggregate["main_taxes"] = []
    aggregate["configs"]["plain"] |= {"status": "failed", "reason": "it died"}
    assert (
        "No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape (plain failed: it died)."
        in said(aggregate)
    )


def test_the_two_parts_have_intervals_counts_and_kinds(aggregate: dict[str, Any]) -> None:
    launch = {"n": 57, "kind": "of one launch"}
    parts = {
        "total": (1900.0, 1810.0, 1990.0),
        "framework": (120.0, 30.0, 210.0),
        "rest": (1780.0, 1700.0, 1860.0),
    }
    row = {k: dict(zip(("point", "low", "high"), v, strict=True)) | launch for k, v in parts.items()}
    aggregate["two_parts"] = [{"config": "mooncake_both", "metric": "step_p50_us", "unit": "us", **row}]
    assert (
        "Mooncake (both) median step +1,900 µs [+1,810 µs, +1,990 µs] n 57, of one launch +120 µs [+30 µs, +210 µs] n 57, of one launch "
        "+1,780 µs [+1,700 µs, +1,860 µs] n 57, of one launch" in said(aggregate)
    )
