"""Computes the difference of two independent numbers from their intervals alone, without resamples.

MOVER, the method of variance estimates recovery: the distance from a point to its bound is its uncertainty on
that side, and such distances of independent numbers add in squares. Skewed intervals stay skewed.
Source: Zou & Donner 2008, Statistics in Medicine 27, 1693-1702.
"""

import math

# Point, lower and upper end; an end that is None is unbounded.
Bounded = tuple[float, float | None, float | None]


def independent_difference(first: Bounded, second: Bounded) -> Bounded:
    """Return ``second - first``; both intervals and the result have one confidence.

    The lower end is unbounded if the second's lower or the first's upper end is; the upper end likewise.
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    point = b - a
    low = None if b_low is None or a_high is None else point - math.hypot(b - b_low, a_high - a)
    high = None if b_high is None or a_low is None else point + math.hypot(b_high - b, a - a_low)
    return point, low, high
