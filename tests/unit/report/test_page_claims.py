"""What a page claims beside its numbers, each claim no wider than what was measured."""

import copy
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.fig4_tax_bars import draw
from connector_tax.read.figures.style import Omitted
from connector_tax.read.report.headline import headline
from connector_tax.read.stats.time_spent import TimeSpent

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_pages import text_of

EXAMPLE = json.loads((Path(__file__).parents[2] / "data" / "aggregate_example.json").read_text())


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def said(aggregate: dict[str, Any]) -> str:
    text = text_of(aggregate)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_without_tails_the_page_names_the_taxes_that_it_lacks(aggregate: dict[str, Any]) -> None:
    """Steps may have taxes all the same."""
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["metric"].startswith("step")]
    found = draw(aggregate_of(aggregate))
    assert isinstance(found, Omitted)
    assert (
        found.reason == "no tax of TTFT or TPOT p90 is available at either reference rate and Phase A's shape"
    )
    first = str(headline(aggregate_of(aggregate)).sentence).replace("\xa0", " ")
    assert first.startswith(
        "No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape ("
    )


def test_the_lowest_rate_in_place_of_a_reference_rate_may_hold_queueing(aggregate: dict[str, Any]) -> None:
    """Requests that failed saturate a cell as well, and queue nowhere."""
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    (flag,) = headline(aggregate_of(aggregate)).flags
    assert flag.endswith("; plain's lowest rate stands in for ref_safe, and the tax may hold queueing")


def test_the_headline_says_what_its_tax_holds(aggregate: dict[str, Any]) -> None:
    where = "copying KV to host memory (LMCache's CPU store)"
    assert not any(where in d for d in headline(aggregate_of(aggregate)).details)
    for tax in aggregate["main_taxes"]:
        if tax["config"] == "mooncake_both":
            tax["holds"] = where
    assert f"The tax holds {where}." in headline(aggregate_of(aggregate)).details


@pytest.mark.parametrize(("blocks", "words"), [(1, "1 block of"), (2, "2 blocks of")])
def test_time_with_blocks(blocks: int, words: str) -> None:
    by_phase = {"a": 600.0, **{f"r{k}": 60.0 for k in range(1, blocks + 1)}}
    words_of_it = TimeSpent(0.0, by_phase, 1 + blocks, 0).sentence()
    assert words_of_it.endswith(
        f" With {words} repeated launches, which took {blocks} min 00 s, it is {10 + blocks} min 00 s."
    )


def test_a_shorter_wait_for_the_device_is_not_said_to_make_hooks_free(aggregate: dict[str, Any]) -> None:
    """A step may be longer all the same, and a part that is not told apart from zero says nothing."""
    assert (
        "Where between the two is negative and told apart from zero, the engine waited less for the device than plain's did: "
        "part of the hooks' time ran while the device was busy. Where it is further below zero than the hooks take, "
        "the device was done sooner." in said(aggregate)
    )
    assert "no step longer" not in said(aggregate)


def test_what_recording_costs_is_left_to_its_rows(aggregate: dict[str, Any]) -> None:
    """Each with its n; which phase, and of how many launches, stands above them."""
    value = {"point": 0.05, "low": 0.02, "high": 0.08, "n": 196}
    aggregate["observer_effect"] = [
        {
            "config": c,
            "metric": "tpot_p50",
            "rate_per_s": 2.0,
            "effect": value,
            "tax": tax,
            "tax_unrecorded": tax,
        }
        for c, tax in (("plain", None), ("nixl_both", value | {"n": 190}))
    ]
    text = said(aggregate)
    assert "In Phase B each launch measures Phase A's shape in one cell with the step recorder" in text
    assert "so each number is of one launch" in text
    assert "The recorder may cost a connector with hooks more than it costs plain" in text
    number = "+5.0 % [+2.0 %, +8.0 %] n"
    assert f"plain vLLM TPOT p50 {number} 196 – –" in text
    assert f"NIXL (both) TPOT p50 {number} 196 {number} 190 {number} 190" in text


def test_a_virtual_gpu_tells_transfers_from_copies_that_are_clocked(aggregate: dict[str, Any]) -> None:
    aggregate["provenance"] |= {"engine_kind": "virtual_gpu", "virtual_gpu": {"name": "NVIDIA H200"}}
    text = said(aggregate)
    assert "It cannot show kernels, memory traffic, transfers of KV between devices, what CUDA graphs" in text
    assert (
        "Copies of KV between the device and its host are clocked by stand-ins where a connector makes"
        in text
    )


def test_the_configurations_table_leaves_no_cell_uncounted(aggregate: dict[str, Any]) -> None:
    """Plain's second launches are no configuration."""
    assert "second launches (plain_again)" not in said(aggregate)
    cell = next(c for c in aggregate["cells"] if c["config"] == "plain")
    aggregate["cells"] += [
        cell | {"config": "plain_again", "verdict": v, "usable": v == "valid"}
        for v in ("valid", "valid", "invalid")
    ]
    assert "Plain's second launches (plain_again) have no row: 2 of 3 cells usable." in said(aggregate)
    counts = re.findall(r"(\d+) of (\d+) (?:cells )?usable", said(aggregate))
    assert sum(int(n) for _, n in counts) == len(aggregate["cells"])
