"""Of whom the headline speaks where Mooncake has no tax."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.report.headline import headline

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"


@pytest.fixture
def aggregate() -> dict[str, Any]:
    """Without Mooncake by itself and stacked: NIXL +34 %, then the producer, LMCache and the no-op connector."""
    found: dict[str, Any] = json.loads(EXAMPLE.read_text())
    gone = ("mooncake_both", "multi_mooncake_lmcache")
    found["main_taxes"] = [t for t in found["main_taxes"] if t["config"] not in gone]
    return found


def set_tax(aggregate: dict[str, Any], config: str, point: float, low: float, high: float, blocks: int | None = None) -> None:  # fmt: skip
    """Of TTFT p90 at ref_safe."""
    (row,) = [
        t
        for t in aggregate["main_taxes"]
        if (t["config"], t["reference"], t["metric"]) == (config, "ref_safe", "ttft_p90")
    ]
    row |= {"point": point, "low": low, "high": high, "blocks": blocks}
    row |= {"kind": "of one launch" if blocks is None else f"over {blocks} blocks"}


def test_it_is_the_largest_tax(aggregate: dict[str, Any]) -> None:
    found = headline(aggregate_of(aggregate))
    assert found.sentence.startswith("Merely switching on NIXL (both) costs")
    assert found.details[-1].startswith(
        "Of the connectors that have a tax this one has the largest; mooncake_both"
    )


def test_an_estimate_over_blocks_counts_before_one_of_one_launch(aggregate: dict[str, Any]) -> None:
    set_tax(aggregate, "lmcache_only", 0.05, 0.03, 0.07, blocks=5)
    set_tax(aggregate, "noop_connector", 0.02, 0.01, 0.03, blocks=5)
    found = headline(aggregate_of(aggregate))
    assert found.sentence.startswith("Merely switching on LMCache costs 5.0\xa0% more TTFT p90")
    assert found.details[0].startswith("Over 5 blocks of launches it compares ")
    assert " Phase A's launch alone: " in found.details[0]
    assert found.details[-1].startswith(
        "Of the connectors that have a tax over blocks this one has the largest;"
    )


def test_a_tax_that_is_told_apart_from_zero_counts_before_a_larger_one_that_is_not(
    aggregate: dict[str, Any],
) -> None:
    set_tax(aggregate, "lmcache_only", 0.60, -0.20, 1.50)
    assert headline(aggregate_of(aggregate)).sentence.startswith("Merely switching on NIXL (both) costs")
    for config in ("nixl_both", "mooncake_producer", "noop_connector"):
        set_tax(aggregate, config, 0.01, -0.02, 0.04)
    found = headline(aggregate_of(aggregate))
    assert found.sentence.startswith(
        "LMCache: whether it has a tax on TTFT p90 at ref_safe (2\xa0req/s) is not resolved here;"
    )
    assert found.details[-1].startswith(
        "No connector is found to have a tax, and of the estimates this is the largest;"
    )


def test_where_gains_are_told_apart_and_no_tax_is_the_smallest_gain_is_named(
    aggregate: dict[str, Any],
) -> None:
    """A gain is told apart from zero as well, and is no largest tax."""
    for config in ("mooncake_producer", "noop_connector"):
        aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] != config]
    set_tax(aggregate, "nixl_both", -0.10, -0.12, -0.08)
    set_tax(aggregate, "lmcache_only", -0.20, -0.22, -0.18)
    found = headline(aggregate_of(aggregate))
    assert found.sentence.startswith("With NIXL (both) switched on TTFT p90 at ref_safe")
    none = "No connector is found to have a tax, and "
    assert found.details[-1].startswith(f"{none}of the gains this is the smallest; mooncake_both")
    set_tax(aggregate, "lmcache_only", -0.20, -0.42, 0.18)
    assert (
        headline(aggregate_of(aggregate))
        .details[-1]
        .startswith(f"{none}this is the only gain; mooncake_both")
    )
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] != "lmcache_only"]
    set_tax(aggregate, "nixl_both", -0.10, -0.32, 0.08)
    assert (
        headline(aggregate_of(aggregate))
        .details[-1]
        .startswith("No connector is found to have a tax; mooncake_both")
    )


def test_the_only_tax_is_so_beside_gains(aggregate: dict[str, Any]) -> None:
    for config in ("mooncake_producer", "noop_connector", "lmcache_only"):
        set_tax(aggregate, config, -0.20, -0.22, -0.18)
    assert (
        headline(aggregate_of(aggregate))
        .details[-1]
        .startswith("No other connector is found to have a tax; ")
    )


def test_plain_with_a_connectors_settings_is_no_connector(aggregate: dict[str, Any]) -> None:
    own = [t for t in aggregate["main_taxes"] if t["config"] == "nixl_both"]
    aggregate["main_taxes"] += [
        {**t, "config": "plain_matched_nixl_both", "point": t["point"] + 1, "high": t["high"] + 1}
        for t in own
    ]
    assert headline(aggregate_of(aggregate)).sentence.startswith("Merely switching on NIXL (both) costs")


def test_plain_with_a_connectors_settings_is_no_subject(aggregate: dict[str, Any]) -> None:
    """Of NIXL's settings alone there is a number, over blocks and larger than any: it is no connector's tax."""
    (row,) = [
        t
        for t in aggregate["main_taxes"]
        if (t["config"], t["reference"], t["metric"]) == ("nixl_both", "ref_safe", "ttft_p90")
    ]
    baseline = row | {
        "config": "plain_matched_nixl_both",
        "point": 9.0,
        "low": 8.0,
        "high": 10.0,
        "blocks": 5,
        "kind": "over 5 blocks",
    }
    aggregate["configs"]["plain_matched_nixl_both"] = {
        "label": "plain as NIXL",
        "status": "measured",
        "reason": None,
    }
    aggregate["main_taxes"].append(baseline)
    found = headline(aggregate_of(aggregate))
    assert found.sentence.startswith("Merely switching on NIXL (both) costs")
    assert not any("plain as NIXL" in d for d in found.details)
    aggregate["main_taxes"] = [baseline]
    assert headline(aggregate_of(aggregate)).sentence.startswith(
        "No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape ("
    )
