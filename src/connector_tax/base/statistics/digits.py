"""Formats numbers and the ends of their intervals with enough digits to differ, and zero without a sign."""

import math
from collections.abc import Callable, Sequence

# The residue of floating-point sums that cancel.
NOTHING = 1e-9
# More digits than a number is known to.
MOST_SIGNIFICANT = 3
# Largest number of extra decimals tried; numbers that need more read alike.
MOST_MORE = 12


def usual_decimals(size: float) -> int:
    """Return one decimal below ten, else none."""
    return 0 if size >= 9.95 else 1


def digits_apart(
    values: Sequence[float], decimals: Callable[[float], int] = usual_decimals, *, no_zero: bool = False
) -> list[str]:
    """Format numbers that are read side by side.

    ``[0.101, 0.098, 0.104]`` -> ``["0.101", "0.098", "0.104"]``, ``[31.2, 27.0, 36.1]`` -> ``["31", "27",
    "36"]``. Different numbers read alike only if they agree in three significant digits, or in more if
    ``decimals`` has more.

    Args:
        values: finite, in the printed unit.
        decimals: returns the least decimals of a number of this size.
        no_zero: a nonzero number keeps its first digit, wherever it is, and so does not read as zero.

    Returns:
        One text each, with an ASCII minus; zero, and what is rounded to it, is ``"0"``.
    """
    more = 0
    for more in range(MOST_MORE):
        # 0.09 beside 0.14 as 0.1 does not differ: both read 0.1 with the same decimals.
        texts = [_text(v, decimals(abs(v)), more, no_zero) for v in values]
        if not _alike(values, texts):
            break
    return [_text(v, decimals(abs(v)), more, no_zero, whole_digit=no_zero) for v in values]


def _alike(values: Sequence[float], texts: Sequence[str]) -> bool:
    """Return whether two different numbers read alike."""
    return any(
        texts[j] == texts[k] and abs(values[j] - values[k]) >= NOTHING
        for k in range(len(values))
        for j in range(k)
    )


def _text(value: float, least: int, more: int, no_zero: bool, *, whole_digit: bool = False) -> str:
    """Format one number.

    Args:
        whole_digit: keep its first digit even if it would not read as zero: 0.1 is a third more than 0.075.
    """
    size = abs(value)
    if size < NOTHING:
        return "0"
    first = -math.floor(math.log10(size))
    shown = min(least + more, max(least, first + MOST_SIGNIFICANT - 1))
    if first > shown and (whole_digit or (no_zero and round(size, shown) == 0)):
        shown = first
    text = f"{size:,.{shown}f}"
    return "0" if not text.strip("0.,") else f"-{text}" if value < 0 else text
