"""How long blocks of a series have to be, by the rule of Politis and White (2004), as corrected by Patton, Politis and White (2009).

The mean squared error of a bootstrapped variance is least at a length that follows from the autocovariances, which are looked at up to
twice the lag from which on none differs from zero, and weighted with a window that is flat in its inner half. The package ``arch`` has the same
rule; a test holds one against the other. It is not asked itself, since it brings pandas and statsmodels, a second at the start of each analysis.
"""

import math

import numpy as np

from connector_tax.base.statistics.resampling import Floats

# How many autocorrelations in a row have to be small, at least.
FEWEST_SMALL = 5


def circular_block_length(series: Floats) -> float:
    """For the circular block bootstrap; not rounded, and at most 3 sqrt(n) or a third of the series.

    Args:
        series: shape (n,), not all the same.
    """
    n = series.size
    covariances, correlations = _autocovariances(series)
    most = covariances.size - 1
    bandwidth = min(2 * max(_last_dependent(correlations, n, _in_a_row(n)), 1), most)
    lags = np.arange(1, bandwidth + 1)
    weighted = 2 * np.minimum(1.0, 2 * (1 - lags / bandwidth)) * covariances[1 : bandwidth + 1]
    slope, long_run = float(lags @ weighted), float(covariances[0] + weighted.sum())
    longest = math.ceil(min(3 * math.sqrt(n), n / 3))
    if long_run == 0:
        return float(longest)
    return float(min(math.cbrt(1.5 * (slope / long_run) ** 2 * n), longest))


def _in_a_row(n: int) -> int:
    return max(FEWEST_SMALL, int(math.log10(n)))


def _autocovariances(series: Floats) -> tuple[Floats, Floats]:
    """Up to the largest lag that the rule looks at; autocorrelations without their sign, each of the parts that a lag leaves."""
    n = series.size
    deviations = series - series.mean()
    lags = range(math.ceil(math.sqrt(n)) + _in_a_row(n) + 1)
    products = np.array([deviations[k:] @ deviations[: n - k] for k in lags])
    squares = np.cumsum(deviations**2)
    # Both parts are one shorter than those whose product is taken.
    shorter = np.arange(len(lags)) + 1
    parts = (squares[-1] - squares[shorter - 1]) * squares[n - shorter - 1]
    # A part that holds nothing but the mean has no correlation, and what is none is not small.
    with np.errstate(divide="ignore", invalid="ignore"):
        return products / n, np.abs(products) / np.sqrt(parts)


def _last_dependent(correlations: Floats, n: int, in_a_row: int) -> int:
    """The lag from which on so many autocorrelations in a row are small; the largest where there is none."""
    small = correlations < 2 * math.sqrt(math.log10(n) / n)
    runs = np.convolve(small, np.ones(in_a_row), "valid")[:-1] == in_a_row
    found = np.flatnonzero(runs)
    return int(found[0]) if found.size else correlations.size
