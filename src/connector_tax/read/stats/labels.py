"""What a verdict is labelled with beside its outcome, decided by whole intervals: a word that the interval leaves open is not said.

And how its numbers read.
"""

from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.outcomes import GAIN, TAX, told
from connector_tax.base.statistics.texts import digits_apart

# The replay's tax with Mooncake, and the range in which it is kept.
H1_PRIOR, H1_KEEP = 0.45, (0.25, 0.60)
# Of the no-op connector's tax in a connector's.
H3_SHARE, H3_LOW_SHARE = 0.50, 0.30


def prior_words(measured: str, low: float | None, high: float | None) -> list[str]:
    """Whether the replay's number stands; nothing where the interval reaches across an end of the range.

    Args:
        measured: the tax with its interval.
    """
    if low is not None and high is not None and H1_KEEP[0] <= low and high <= H1_KEEP[1]:
        return [f"prior {100 * H1_PRIOR:.0f} % kept"]
    outside = (high is not None and high < H1_KEEP[0]) or (low is not None and low > H1_KEEP[1])
    return [f"prior {100 * H1_PRIOR:.0f} % revised to {measured}"] if outside else []


def dominated(low: float | None, high: float | None) -> str | None:
    """By the interval of the no-op connector's share of a tax; None where it reaches across a border."""
    if low is not None and low >= H3_SHARE:
        return "framework-cost-dominated"
    if high is not None and high < H3_LOW_SHARE:
        return "implementation-cost-dominated"
    within = low is not None and high is not None and low >= H3_LOW_SHARE and high < H3_SHARE
    return "mixed" if within else None


def interval_text(estimate: Estimate, confidence: float, unit: str = "") -> str:
    """``31.2 % [27.0 %, 36.1 %]``: in hundredths, with one decimal, and more where that would make them alike."""
    low, high = estimate.interval(confidence)
    values = (estimate.point, low, high)
    known = [100 * v for v in values if v is not None]
    texts = iter(digits_apart(known, lambda _: 1, no_zero=told(low, high) in (TAX, GAIN)))
    point, *ends = (
        f"{next(texts)}{unit}" if v is not None else word
        for v, word in zip(values, ("unknown", "unbounded", "unbounded"), strict=True)
    )
    return f"{point} [{ends[0]}, {ends[1]}]"
