"""The upper end of a high percentile's interval, which resampling cannot see.

A queue's worst requests come in busy periods, and 200 requests may contain none of the long ones; then all
resamples lie below the truth. So the upper end is Woodruff's (1952): the percentile at a level raised by the
uncertainty of the share of requests below it, on the logit scale, with one independent request per block. If
less than one independent request lies above that level, an exponential tail replaces the unseen part, as for
waiting times (Kingman 1964); since its mean comes from few values, it is extended as Pareto's.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.statistics.distributions import student_quantile

Floats = NDArray[np.float64]
# Least percentile; at the median resampling sees enough on both sides.
HIGH_FROM = 75.0
# Blocks are twice as long as the data require; with two thirds of that, intervals covered the p90 of 16
# queues of 200 and 600 requests in 88 to 100 % of cases, of half of them in 95 to 98.
OF_A_BLOCK = 2 / 3
# The largest exponent: a larger end is no useful bound, and its power would overflow.
FARTHEST = 100.0
# The mean excess is of observations above this share.
TAIL_FROM = 0.8


@dataclass(frozen=True, slots=True)
class Tail:
    """The properties of a sample that the upper end of one percentile needs.

    Attributes:
        share: the percentile as a share.
        independent: the equivalent number of independent observations, at least 2.
        n: observations.
        above: the largest of them, in order, from ``share`` on; +infinity for an unfinished request.
        excess: mean excess of finite values over the ``TAIL_FROM`` quantile.
        excesses: number of values in that mean.
        factor: widens the interval of the level.
    """

    share: float
    independent: float
    n: int
    above: Floats
    excess: float
    excesses: int
    factor: float = 1.0

    @classmethod
    def of(cls, ordered: Floats, q: float, length: int, factor: float = 1.0) -> "Tail | None":
        """Extract what the percentile ``q`` needs of a sample; None below ``HIGH_FROM``.

        Args:
            ordered: shape (n,), in rising order.
            length: of the sample's blocks.
        """
        if q < HIGH_FROM:
            return None
        n, share = ordered.size, q / 100
        worst = ordered[math.floor((n - 1) * TAIL_FROM) :]
        excesses = worst[np.isfinite(worst)] - worst[0]
        excesses = excesses[excesses > 0]
        excess = float(excesses.mean()) if excesses.size else 0.0
        independent = max(2.0, n / max(1.0, OF_A_BLOCK * length))
        above = ordered[math.floor((n - 1) * share) :]
        return cls(share, independent, n, above, excess, int(excesses.size), factor)

    def upper(self, confidence: float) -> float:
        """Return the upper end of an equal-tailed interval; +infinity if it reaches an unfinished request."""
        # The highest level whose true value may be ``share``, on the logit scale.
        t = float(student_quantile((1 + confidence) / 2, max(2.0, self.independent - 1)))
        deviation = self.factor * t / math.sqrt(self.independent * self.share * (1 - self.share))
        logit = math.log(self.share / (1 - self.share)) + deviation
        level = 1 / (1 + math.exp(-logit))
        observed = self._quantile(level)
        last_level = max(self.share, 1 - 1 / self.independent)
        if level <= last_level:
            return observed
        # -ln(1 - level) from the logit itself: with two blocks and 99.9 % the level rounds to 1.
        beyond = float(np.logaddexp(0.0, logit)) + math.log1p(-last_level)
        # The next value of an exponential law whose mean comes from few values follows Pareto's, slightly
        # longer.
        n_excesses = max(1, self.excesses)
        return max(
            observed,
            self._quantile(last_level)
            + self.excess * n_excesses * math.expm1(min(beyond / n_excesses, FARTHEST)),
        )

    def _quantile(self, level: float) -> float:
        """Interpolate linearly between order statistics; +infinity if it touches an infinite one."""
        position = (self.n - 1) * level - (self.n - self.above.size)
        low = min(max(math.floor(position), 0), self.above.size - 1)
        weight = max(position - low, 0.0)
        first, second = self.above[low], self.above[min(low + 1, self.above.size - 1)]
        if weight == 0 or np.isinf(first):
            return float(first)
        return float(first + weight * (second - first))
