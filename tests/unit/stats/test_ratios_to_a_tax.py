"""A ratio to a tax is a number where there is a tax: H3's share of it, and H4's excess over it."""

import pytest
from test_hypotheses import normal, tax, verdicts

STACK = "multi_mooncake_lmcache"


def test_a_gain_has_no_share_and_no_end_of_it_is_missed() -> None:
    found = verdicts({"mooncake_both": tax(-0.2), "noop_connector": tax(0.02)})["H3"]
    assert (found.outcome, found.conclusions) == ("undetermined", ("gain_to_split",))
    share = found.numbers.share
    assert (share.point, share.reason) == (None, "no_tax")


@pytest.mark.parametrize("point", [0.004, -0.004])
def test_a_stack_that_is_not_told_apart_from_zero_has_no_excess(point: float) -> None:
    """As ``(whole - sum) / whole`` it would be anything: its parts add up to many times the stack's estimate."""
    taxes = {"mooncake_both": tax(0.03), "lmcache_only": tax(0.02), STACK: normal(point, 0.02)}
    found = verdicts(taxes)["H4"]
    assert (found.outcome, found.conclusions, found.p_value) == ("undetermined", ("no_tax_of_stack",), None)  # fmt: skip
    excess = found.numbers.excess_over_stack
    assert (excess.point, excess.low, excess.high) == (None, None, None)
    assert excess.reason == "no_tax"


@pytest.mark.parametrize("point", [0.4, -0.4])
def test_a_stack_that_is_has_one(point: float) -> None:
    found = verdicts({"mooncake_both": tax(0.2), "lmcache_only": tax(0.1), STACK: tax(point)})["H4"]
    assert found.numbers.excess_over_stack.point == pytest.approx((point - 0.3) / 0.4)
