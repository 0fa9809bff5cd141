"""Fewer points that still show every spike: of each part of the time the smallest and the largest value."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def extremes(at: Floats, values: Floats, end: float, parts: int) -> Ints:
    """Which points to draw, in order of time: all where they are few, else at most two in each part.

    Of points that are equal the first in time is taken.

    Args:
        at, values: shape (n,), all of them finite and ``0 <= at <= end``.
        parts: of equal length, from 0 to ``end``.
    """
    in_time = np.argsort(at, kind="stable")
    if at.size <= 2 * parts:
        return in_time
    part = part_of(at[in_time], end, parts)
    ordered = values[in_time]
    low = np.lexsort((ordered, part))
    # Negated, so that of equal values the first is still the first.
    high = np.lexsort((-ordered, part))
    kept = np.unique(np.concatenate([_first_of_each(part, low), _first_of_each(part, high)]))
    chosen: Ints = in_time[kept]
    return chosen


def part_of(at: Floats, end: float, parts: int) -> Ints:
    """The part that each time lies in, from 0; the end belongs to the last."""
    return np.minimum((at * (parts / end)).astype(np.int64), parts - 1)


def _first_of_each(part: Ints, order: Ints) -> Ints:
    """Of each part the first point in ``order``, which goes from part to part."""
    sorted_parts = part[order]
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = sorted_parts[1:] != sorted_parts[:-1]
    return order[begins]


def medians(at: Floats, values: Floats, end: float, parts: int) -> tuple[Floats, Floats]:
    """Of each part that holds a point its middle and the median of its values."""
    part = part_of(at, end, parts)
    order = np.argsort(part, kind="stable")
    known, begins = np.unique(part[order], return_index=True)
    groups = np.split(values[order], begins[1:]) if known.size else []
    middle = (known.astype(np.float64) + 0.5) * (end / parts)
    return middle, np.array([float(np.median(group)) for group in groups])
