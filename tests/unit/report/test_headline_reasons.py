"""What the first lines say of an estimate that decides nothing, of kinds, of who has no number, and of the largest tax."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.report.device import device_banner
from connector_tax.read.report.headline import headline
from connector_tax.read.report.qualifiers import FLAG_MEANINGS

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from virtual_gpus import CLOCK, IDENTITY

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
NOTHING = {"point": None, "low": None, "high": None}


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def own(aggregate: dict[str, Any], config: str, metric: str = "ttft_p90", reference: str = "ref_safe") -> dict[str, Any]:  # fmt: skip
    keys = (config, metric, reference)
    found: dict[str, Any] = next(t for t in aggregate["main_taxes"] if (t["config"], t["metric"], t["reference"]) == keys)  # fmt: skip
    return found


def first(aggregate: dict[str, Any]) -> str:
    return str(headline(aggregate_of(aggregate)).sentence).replace("\xa0", " ")


def details(aggregate: dict[str, Any]) -> list[str]:
    return [str(d).replace("\xa0", " ") for d in headline(aggregate_of(aggregate)).details]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.04, 0.8, "no tax on TTFT p90 is found at ref_safe (2 req/s); the estimate is +39 % [−4.0 %, +80 %]"),
        (-0.04, None, "is not known; the estimate is +39 % [−4.0 %, no upper bound]"),
    ],
    ids=["none found", "open"],
)  # fmt: skip
@pytest.mark.parametrize("blocks", [None, 4])
def test_an_estimate_that_decides_nothing_has_its_confidence_and_its_kind(
    low: float, high: float | None, words: str, blocks: int | None, aggregate: dict[str, Any]
) -> None:
    kind = "of one launch" if blocks is None else "over 4 blocks"
    own(aggregate, "mooncake_both").update(point=0.39, low=low, high=high, blocks=blocks, kind=kind)
    of = "of one launch" if blocks is None else "over 4 blocks of launches"
    assert f"{words} (95 % interval, {of})." in first(aggregate)


def test_a_gain_has_them_as_well(aggregate: dict[str, Any]) -> None:
    own(aggregate, "mooncake_both").update(point=-0.2, low=-0.3, high=-0.1)
    assert "is lower: −20 % [−30 %, −10 %] (95 % interval, of one launch)." in first(aggregate)


def test_every_number_over_blocks_says_over_how_many(aggregate: dict[str, Any]) -> None:
    """The reference rates need not have as many."""
    for reference, blocks in (("ref_safe", 4), ("ref_load", 3)):
        for metric in ("ttft_p90", "tpot_p90"):
            own(aggregate, "mooncake_both", metric, reference).update(blocks=blocks, kind=f"over {blocks} blocks")  # fmt: skip
    assert "% to 45 %, over 4 blocks of launches." in first(aggregate)
    (tpot,) = [d for d in details(aggregate) if d.startswith("TPOT p90: ")]
    (load,) = [d for d in details(aggregate) if d.startswith("TTFT p90 at ref_load")]
    assert tpot.endswith("], n 200 and 200, over 4 blocks of launches.")
    assert load.endswith("], n 240 and 240, over 3 blocks of launches.")


def test_who_has_no_number_is_said_in_a_sentence(aggregate: dict[str, Any]) -> None:
    own(aggregate, "nixl_both").update(NOTHING, reason="requests failed in block R1")
    assert first(aggregate).endswith(" NIXL (both) has no number: requests failed in block R1.")
    aggregate["configs"]["nixl_both"].update(status="missing", reason="not measured yet")
    aggregate["main_taxes"].remove(own(aggregate, "nixl_both"))
    assert first(aggregate).endswith(" NIXL (both) has no number: it was not measured yet.")
    aggregate["main_taxes"].remove(own(aggregate, "lmcache_only"))
    aggregate["configs"]["lmcache_only"].update(status="missing", reason="not measured yet")
    assert first(aggregate).endswith(" NIXL (both) and LMCache have no number: not measured yet.")


def test_why_the_usual_connector_is_not_the_subject_is_its_taxs_own_reason(aggregate: dict[str, Any]) -> None:
    """Its configuration says less: it was measured."""
    for tax in aggregate["main_taxes"]:
        if tax["config"] == "mooncake_both":
            tax |= NOTHING | {"reason": "requests failed in block R1"}
    details = headline(aggregate_of(aggregate)).details
    assert any(d.endswith("; mooncake_both has no number (requests failed in block R1).") for d in details)
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] != "mooncake_both"]
    aggregate["configs"]["mooncake_both"] |= {"status": "skipped", "reason": "skipped: no module"}
    assert any(
        d.endswith("; mooncake_both was skipped: no module.")
        for d in headline(aggregate_of(aggregate)).details
    )


def test_where_nobody_has_a_number_each_has_its_reason(aggregate: dict[str, Any]) -> None:
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] == "lmcache_only"]
    for tax in aggregate["main_taxes"]:
        tax |= NOTHING | {"reason": "its cell of phase A is lost: gone"}
    for config, value in aggregate["configs"].items():
        if config not in ("plain", "lmcache_only"):
            value |= {"status": "skipped", "reason": "skipped: its module cannot be imported"}
    assert first(aggregate) == (
        "No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape (no-op connector, Mooncake (producer), Mooncake (consumer), "
        "Mooncake (both), NIXL (both) and Mooncake + LMCache, each: skipped: its module cannot be imported; LMCache: its cell of phase A "
        "is lost: gone)."
    )


def test_the_only_tax_is_not_called_the_largest(aggregate: dict[str, Any]) -> None:
    for tax in aggregate["main_taxes"]:
        if tax["config"] != "nixl_both":
            tax |= {"low": -1.0, "high": 1.0}
    aggregate["main_taxes"].remove(own(aggregate, "mooncake_both"))
    assert details(aggregate)[-1].startswith("No other connector is found to have a tax; mooncake_both ")
    own(aggregate, "lmcache_only").update(point=0.1, low=0.05, high=0.15)
    assert details(aggregate)[-1].startswith("Of the connectors that have a tax this one has the largest; ")


def test_a_clock_that_waited_says_so_in_plain_words(aggregate: dict[str, Any]) -> None:
    aggregate["provenance"] |= {"engine_kind": "virtual_gpu", "virtual_gpu": IDENTITY}
    for cell in aggregate["cells"]:
        cell["health"] = {
            "device_clock": {**CLOCK, "late_share": 0.01, "slack_us": {"p10": -62736.0, "p50": 5.0}}
        }
    assert device_banner(aggregate_of(aggregate))[-1].endswith(
        "; in the cell with the least to spare, the device waited for the host in one step of ten, by 62,736 µs or more."
    )


def test_flags_read_plainly() -> None:
    assert FLAG_MEANINGS["hook_times_unknown"].startswith(
        "step timing recorded no hooks of the connector in the worker, or none anywhere"
    )
