"""Student's t of a mean of few independent log ratios: what blocks of launches say of a tax.

The ends of every interval over blocks are made here. Resamples (``read.stats.repeats``) are for numbers that are made of several such means.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.resampling import Floats

# p of a decision: the interval that decides, inverted.

# Of p on the scale of its logarithm.
HALVINGS = 50

# Whether an interval, from its lower end to its upper one, decides.
Decides = Callable[[float | None, float | None], bool]


def p_of(estimate: Estimate, confidence: float, decides: Decides) -> float | None:
    """The smallest p at which the interval of confidence 1 - p decides; None where the one of ``confidence`` does not.

    It is never above ``1 - confidence``, and not below what the interval can tell (``Estimate.least_p``).

    Args:
        confidence: of the interval that stands beside it.
    """
    if not decides(*estimate.interval(confidence)):
        return None
    high = 1 - confidence
    low = min(estimate.least_p, high)
    if decides(*estimate.interval(1 - low)):
        return low
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        if decides(*estimate.interval(1 - middle)):
            high = middle
        else:
            low = middle
    return high


def holm(p_values: list[float | None], tests: int) -> list[float | None]:
    """Adjusted by Holm's step-down (1979): together they err as rarely as one should.

    Args:
        p_values: None where a test decided nothing; it counts among ``tests`` all the same.
        tests: how many were made.
    """
    found: list[float | None] = [None] * len(p_values)
    largest = 0.0
    decided = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    for rank, (own, k) in enumerate(decided):
        largest = max(largest, min(1.0, (tests - rank) * own))
        found[k] = largest
    return found


# Quantiles of the laws that intervals are made of, and ranks.


def student_quantile(p: Any, freedom: Any) -> Any:
    """Of Student's t; 0 < ``p`` < 1."""
    return special.stdtrit(freedom, p)


def student_two_sided_p(t: float, freedom: float) -> float:
    """How likely Student's t lies farther from zero than ``t``, on either side."""
    return 2 * float(special.stdtr(freedom, -abs(t)))


def normal_quantile(p: float) -> float:
    return float(special.ndtri(p))


def chi_square_quantile(p: Any, freedom: Any) -> Any:
    return 2 * special.gammaincinv(np.asarray(freedom) / 2, p)


def ranks_of(values: Floats) -> Floats:
    """From 1 up; equal values share the mean of theirs."""
    _, of_value, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: Floats = ((2 * last - counts + 1) / 2)[of_value]
    return found


@dataclass(frozen=True, slots=True)
class LogMean:
    """A mean of log ratios, told as a ratio less one.

    Attributes:
        log_ratio: the mean.
        error: its standard error.
        freedom: degrees of freedom of that error.
    """

    log_ratio: float
    error: float
    freedom: int

    @property
    def point(self) -> float:
        return math.expm1(self.log_ratio)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Equal-tailed; the upper end is infinite where no float is so large."""
        reach = float(-student_quantile((1 - confidence) / 2, self.freedom)) * self.error
        with np.errstate(over="ignore"):
            low, high = np.expm1([self.log_ratio - reach, self.log_ratio + reach])
        return float(low), float(high)


def log_mean(log_ratios: Floats, beside: float = 0.0) -> LogMean:
    """Of log ratios, shape (observations,), two at least.

    Args:
        beside: a standard error of the mean that the observations do not show.
    """
    n = log_ratios.size
    error = math.hypot(float(log_ratios.std(ddof=1)) / math.sqrt(n), beside)
    return LogMean(float(log_ratios.mean()), error, n - 1)


def mean_interval(values: Floats, confidence: float) -> tuple[float, float, float]:
    """Mean, lower and upper end, of values that are added and not multiplied; shape (observations,), two at least."""
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size)
    reach = float(-student_quantile((1 - confidence) / 2, values.size - 1)) * error
    return mean, mean - reach, mean + reach
