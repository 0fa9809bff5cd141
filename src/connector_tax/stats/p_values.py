"""Two-sided p of a threshold, from the resamples that an interval is made of."""

import numpy as np

from connector_tax.intervals.bootstrap import Estimate


def p_value(estimate: Estimate, threshold: float) -> float | None:
    """Two-sided, by inverting the percentile interval: the confidence at which its nearer end would touch ``threshold``.

    None without resamples. A resample that could be anything counts for both sides.
    """
    replicates = estimate.replicates
    if estimate.point is None or replicates.size == 0:
        return None
    unknown = np.isnan(replicates)
    below, above = (
        int((side | unknown).sum()) for side in (replicates <= threshold, replicates >= threshold)
    )
    return min(1.0, 2 * (1 + min(below, above)) / (replicates.size + 1))


def p_inside(estimate: Estimate, bounds: tuple[float, float]) -> float | None:
    """The worse of both bounds': where the point lies outside that is the nearer one's, which decides."""
    p_values = [p for p in (p_value(estimate, b) for b in bounds) if p is not None]
    if not p_values or estimate.point is None:
        return None
    return max(p_values)
