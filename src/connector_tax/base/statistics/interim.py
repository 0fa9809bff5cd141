"""Preregistered interim analyses of a cell (looks), and the widening of an interval that holds at all of
them.

Looking several times and stopping at will increases the chance of error. Repeated confidence intervals
(Jennison & Turnbull 1984) hold at all looks together, whatever ends the cell; with equal width at each
(Pocock 1977) they are a single look's intervals times one factor.
"""

import itertools
from functools import lru_cache

import numpy as np

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.statistics.distributions import normal_quantile

# Seeds the multivariate normal's quasi-Monte Carlo, for a reproducible factor.
SEED = 20260526


def interim_analyses(spec: CellSpec) -> tuple[int, ...]:
    """Return the completed requests at each look; empty without a rule.

    They begin at ``min_completed``, double, and end at ``max_completed``.
    """
    if spec.stop_half_width is None or spec.max_completed is None:
        return ()
    doubling = itertools.takewhile(
        lambda n: n < (spec.max_completed or 0), (spec.min_completed * 2**k for k in itertools.count())
    )
    return (*doubling, spec.max_completed)


def interim_factor(spec: CellSpec, confidence: float) -> float:
    """Return the factor of the cell's intervals over those of a cell with fixed length."""
    looks = interim_analyses(spec)
    return pocock_factor(looks, confidence) if looks else 1.0


@lru_cache(maxsize=64)
def pocock_factor(looks: tuple[int, ...], confidence: float) -> float:
    """Return c / z, where all looks' standardised means lie within +-c with probability ``confidence``.

    Args:
        looks: observations at each, rising. Means at n and m observations correlate as sqrt(n / m).
    """
    z = normal_quantile((1 + confidence) / 2)
    if len(looks) < 2:
        return 1.0
    # The import takes a second, and only cells with a stopping rule need it.
    from scipy import optimize, stats

    n = np.asarray(looks, dtype=np.float64)
    correlation = np.sqrt(np.minimum.outer(n, n) / np.maximum.outer(n, n))

    def missing(c: float) -> float:
        box = np.full(n.size, c)
        law = stats.multivariate_normal(
            np.zeros(n.size), correlation, seed=SEED, maxpts=20_000 * n.size, abseps=1e-4
        )
        return float(law.cdf(box, lower_limit=-box)) - confidence

    # Bonferroni's bound is at least the solution.
    highest = normal_quantile(1 - (1 - confidence) / 2 / n.size)
    return float(optimize.brentq(missing, z, highest + 1e-6, xtol=1e-3)) / z
