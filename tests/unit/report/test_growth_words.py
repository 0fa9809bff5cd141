"""Phase D and the prior on the page."""

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
    value: dict[str, Any] = json.loads(EXAMPLE.read_text())
    return value


def words(aggregate: dict[str, Any]) -> str:
    """What a reader sees of the page."""
    page = text_of(aggregate)
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def _growing(point: float, low: float, high: float) -> dict[str, Any]:
    """Phase D of one connector whose hooks together grow like that."""
    value = {"point": point, "low": low, "high": high, "n": 12}
    unknown = {
        "point": None,
        "low": None,
        "high": None,
        "n": 12,
        "reason": "all cells lie at one value of it",
    }
    cell = {"cell_id": "c8_128x256_k60000", "concurrency": 8, "running": 8.0, "cached_tokens_wanted": 60000}
    cell |= {"cached_blocks": 4012.4, "medians_us": {"connector_total_us": {**value, "point": 512.0}}}
    cell |= {"p50_taxes": {"ttft_p50": {**value, "point": 0.031, "low": 0.01, "high": 0.05}}}
    slopes = {"n_cells": 12, "cached_blocks": [120.0, 12000.0], "running": [8.0, 8.0]}
    slopes |= {"per_1000_cached_blocks": value, "per_running_request": unknown}
    return {
        "config": "mooncake_both",
        "cells": [cell],
        "slopes": [{"quantity": "connector_total_us", **slopes}],
    }


def test_what_grows_with_the_cache_stands_on_the_page_with_its_interval(aggregate: dict[str, Any]) -> None:
    assert "By cached blocks and running requests" not in words(aggregate)
    aggregate["growth"] = [_growing(81.0, 74.2, 87.8)]
    text = words(aggregate)
    assert (
        "its hooks take longer the more is cached, by +81 µs [+74.2, +87.8] per 1,000 blocks and step, over 120 to 12,000 blocks."
        in text
    )
    assert (
        "all hooks together +81 µs [+74.2, +87.8] not available: all cells lie at one value of it 12" in text
    )
    assert "4,012 8 +512 µs" in text
    assert "+3.1 % [+1.0 %, +5.0 %]" in text


def test_hooks_that_do_not_grow_say_how_much_growth_is_excluded(aggregate: dict[str, Any]) -> None:
    aggregate["growth"] = [_growing(-0.7, -1.9, 0.5)]
    text = words(aggregate)
    assert (
        "no growth of its hooks with what is cached was found; more than 1.9 µs per 1,000 blocks is excluded."
        in text
    )


def test_the_standing_of_the_prior_is_told_beside_the_verdicts(aggregate: dict[str, Any]) -> None:
    """And nowhere where neither H1 nor H2 was judged."""
    text = words(aggregate)
    assert "Plain itself took 63 % longer than the first time" in text
    assert text.index("the number they were taken from did not repeat") < text.index(
        "Against plain at the same rate"
    )
    aggregate["hypotheses"] = [h for h in aggregate["hypotheses"] if h["id"] not in ("H1", "H2")]
    assert "did not repeat" not in words(aggregate)


def test_what_arithmetic_leaves_of_a_slope_is_nothing(aggregate: dict[str, Any]) -> None:
    """A hook that takes the same in every step, to the last digit."""
    aggregate["growth"] = [_growing(-5.6e-16, -6.3e-15, 5.2e-15)]
    text = words(aggregate)
    assert "all hooks together 0 µs [0, 0]" in text
    assert "more than 0.01 µs per 1,000 blocks is excluded." in text
