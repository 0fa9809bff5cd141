"""As many digits as tell numbers apart, three at most; zero has no sign."""

import pytest

from connector_tax.base.statistics.digits import digits_apart


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([31.2, 27.0, 36.1], ["31", "27", "36"]),
        ([0.101, 0.098, 0.104], ["0.101", "0.098", "0.104"]),
        ([0.04, -0.01, 1.2], ["0.04", "-0.01", "1.20"]),
        ([-0.0], ["0"]),
        ([-4e-12, 4e-12], ["0", "0"]),
        ([1234.4, 1234.9], ["1,234", "1,235"]),
    ],
    ids=str,
)
def test_digits(values: list[float], texts: list[str]) -> None:
    assert digits_apart(values) == texts


def test_what_is_not_zero_may_be_kept_from_reading_so() -> None:
    assert digits_apart([0.03, 0.01, 1.2], no_zero=True) == ["0.03", "0.01", "1.2"]
    assert digits_apart([-0.00002], no_zero=True) == ["-0.00002"]


def test_what_is_small_has_its_first_digit() -> None:
    """0.075 as 0.1 would be a third too large."""
    assert digits_apart([0.0752], lambda _: 1, no_zero=True) == ["0.08"]
    assert digits_apart([0.0752], lambda _: 1) == ["0.1"]
    assert digits_apart([0.09, 0.03, 0.14], lambda _: 1, no_zero=True) == ["0.09", "0.03", "0.14"]
    assert digits_apart([0.0962, 0.4, 1.2], lambda _: 1, no_zero=True) == ["0.10", "0.4", "1.2"]


def test_more_decimals_may_be_asked_for() -> None:
    """They may be more digits than three."""
    assert digits_apart([12.34, 12.1, 14.0], lambda _: 1) == ["12.3", "12.1", "14.0"]
    assert digits_apart([12.34, 12.30, 14.0], lambda _: 2) == ["12.34", "12.30", "14.00"]
    assert digits_apart([-0.004], lambda _: 2) == ["0"]
