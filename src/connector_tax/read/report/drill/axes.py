"""An axis: where a value lies on it, and how a number is written."""

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
