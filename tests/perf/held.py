"""Whether an interval holds the truth; an end that is unbounded holds everything on its side."""

from connector_tax.base.statistics.bootstrap import Estimate


def holds(estimate: Estimate, value: float) -> bool:
    low, high = estimate.interval(0.95)
    return (low is None or low <= value) and (high is None or value <= high)
