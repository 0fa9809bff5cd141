"""Numbers as people read them: percent, microseconds, rates, intervals; and lists of names."""

from collections.abc import Sequence

from connector_tax.base.documents.aggregate import Interval, LatencyMetric
from connector_tax.base.files import printable
from connector_tax.base.statistics.texts import digits_apart

METRICS: dict[LatencyMetric, str] = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
MINUS = "\N{MINUS SIGN}"


def clean(text: str, limit: int = 400) -> str:
    """One printable line of at most ``limit`` characters; names come from a YAML file and may be anything."""
    line = " ".join(printable(text, len(text)).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def short_label(label: str) -> str:
    """A legend entry; Matplotlib hides labels that start with an underscore, so that goes."""
    return clean(label, 26).lstrip("_ ") or "?"


def percent(ratio: float) -> str:
    """``0.312`` -> ``"+31 %"``; one decimal below 10 %."""
    return signed([ratio], "ratio")[0]


def microseconds(value: float) -> str:
    return signed([value], "us")[0]


def signed(values: Sequence[float], unit: str, *, no_zero: bool = False) -> list[str]:
    """With sign and unit, and with as many digits as tell them apart.

    Args:
        unit: ``ratio`` or ``us``.
        no_zero: see ``digits_apart``.
    """
    scale, word = (100, "%") if unit == "ratio" else (1, "µs")
    texts = digits_apart([scale * v for v in values], no_zero=no_zero)
    plus = {text: "" if text[0] == "-" or text == "0" else "+" for text in texts}
    return [f"{plus[text]}{text} {word}".replace("-", MINUS) for text in texts]


def rate(value: float) -> str:
    return f"{value:g} req/s"


def interval_texts(
    value: Interval, unit: str = "ratio", *, no_low: str = "no lower bound", no_high: str = "no upper bound"
) -> tuple[str, str, str]:
    """Point, lower and upper end, told apart and from zero; an open end is said in words."""
    known = [v for v in (value.point, value.low, value.high) if v is not None]
    texts = iter(signed(known, unit, no_zero=value.excludes_zero))
    point = next(texts)
    low = no_low if value.low is None else next(texts)
    return point, low, no_high if value.high is None else next(texts)


def with_interval(value: Interval, unit: str = "ratio") -> str:
    """``"+31 % [+27 %, +36 %]"``; an open end is said in words."""
    point, low, high = interval_texts(value, unit)
    return f"{point} [{low}, {high}]"


def listing(items: Sequence[str], most: int = 3) -> str:
    """``"a, b, c and 4 more"``."""
    if len(items) > most:
        return ", ".join(items[:most]) + f" and {len(items) - most} more"
    return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else "".join(items)
