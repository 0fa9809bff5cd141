"""An axis: where its ticks stand, and how a number on it is written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Of the drawing: so many steps along time and up, so that a point is a few digits.
ACROSS, UP = 4000, 1000
ROOM = 1.06


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``low`` to ``high``, in ``steps`` of the drawing."""

    low: float
    high: float
    steps: int

    def place(self, value: float) -> int:
        return round(self.steps * (value - self.low) / (self.high - self.low))

    def ticks(self, most: int) -> list[float]:
        """At most so many, at 1, 2 or 5 times a power of ten."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / most))
        step *= next(k for k in (1, 2, 5, 10, 20) if (self.high - self.low) / (k * step) <= most)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [k * step for k in range(first, last + 1)]


def upward(values: Sequence[float]) -> Axis:
    """From zero, or from below it where a value is, with a little room above the largest; one step high where all are zero."""
    low, high = min([0.0, *values]), max([0.0, *values])
    return Axis(low, low + (high - low) * ROOM if high > low else low + 1.0, UP)


def written(value: float) -> str:
    """Three digits and a sign, none where they are not needed: ``12.3``, ``1,250``, ``0``."""
    if abs(value) >= 1e7:
        return f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
