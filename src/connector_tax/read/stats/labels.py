"""What a verdict is labelled with beside its outcome, decided by whole intervals: a word that the interval leaves open is not said."""

from connector_tax.base.documents.aggregate import Conclusion
from connector_tax.base.statistics.bootstrap import Estimate

# The range in which the replay's tax with Mooncake, 45 %, is kept.
H1_KEEP = (0.25, 0.60)
# Of the no-op connector's tax in a connector's.
H3_SHARE, H3_LOW_SHARE = 0.50, 0.30


def prior_label(tax: Estimate, confidence: float) -> Conclusion:
    """Revised where the whole interval lies outside the range, kept where the value lies inside, else open."""
    low, high = tax.interval(confidence)
    if (high is not None and high < H1_KEEP[0]) or (low is not None and low > H1_KEEP[1]):
        return "prior_revised"
    kept = tax.point is not None and H1_KEEP[0] <= tax.point <= H1_KEEP[1]
    return "prior_kept" if kept else "prior_open"


def dominated(low: float | None, high: float | None) -> Conclusion | None:
    """By the interval of the no-op connector's share of a tax; None where it reaches across a border."""
    if low is not None and low >= H3_SHARE:
        return "framework_dominates"
    if high is not None and high < H3_LOW_SHARE:
        return "implementation_dominates"
    within = low is not None and high is not None and low >= H3_LOW_SHARE and high < H3_SHARE
    return "mixed" if within else None
