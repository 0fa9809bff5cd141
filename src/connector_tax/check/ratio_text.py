"""How a check writes ratios less one: in percent with a sign, two decimals and more where a number and its ends would read alike."""

from collections.abc import Sequence

from connector_tax.intervals.texts import digits_apart

OPEN = "open"


def percents(values: Sequence[float | None]) -> list[str]:
    """``["+0.12%", "-0.40%", "open"]``; what is rounded to zero is ``"0%"``."""
    texts = iter(digits_apart([100 * v for v in values if v is not None], lambda _: 2))
    return [OPEN if v is None else f"{_with_sign(next(texts))}%" for v in values]


def ratio_text(point: float, low: float | None, high: float | None) -> str:
    """``+0.12% [-0.40%, +0.65%]``"""
    own, *ends = percents((point, low, high))
    return f"{own} [{', '.join(ends)}]"


def _with_sign(text: str) -> str:
    return text if text == "0" or text.startswith("-") else f"+{text}"
