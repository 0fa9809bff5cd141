"""Fits a straight line through a campaign's blocks of launches, to test whether a quantity changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from connector_tax.base.statistics.distributions import student_quantile, student_two_sided_p

# Two points always lie on a line.
MIN_POINTS = 3
# Multiple of the span of the blocks' means beyond which blocks ran side by side, and a line says nothing.
MOST_LONGER = 3.0
# The least unexplained share used for p: points exactly on the line leave none.
LEAST_LEFT = 1e-20


@dataclass(frozen=True, slots=True)
class Line:
    """Least squares over points in time.

    Attributes:
        change, low, high: over ``span_h``, in the quantity's own unit, with its t-interval.
        p_value: of no change, two-sided.
        n: points.
    """

    change: float
    low: float
    high: float
    p_value: float
    span_h: float
    n: int


def straight_line(hours: Sequence[float], values: Sequence[float], confidence: float) -> Line | None:
    """Fit a line; None with too few launches, or if all began at once."""
    span_h = float(np.ptp(hours)) if len(hours) else 0.0
    if len(hours) < MIN_POINTS or span_h == 0:
        return None
    if np.ptp(values) == 0:
        # A locked clock, whose p would be 0 divided by 0.
        return Line(0.0, 0.0, 0.0, 1.0, span_h, len(hours))
    freedom = len(hours) - 2
    ((hours_variance, covariance), (_, values_variance)) = np.cov(
        np.asarray(hours) / span_h, values, bias=True
    )
    correlation = float(np.clip(covariance / math.sqrt(hours_variance * values_variance), -1.0, 1.0))
    unexplained_share = (1 - correlation) * (1 + correlation)
    change = float(covariance / hours_variance)
    error = math.sqrt(unexplained_share * values_variance / hours_variance / freedom)
    p_value = student_two_sided_p(
        correlation * math.sqrt(freedom / max(unexplained_share, LEAST_LEFT)), freedom
    )
    half_width = float(student_quantile(0.5 + confidence / 2, freedom)) * error
    return Line(change, change - half_width, change + half_width, p_value, span_h, len(hours))


def line_through_blocks(points: Sequence[tuple[str, float, float]], confidence: float) -> Line | None:
    """Fit a line through the means of blocks; its change is that from the first launch to the last.

    Launches of a block share its slowness, so they are not independent points: as such they would show drift
    in up to a fifth of campaigns without any.

    None with too few blocks, or if blocks overlap in time, as after repeating a launch much later.

    Args:
        points: (block, hours, value), one for each launch.
    """
    blocks: dict[str, list[tuple[float, float]]] = {}
    for block, hours, value in points:
        blocks.setdefault(block, []).append((hours, value))
    means = [np.mean(block_points, axis=0) for block_points in blocks.values()]
    line = straight_line([float(m[0]) for m in means], [float(m[1]) for m in means], confidence)
    if line is None:
        return None
    span_h = float(np.ptp([hours for _, hours, _ in points]))
    scale = span_h / line.span_h
    if scale > MOST_LONGER:
        return None
    return replace(
        line, change=line.change * scale, low=line.low * scale, high=line.high * scale, span_h=span_h
    )
