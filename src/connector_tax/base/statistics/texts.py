"""Digits of a number and of the ends of its interval: as many as tell them apart, and no sign in front of
zero."""

import math
from collections.abc import Callable, Sequence

# What sums of floating-point numbers that cancel leave over.
NOTHING = 1e-9
# More digits than a number is known to.
MOST_SIGNIFICANT = 3
# Decimals beyond the least that any number is tried with; what needs more is alike.
MOST_MORE = 12


def usual_decimals(size: float) -> int:
    """One below ten, none from there on."""
    return 0 if size >= 9.95 else 1


def digits_apart(
    values: Sequence[float], decimals: Callable[[float], int] = usual_decimals, *, no_zero: bool = False
) -> list[str]:
    """``[0.101, 0.098, 0.104]`` -> ``["0.101", "0.098", "0.104"]``, ``[31.2, 27.0, 36.1]`` -> ``["31", "27",
    "36"]``.

    Numbers that differ read alike only where they are alike in three significant digits, or in more where
    ``decimals`` has more.

    Args:
        values: finite, in the unit that is printed.
        decimals: how many a number of this size has at least.
        no_zero: what is not zero has its first digit, wherever that is, and so does not read as zero.

    Returns:
        One text each, with an ASCII minus; zero, and what is rounded to it, is ``"0"``.
    """
    return digits_apart_each([values], decimals, no_zero=no_zero)[0]


def digits_apart_each(
    groups: Sequence[Sequence[float]],
    decimals: Callable[[float], int] = usual_decimals,
    *,
    no_zero: bool = False,
    significant: int = MOST_SIGNIFICANT,
) -> list[list[str]]:
    """``digits_apart`` of several groups that are read side by side: numbers of different groups may read
    alike.

    Args:
        significant: digits that a number has at most, where ``decimals`` has no more.
    """
    more = 0
    for more in range(MOST_MORE):
        # 0.09 beside 0.14 as 0.1 is not told apart: both read 0.1 at as many decimals.
        texts = [[_text(v, decimals(abs(v)), more, no_zero, significant) for v in group] for group in groups]
        if not any(map(_alike, groups, texts)):
            break
    return [
        [_text(v, decimals(abs(v)), more, no_zero, significant, whole_digit=no_zero) for v in group]
        for group in groups
    ]


def _alike(values: Sequence[float], texts: Sequence[str]) -> bool:
    return any(
        texts[j] == texts[k] and abs(values[j] - values[k]) >= NOTHING
        for k in range(len(values))
        for j in range(k)
    )


def _text(
    value: float, least: int, more: int, no_zero: bool, significant: int, *, whole_digit: bool = False
) -> str:
    """
    Args:
        whole_digit: its first digit is kept also where it would not read as zero: 0.075 as 0.1 is a third too
            large.
    """
    size = abs(value)
    if size < NOTHING:
        return "0"
    first = -math.floor(math.log10(size))
    shown = min(least + more, max(least, first + significant - 1))
    if first > shown and (whole_digit or (no_zero and round(size, shown) == 0)):
        shown = first
    text = f"{size:,.{shown}f}"
    return "0" if not text.strip("0.,") else f"-{text}" if value < 0 else text
