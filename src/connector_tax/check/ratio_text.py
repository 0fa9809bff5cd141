"""How a check writes ratios less one: in percent with a sign, two decimals and more where a number and its ends would read alike."""

from collections.abc import Sequence

from connector_tax.base.statistics.outcomes import GAIN, TAX, told
from connector_tax.base.statistics.texts import digits_apart

OPEN = "open"


def percents(values: Sequence[float | None]) -> list[str]:
    """``["+0.12%", "-0.40%", "open"]``: a point and its ends. What is rounded to zero is ``"0%"``, where the ends do not exclude zero."""
    _, *ends = values
    known = [100 * v for v in values if v is not None]
    excludes_zero = len(ends) == 2 and told(*ends) in (TAX, GAIN)
    texts = iter(digits_apart(known, lambda _: 2, no_zero=excludes_zero))
    return [OPEN if v is None else f"{_with_sign(next(texts))}%" for v in values]


def ratio_text(point: float, low: float | None, high: float | None) -> str:
    """``+0.12% [-0.40%, +0.65%]``"""
    own, *ends = percents((point, low, high))
    return f"{own} [{', '.join(ends)}]"


def _with_sign(text: str) -> str:
    return text if text == "0" or text.startswith("-") else f"+{text}"
