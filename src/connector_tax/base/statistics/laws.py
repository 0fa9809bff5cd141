"""Quantiles of the distributions behind intervals, and ranks.

They equal those of ``scipy.stats`` to the last digit, and call the same functions of ``scipy.special``:
``scipy.stats`` takes a second to import and thirty times as long per number, of which an analysis needs
thousands.
"""

from typing import Any

import numpy as np
from scipy import special

from connector_tax.base.statistics.resampling import Floats


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
