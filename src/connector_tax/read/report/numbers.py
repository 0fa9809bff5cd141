"""Numbers as the page prints them: value, interval and unit to digits.

Every number carries the value that ``aggregate.json`` has, so that the page can be checked against it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from connector_tax.base.documents.aggregate import Bounds, Ends, Interval
from connector_tax.base.statistics.texts import digits_apart, usual_decimals

Unit = Literal["tax", "points", "share", "change_us", "us", "ms", "plain", "per_s"]
# Unit -> (factor, what stands behind the number, whether a plus stands in front).
UNITS: dict[Unit, tuple[int, str, bool]] = {
    "tax": (100, "%", True),
    "points": (100, "points", True),
    "share": (100, "%", False),
    "change_us": (1, "µs", True),
    "us": (1, "µs", False),
    "ms": (1, "ms", False),
    "plain": (1, "", False),
    "per_s": (1, "/s", False),
}
# Of an axis.
SMALLEST, LARGEST = 1e-12, 1e100
MINUS, OPEN = "\N{MINUS SIGN}", "∞"


@dataclass(frozen=True, slots=True)
class Number:
    """A value with its interval.

    Attributes:
        clear: whether it counts as a tax; such marks are drawn filled.
        injected: the tax that the embedded engine's model gives; None elsewhere.
    """

    point: float
    unit: Unit
    low: float | None = None
    high: float | None = None
    clear: bool = False
    injected: float | None = None
    has_interval: bool = True

    @property
    def suffix(self) -> str:
        return UNITS[self.unit][1]

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; an open end is infinite."""
        low = -math.inf if self.low is None else self.low
        return low, math.inf if self.high is None else self.high

    @property
    def digits(self) -> tuple[str, str, str]:
        """Point, lower and upper end without unit, told apart from each other; an open end is an infinity sign."""
        factor, _, signed = UNITS[self.unit]
        known = [v for v in (self.point, self.low, self.high) if v is not None]
        clear = not self.has_interval or Interval(self.point, self.low, self.high).excludes_zero
        found = iter(digits_apart([factor * v for v in known], _decimals(self.unit), no_zero=clear))
        point = _signed(next(found), signed)
        low = MINUS + OPEN if self.low is None else _signed(next(found), signed)
        return point, low, OPEN if self.high is None else _signed(next(found), signed)


def number(value: Ends | Bounds | None, unit: Unit) -> Number | None:
    """Return what a document's quantity is on the page; None where it has no number."""
    if value is None or value.point is None:
        return None
    return Number(value.point, unit, value.low, value.high)


def bare(value: float | None, unit: Unit = "plain") -> Number | None:
    """Return a number without an interval."""
    return None if value is None else Number(value, unit, has_interval=False)


def _signed(text: str, signed: bool) -> str:
    if text.startswith("-"):
        return MINUS + text[1:]
    return text if text == "0" or not signed else f"+{text}"


def _decimals(unit: Unit) -> Callable[[float], int]:
    if unit in ("us", "change_us"):
        return lambda size: 0 if size >= 10 else 1
    if unit in ("ms", "plain", "per_s"):
        return lambda size: 2 if size < 1 else 1 if size < 100 else 0
    return usual_decimals


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis from ``low`` to ``high``; places on it are percent of its box, so that a drawing fits any width."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> str:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{100 * share:.2f}%"

    def width(self, first: float, second: float) -> str:
        return f"{max(0.4, float(self.at(second)[:-1]) - float(self.at(first)[:-1])):.2f}%"

    def is_beyond(self, value: float) -> bool:
        return value > self.high or value < self.low


def axis_of(values: Iterable[float], ticks: int = 3, room: float = 0.05) -> Axis:
    """Return an axis that holds zero and every finite value, with round ticks."""
    # Files that people edit may hold any number: what no axis can hold lies beyond its end.
    finite = [v for v in values if abs(v) < LARGEST]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    span = high - low if high - low > SMALLEST else 1.0
    low, high = low - room * span, high + room * span
    size = 10.0 ** math.floor(math.log10((high - low) / ticks))
    step = next(k * size for k in (1, 2, 2.5, 5, 10) if (high - low) / (k * size) <= ticks + 1)
    first, last = math.ceil(low / step), math.floor(high / step)
    return Axis(low, high, tuple(k * step for k in range(first, last + 1)))


def tick(value: float, unit: Unit) -> str:
    """Return what stands at a tick of an axis."""
    factor, suffix, signed = UNITS[unit]
    if not value:
        return "0"
    text = f"{factor * value:,.10g}".replace("-", MINUS)
    return ("+" if signed and value > 0 else "") + text + (" %" if suffix == "%" else "")
