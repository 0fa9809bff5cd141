"""Quantiles of distributions, ranks, and the interval of a mean of few log ratios by Student's t."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from connector_tax.base.statistics.resampling import Floats

# Quantiles of the distributions behind intervals, and ranks.
#
# They equal those of ``scipy.stats`` to the last digit, and call the same functions of ``scipy.special``:
# ``scipy.stats`` takes a second to import and thirty times as long per number, of which an analysis needs
# thousands.


def student_quantile(p: Any, freedom: Any) -> Any:
    """Return the quantile of Student's t; 0 < ``p`` < 1."""
    return special.stdtrit(freedom, p)


def student_two_sided_p(t: float, freedom: float) -> float:
    """Return the probability that Student's t is farther from zero than ``t``, on either side."""
    return 2 * float(special.stdtr(freedom, -abs(t)))


def normal_quantile(p: float) -> float:
    return float(special.ndtri(p))


def chi_square_quantile(p: Any, freedom: Any) -> Any:
    return 2 * special.gammaincinv(np.asarray(freedom) / 2, p)


def ranks_of(values: Floats) -> Floats:
    """Return ranks from 1 up; equal values share their mean rank."""
    _, of_value, counts = np.unique(values, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)
    ranks: Floats = ((2 * last_ranks - counts + 1) / 2)[of_value]
    return ranks


# Student's t of a mean of few independent log ratios, such as a tax over blocks of launches.
#
# It gives the ends of every interval over blocks. Resamples (``read.stats.repeats``) serve numbers made of
# several such means.


@dataclass(frozen=True, slots=True)
class LogMean:
    """A mean of log ratios, printed as a ratio minus one.

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
        """Return the equal-tailed interval; an upper end beyond the largest float is infinite."""
        half_width = float(-student_quantile((1 - confidence) / 2, self.freedom)) * self.error
        with np.errstate(over="ignore"):
            low, high = np.expm1([self.log_ratio - half_width, self.log_ratio + half_width])
        return float(low), float(high)


def log_mean(log_ratios: Floats, shared_error: float = 0.0) -> LogMean:
    """Return the mean of log ratios, shape (observations,), at least two.

    Args:
        shared_error: a standard error of the mean that the observations do not show.
    """
    n = log_ratios.size
    error = math.hypot(float(log_ratios.std(ddof=1)) / math.sqrt(n), shared_error)
    return LogMean(float(log_ratios.mean()), error, n - 1)


def mean_interval(values: Floats, confidence: float) -> tuple[float, float, float]:
    """Return mean, lower and upper end of additive values; shape (observations,), at least two."""
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size)
    half_width = float(-student_quantile((1 - confidence) / 2, values.size - 1)) * error
    return mean, mean - half_width, mean + half_width
