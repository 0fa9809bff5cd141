"""Ratios in a check's text: signed, told apart, and zero without a sign."""

from connector_tax.check.ratio_text import percents, ratio_text


def test_a_ratio_with_its_interval() -> None:
    assert ratio_text(0.0123, -0.004, 0.0285) == "+1.23% [-0.40%, +2.85%]"
    assert ratio_text(0.1, None, 0.2) == "+10.00% [open, +20.00%]"


def test_zero_has_no_sign() -> None:
    assert percents([-0.00001, 0.0, 0.00001]) != ["-0.00%", "+0.00%", "+0.00%"]
    assert percents([-0.00001]) == ["0%"]


def test_ends_are_told_from_the_point() -> None:
    assert ratio_text(0.00101, 0.00098, 0.00104) == "+0.101% [+0.098%, +0.104%]"
