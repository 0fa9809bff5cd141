"""Numbers as a page writes them: where they stand in a text, what interval they have, and whether one is a value, rounded."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

from claim_values import Value

NUMBER = r"[+−-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]\d+)?"
UNIT = r"(?:\s?(%|pp|points|µs|ms|s|req/s|MHz|MiB|°C|W|h)(?![\w]))?"
END = rf"({NUMBER}){UNIT}|no lower bound|no upper bound|unbounded|no bound|\?|∞|–"
TRIPLE = re.compile(
    rf"(?<![\w.,/])({NUMBER}){UNIT}(?:\s?;[^\d\[|;]*)*\s?(?:\[({END}), ({END})\]{UNIT}|\(no interval\))"
)
SINGLE = re.compile(rf"(?<![\w.,/])({NUMBER}){UNIT}(?![\w])")
OF = re.compile(rf"(?<![\w.,/])({NUMBER}) of ({NUMBER})(?![\w%.])")
# What sums of floating-point numbers that cancel leave over.
NOTHING = 1e-11
SCALES = {"%": 100.0, "pp": 100.0, "points": 100.0}
# What a value may be said in; a difference of taxes is in points, and nothing else is. ``of us`` and ``of ms`` stand below a head that has the unit.
SAID_IN: dict[str, tuple[str | None, ...]] = {
    "ratio": ("%",), "pp": ("pp",), "points": ("points",), "us": ("µs",), "ms": ("ms", "s"), "of us": (None,), "of ms": (None,), "rate": ("req/s", None),
    "count": (None,), "p": (None,), "hours": ("h",), "number": (None,), "MHz": ("MHz",), "degrees": ("°C",), "W": ("W",), "MiB": ("MiB",),
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    """One number of a text.

    Attributes:
        ends: of its interval, each with its unit; None of a number that stands alone. An end in words is None.
    """

    text: str
    number: str
    unit: str | None
    ends: tuple[tuple[str | None, str | None], ...] | None


def numbers_said(text: str) -> list[Said]:
    """All numbers of ``text`` in their order, each with the interval behind it."""
    found: dict[int, Said] = {}
    for match in TRIPLE.finditer(text):
        number, unit, _, low, low_unit, _, high, high_unit, after = match.groups()
        unit = unit or after or low_unit or high_unit
        ends = ((low or None, low_unit or unit), (high or None, high_unit or unit))
        found[match.start()] = Said(match[0], number, unit, ends)
    alone = TRIPLE.sub(lambda m: "\0" * len(m[0]), text)
    found |= {m.start(): Said(m[0], m[1], m[2], None) for m in SINGLE.finditer(alone)}
    return [found[k] for k in sorted(found)]


def without_numbers(text: str) -> str:
    """With a mark in place of each number, its interval and its unit."""
    return SINGLE.sub(" ; ", TRIPLE.sub(" ; ", text))


def is_said(value: Value, said: Said) -> bool:
    """Whether ``said`` is ``value`` with its interval, or alone where it has none."""
    if not reads(value.number, value.unit, said.number, said.unit):
        return False
    if value.ends is None or said.ends is None:
        return said.ends is None and value.ends in (None, (None, None))
    return all(same_end(e, value.unit, *end) for e, end in zip(value.ends, said.ends, strict=True))


def misread(text: str, expected: list[Value]) -> Iterator[str]:
    """What of ``text`` is not the expected numbers in their order; a cell of a table may leave out that a number has no interval."""
    said = numbers_said(text)
    for k, (value, one) in enumerate(zip(expected, said, strict=False)):
        if not is_said(value, one):
            yield f"{one.text!r}, number {k + 1}, is not {value.number:.6g} {value.ends or ''}"
        elif why := _unclear(value, one):
            yield f"{one.text!r}: {why}"
    if len(said) > len(expected):
        yield f"{said[len(expected)].text!r} is of unknown origin"
    if len(said) < len(expected):
        yield f"{expected[len(said)].number:.6g} is not said"


def _unclear(value: Value, said: Said) -> str:
    """What its digits hide of an estimate: that it differs from an end, or excludes zero."""
    if value.ends is None or said.ends is None:
        return ""
    numbers = [v for v in (value.number, *value.ends) if v is not None]
    texts = [t for t in (said.number, *(t for t, _ in said.ends)) if t is not None]
    if any(t[0] in "+−-" and _float(t) == 0 for t in texts):
        return "zero has a sign"
    low, high = value.ends
    excludes_zero = (low is not None and low > 0) or (high is not None and high < 0)
    if excludes_zero and any(
        _float(t) == 0 and abs(v) > NOTHING for v, t in zip(numbers, texts, strict=True)
    ):
        return "it excludes zero and reads as zero"
    scale = SCALES.get(said.unit or "", 0.001 if (value.unit, said.unit) == ("ms", "s") else 1.0)
    if excludes_zero and any(
        abs(_float(t) - v * scale) > 0.51 * _first_digit(v * scale)
        for v, t in zip(numbers, texts, strict=True)
    ):
        return "it excludes zero and has lost its first digit"
    pairs = combinations(zip(numbers, texts, strict=True), 2)
    alike = any(t == u and abs(v - w) >= _third_digit(max(abs(v), abs(w))) for (v, t), (w, u) in pairs)
    return "its numbers differ and read alike" if alike else ""


def _first_digit(value: float) -> float:
    """What one of the first digit is worth."""
    return 10.0 ** math.floor(math.log10(abs(value))) if abs(value) > NOTHING else 1.0


def _third_digit(size: float) -> float:
    """What one of the third significant digit is worth; no number is known to more."""
    return 10.0 ** (math.floor(math.log10(size)) - 2) if size > NOTHING else NOTHING


@cache
def _float(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def reads(value: float, unit: str, text: str, said: str | None) -> bool:
    """Whether ``text`` is how ``value`` is rounded, in a unit that it can be said in."""
    if said not in SAID_IN[unit]:
        return False
    scaled = value * (0.001 if (unit, said) == ("ms", "s") else SCALES.get(said or "", 1.0))
    want, digits = _float(text), len(text.partition(".")[2])
    # Most are far off, and rounding takes time; two digits are within 5 % of what they stand for.
    if abs(scaled - want) > max(0.06 * abs(want), 10.0**-digits):
        return False
    return _rounded(scaled, digits, text) == want


def _rounded(value: float, digits: int, text: str) -> float:
    if "e" in text:
        return float(f"{value:.{max(0, len(text.partition('e')[0].replace('.', '').lstrip('+−-')) - 1)}e}")
    fixed = round(float(f"{value:.{digits}f}"), digits)
    if fixed == _float(text):
        return fixed
    # Numbers of so many digits, as medians in milliseconds are: 3, 4, or the two of a p.
    plain = text.replace(",", "").replace("−", "-").lstrip("+")
    alike = abs(value) < 10**4 and any(f"{value:.{k}g}" == plain for k in (2, 3, 4) if abs(value) < 10**k)
    return _float(text) if alike else math.nan


def same_end(end: float | None, unit: str, text: str | None, said: str | None) -> bool:
    return text is None if end is None else text is not None and reads(end, unit, text, said)


def the(value: object, unit: str = "count") -> list[Value]:
    """A number without an interval, as a list; empty where there is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return [Value("", float(value), unit, None, {})] if known else []  # type: ignore[arg-type]


def estimate(value: object, unit: str = "ratio") -> list[Value]:
    """``{point, low, high}``, or a bare number without an interval, as a list; empty where there is none."""
    if isinstance(value, Mapping):
        point = the(value.get("point"), unit)
        return [replace(v, ends=(value.get("low"), value.get("high"))) for v in point]
    return [replace(v, ends=(None, None)) for v in the(value, unit)]
