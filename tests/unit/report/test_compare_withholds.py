"""What leaves open whether a tax rose: then there is no verdict, and no exit code that a CI would take for one."""

from dataclasses import replace

import pytest
from two_campaigns import Aggregate, change_of, compared, lose, over_blocks, set_tax, two_days

from connector_tax.read.compare.text import comparison_document, comparison_text, sentence


@pytest.fixture
def pair() -> tuple[Aggregate, Aggregate]:
    return two_days()


def test_taxes_over_blocks_are_compared_with_their_like(pair: tuple[Aggregate, Aggregate]) -> None:
    """Their intervals hold what launches differ by."""
    for value, point, n in zip(pair, (0.30, 0.40), (5, 4), strict=True):
        set_tax(value, point, point - 0.08, point + 0.08)
        over_blocks(value, n)
    found = compared(*pair)
    value = change_of(found).change
    assert value is not None and value.low == pytest.approx(0.1 - 0.08 * 2**0.5)
    assert found.exit_code == 0
    (row,) = [c for c in found.changes if (c.config, c.metric) == ("mooncake_both", "ttft_p90")]  # fmt: skip
    assert [row.a.n_blocks, row.b.n_blocks] == [5, 4]


def test_one_launch_is_not_compared_with_blocks_of_launches(pair: tuple[Aggregate, Aggregate]) -> None:
    """The interval of one launch lacks what launches differ by, so there is no verdict either."""
    set_tax(pair[1], 0.9, 0.85, 0.95)
    over_blocks(pair[0], 5, "mooncake_both")
    found = compared(*pair)
    change = change_of(found)
    assert (change.change, change.word, found.exit_code) == (None, "not available", 2)
    assert "(over 5 blocks in A, of one launch in B)" in comparison_text(found)
    assert replace(found, allow_missing=True).exit_code == 0


def test_where_ref_safe_differs_a_rate_is_taken_at_which_both_have_one_kind(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    """A's ref_safe is 4, B's 2, and both have blocks at their own: at 1 req/s both have Phase A's launch."""
    a, b = pair
    a["reference_rates"]["ref_safe_per_s"] = 4
    for value, own in zip(pair, (4, 2), strict=True):
        lower = [
            {**t, "rate_per_s": 1, "reference": "neither"}
            for t in value["main_taxes"]
            if t["rate_per_s"] == 2
        ]
        for tax in value["main_taxes"]:
            if tax["unit"] == "ratio" and tax["rate_per_s"] == own:
                tax |= {"phase": None, "n_blocks": 5}
        value["main_taxes"] += lower
    found = compared(a, b)
    assert (found.rate.per_s, found.exit_code) == (1, 0)
    assert "compared at 1 req/s, the highest rate that is healthy in both and has" in found.rate.sentence
    for value in pair:
        value["main_taxes"] = [t for t in value["main_taxes"] if t["rate_per_s"] != 1]
    found = compared(a, b)
    assert (found.rate.per_s, found.exit_code) == (2, 2)


@pytest.mark.parametrize(("low", "high"), [(None, 0.49), (0.30, None), (None, None)])
def test_a_change_without_a_bound_withholds_the_verdict(
    pair: tuple[Aggregate, Aggregate], low: float | None, high: float | None
) -> None:
    """It may have risen by more than is known; a regression that is found is one all the same."""
    set_tax(pair[0], 0.30, 0.25, 0.36)
    set_tax(pair[1], 0.42, low, high)
    found = compared(*pair)
    assert (found.exit_code, replace(found, allow_missing=True).exit_code) == (2, 2)
    assert comparison_document(found)["verdict"] == "not comparable"
    assert "Changes without a bound: TTFT p90 of mooncake_both by +12 pp" in sentence(found)
    set_tax(pair[1], 0.9, 0.85, 0.95, config="nixl_both")
    assert compared(*pair).exit_code == 1


def test_a_tax_that_neither_has_withholds_the_verdict(pair: tuple[Aggregate, Aggregate]) -> None:
    for value in pair:
        lose(value, "mooncake_both", "ttft_p90", "p90 falls on requests that failed")
    assert compared(*pair).exit_code == 2
    for value in pair:
        value["configs"]["mooncake_both"]["ttft_is_no_tax"] = "it fakes cache hits"
    found = compared(*pair)
    assert found.exit_code == 0, "where a TTFT is no tax there is nothing to compare"
    assert "ttft_p90" not in {c.metric for c in found.changes if c.config == "mooncake_both"}


def test_settings_that_shape_a_measurement_are_compared_by_name(pair: tuple[Aggregate, Aggregate]) -> None:
    """One of a connector only where both measured it: that it is in one alone is said elsewhere."""
    a, b = (value["provenance"]["settings"] for value in pair)
    a["cell"] |= {"arrival": "fixed", "min_completed": 40}
    b["cell"] |= {"arrival": "poisson"}
    b["connectors"]["mooncake_both"] = {"kv_transfer_config": {"kv_role": "kv_producer"}}
    b["connectors"]["new"] = {"env": {"X": "1"}}
    pair[1]["provenance"] |= {"config_hash": "1" * 16, "seed": 7, "arrival": "poisson"}
    text = comparison_text(compared(*pair))
    for line in (
        "settings.cell.arrival: fixed / poisson",
        "settings.cell.min_completed: 40 / 200",
        "settings.connectors.mooncake_both.kv_transfer_config.kv_role: - / kv_producer",
        "seed: 20260526 / 7",
    ):
        assert f"  {line}\n" in text
    assert "config hash" not in text and "connectors.new" not in text
