"""The last line gets quoted without the rest: it says what its intervals hold, what qualifies them, and what nobody could judge."""

from dataclasses import replace

import pytest
from two_campaigns import Aggregate, compared, over_blocks, rows, set_tax, two_days

from connector_tax.read.compare.comparison import InNeither
from connector_tax.read.compare.text import comparison_text, sentence


@pytest.fixture
def pair() -> tuple[Aggregate, Aggregate]:
    return two_days()


def gone(value: Aggregate, config: str, status: str, reason: str) -> None:
    """Everything of it is lost, and the campaign says why."""
    for key in ("cells", "main_taxes", "taxes"):
        value[key] = [x for x in value[key] if x["config"] != config]
    value["configs"][config] |= {"status": status, "reason": {"code": "invalid", "detail": reason}}


def test_it_says_over_how_many_blocks(pair: tuple[Aggregate, Aggregate]) -> None:
    for value, n in zip(pair, (5, 4), strict=True):
        over_blocks(value, n)
    assert sentence(compared(*pair)).endswith(" Intervals: A over 5 blocks and B over 4 blocks.")
    over_blocks(pair[1], 3, "nixl_both")
    assert "B over 3 blocks, over 4 blocks." in sentence(compared(*pair))


def test_it_says_that_taxes_are_of_two_kinds(pair: tuple[Aggregate, Aggregate]) -> None:
    for value in pair:
        over_blocks(value, 5, *(c for c in value["configs"] if c != "nixl_both"))
    assert sentence(compared(*pair)).endswith(
        " Intervals: A of one launch, over 5 blocks and B of one launch, over 5 blocks."
    )


def test_it_carries_what_qualifies_a_change(pair: tuple[Aggregate, Aggregate]) -> None:
    """Also where there is a regression."""
    rows(pair[1], "nixl_both", "tpot_p90")[0]["overloaded"] = ["plain"]
    for value in pair:
        value["reference_rates"]["flags"] = ["non_monotonic_load"]
    for point, verdict in ((0.31, "No regression"), (0.9, "Regression")):
        set_tax(pair[1], point, point - 0.01, point + 0.01)
        said = sentence(compared(*pair))
        assert said.startswith(verdict)
        assert " Queueing, since a side was saturated, in: TPOT p90 of nixl_both in B." in said
        assert ". Flags of the reference rates: A non_monotonic_load and B non_monotonic_load." in said


def test_a_configuration_that_failed_in_both_is_named_and_withholds_the_verdict(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    """Both campaigns asked for its tax, and "no regression" would claim it."""
    for value in pair:
        gone(value, "nixl_both", "failed", "the engine died")
    found = compared(*pair)
    assert found.exit_code == 2
    said = sentence(found)
    assert said.startswith("No verdict: 10 of 10 taxes can be compared")
    assert ". Without a tax in A and in B: nixl_both (nixl_both failed: the engine died)." in said
    assert "Planned, and without a tax in A and in B:" in comparison_text(found)
    assert "nixl_both: nixl_both failed: the engine died" in comparison_text(found)
    assert found.in_neither[-1] == InNeither(
        config="nixl_both",
        reason="nixl_both failed: the engine died",
        skipped=False,
        planned_in=("A", "B"),
    )
    allowed = replace(found, allow_missing=True)
    assert allowed.exit_code == 0
    assert ". Without a tax in A and in B: nixl_both (" in sentence(allowed)


def test_one_that_failed_in_one_and_was_skipped_in_the_other_has_both_reasons(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    gone(pair[0], "nixl_both", "skipped", "no module named nixl")
    gone(pair[1], "nixl_both", "failed", "the engine died")
    found = compared(*pair)
    assert found.exit_code == 2
    both = "in A nixl_both was skipped: no module named nixl; in B nixl_both failed: the engine died"
    assert both in comparison_text(found)


def test_what_preflight_took_out_of_both_is_named_and_withholds_nothing(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    for value in pair:
        gone(value, "nixl_both", "skipped", "no module named nixl")
    found = compared(*pair)
    assert found.exit_code == 0
    assert "Skipped in both: mooncake_consumer and nixl_both." in sentence(found)


def test_what_one_campaign_planned_and_nobody_measured_withholds_nothing(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    gone(pair[1], "nixl_both", "failed", "the engine died")
    for key in ("cells", "main_taxes"):
        pair[0][key] = [x for x in pair[0][key] if x["config"] != "nixl_both"]
    del pair[0]["configs"]["nixl_both"]
    found = compared(*pair)
    assert found.exit_code == 0
    assert "Planned in one and not measured there: nixl_both (B)." in sentence(found)
    why = "nixl_both: in A nixl_both is not part of this campaign; in B nixl_both failed: the engine died"
    assert why in comparison_text(found)
