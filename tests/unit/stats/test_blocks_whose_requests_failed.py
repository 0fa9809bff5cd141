"""A block in which a connector's requests failed is no block that was lost: the blocks that are left would flatter."""

import math
from pathlib import Path
from typing import Any

import pytest
from builders import fail
from mutations import Mutation, both
from mutations import lost as lost_cell

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.compare.comparison import Side, compare
from connector_tax.read.compare.text import comparison_text
from connector_tax.read.stats.launches import PLAINS, Launch, blocks_that_failed, complete_blocks, own_blocks

Places = set[tuple[str, str]]


def campaign_with(root: Path, failing: Places, lost: Places, repeats: int = 3) -> dict[str, Any]:
    """``aggregate.json`` of five blocks.

    Args:
        failing: (configuration, phase) of launches in which one in seven requests fails.
        lost: those whose cell at ref_safe is gone.
    """
    return Mutation(
        {"connectors": ["plain", "mooncake_both", "nixl_both"], "repeats": repeats},
        changes={f"{connector}/{phase}": fail(every=7) for connector, phase in failing},
        then=both(*(lost_cell(connector, phase) for connector, phase in lost)),
    ).made(root)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return campaign_with(tmp_path_factory.mktemp("failed") / "campaign", {("mooncake_both", "r1")}, set())


def tax_of(found: dict[str, Any], config: str) -> dict[str, Any]:
    (row,) = [
        t
        for t in found["main_taxes"]
        if (t["config"], t["reference"], t["metric"]) == (config, "ref_safe", "ttft_p90")
    ]
    return row


def test_its_tax_is_unavailable_and_says_in_which_block(failed: dict[str, Any]) -> None:
    """Four sound blocks would be enough for a tax of 30 %; the others keep theirs."""
    own = tax_of(failed, "mooncake_both")
    assert (own["point"], own["verdict"]) == (None, "unavailable")
    assert own["reason"] == "requests_failed" and own["subject"] == ""
    (told,) = [f for f in failed["failed_blocks"] if f["metric"] == "ttft_p90"]
    assert (told["config"], told["blocks"]) == ("mooncake_both", ["r1"])
    h1 = next(h for h in failed["hypotheses"] if h["id"] == "H1" and h["subject"] == "mooncake_both")
    assert h1["outcome"] == "not testable"
    assert h1["missing"] == [{"reason": "requests_failed", "subject": "mooncake_both"}]
    assert tax_of(failed, "nixl_both")["n_blocks"] == 5
    assert {t["config"] for e in failed["repeats"] for t in e["taxes"]} == {"nixl_both"}


@pytest.mark.parametrize(
    ("failing", "lost", "blocks"),
    [
        ({("plain", "r1")}, set(), ["r1"]),
        ({("plain", "r1")}, {("plain_again", "r1")}, ["r1"]),
    ],
    ids=["one block", "a block that is lost as well"],
)  # fmt: skip
def test_where_requests_of_plain_failed_nobody_has_a_tax_and_it_is_said(
    tmp_path: Path, failing: Places, lost: Places, blocks: list[str]
) -> None:
    """Over the other blocks plain would be faster than it is; and of one launch it is not the question that was asked."""
    found = campaign_with(tmp_path / "campaign", failing, lost)
    for config in ("mooncake_both", "nixl_both"):
        own = tax_of(found, config)
        assert (own["point"], own["verdict"]) == (None, "unavailable")
        assert (own["reason"], own["subject"]) == ("requests_failed", "plain")
    assert found["repeats"] == []
    told = [(f["reference"], f["metric"], f["config"], f["blocks"]) for f in found["failed_blocks"]]
    assert ("ref_safe", "ttft_p90", "plain", blocks) in told
    assert "few_blocks" not in {p["code"] for p in found["problems"]}
    assert {h["outcome"] for h in found["hypotheses"] if h["id"] == "H1"} == {"not testable"}


def one_of_two(found: dict[str, Any], launch: str) -> None:
    """Whose tax of one launch stood: it has none, and every place says which launch failed."""
    own = tax_of(found, "mooncake_both")
    assert (own["point"], own["n_blocks"], own["reason"]) == (None, 1, "requests_failed")
    h1 = next(h for h in found["hypotheses"] if h["id"] == "H1" and h["subject"] == "mooncake_both")
    assert h1["outcome"] == "not testable"
    (told,) = [f for f in found["failed_blocks"] if f["metric"] == "ttft_p90"]
    assert (told["reference"], told["config"], told["blocks"]) == ("ref_safe", "mooncake_both", [launch])
    row = next(r for r in found["connectors"] if r["config"] == "mooncake_both")
    assert row["reason"] == {"code": "requests_failed", "subject": "mooncake_both"}


def test_without_blocks_phase_bs_launch_is_one_as_well(tmp_path: Path) -> None:
    found = campaign_with(tmp_path / "campaign", {("mooncake_both", "b")}, set(), repeats=0)
    one_of_two(found, "b")
    assert tax_of(found, "nixl_both")["n_blocks"] == 1


def test_of_a_single_launch_its_own_reason_is_all_there_is_to_say() -> None:
    """Nothing is left that could flatter."""
    launches = {("a", "x"): Launch("a", "x", 0, math.nan, math.nan, why_none="requests failed")}
    assert blocks_that_failed(launches) == {}
    launches["b_prime", "x"] = Launch("b_prime", "x", 1, 0.0, 0.01)
    assert list(blocks_that_failed(launches)) == ["x"]


def test_a_launch_of_which_nothing_is_known_is_a_lost_block() -> None:
    """Too few answers of more than one token have no TPOT, and none of them failed."""
    launches = {(f"r{b}", c): Launch(f"r{b}", c, b, 0.0, 0.01) for b in range(1, 6) for c in (*PLAINS, "x")}
    launches["r1", "x"] = Launch("r1", "x", 1, math.nan, math.nan)
    assert own_blocks(launches, complete_blocks(launches)) == {"x": ["r2", "r3", "r4", "r5"]}
    launches["r1", "x"] = Launch("r1", "x", 1, math.nan, math.nan, why_none="requests failed")
    assert own_blocks(launches, complete_blocks(launches)) == {}


def test_a_connector_whose_requests_failed_has_none_where_plain_was_lost_in_that_block(
    tmp_path: Path,
) -> None:
    found = campaign_with(tmp_path / "campaign", {("mooncake_both", "r1")}, {("plain_again", "r1")})
    own = tax_of(found, "mooncake_both")
    assert (own["point"], own["reason"]) == (None, "requests_failed")
    assert tax_of(found, "nixl_both")["n_blocks"] == 4
    assert [f["config"] for f in found["failed_blocks"] if f["metric"] == "ttft_p90"] == ["mooncake_both"]


def test_compare_refuses_and_says_why(failed: dict[str, Any], tmp_path: Path) -> None:
    found = campaign_with(tmp_path / "campaign", {("plain", "r1")}, set())
    sides = (Side("A", Path("a"), aggregate_of(failed)), Side("B", Path("b"), aggregate_of(found)))
    comparison = compare(*sides, fail_above=0.05, deciding=("ttft_p90",))
    assert comparison.exit_code == 2
    assert "plain: requests failed or did not finish" in comparison_text(comparison).splitlines()[-1]
