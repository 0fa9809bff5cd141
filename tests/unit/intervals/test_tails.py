"""The upper end of a high percentile: against the exact binomial interval, by hand, and where requests did not finish."""

import math

import numpy as np
import pytest
from scipy import stats

from connector_tax.base.statistics.bootstrap import estimate_percentiles
from connector_tax.base.statistics.tails import OF_A_BLOCK, Tail


def test_the_median_needs_none() -> None:
    assert Tail.of(np.arange(200.0), 50.0, 1) is None


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_for_independent_requests_it_is_near_the_exact_binomial_end(confidence: float) -> None:
    """Of n independent observations, k with P(Binomial(n, 0.9) <= k) >= 1 - a / 2 bounds p90 from above."""
    n = 20_000
    ordered = np.sort(np.random.default_rng(3).exponential(100.0, n))
    tail = Tail.of(ordered, 90.0, 1)
    exact = ordered[int(stats.binom.ppf((1 + confidence) / 2, n, 0.9))]
    point = ordered[int(0.9 * n)]
    assert tail.upper(confidence) - point == pytest.approx(exact - point, rel=0.1)


def test_by_hand() -> None:
    """100 values 1 to 100 in blocks of 6: 25 independent ones, t(24) = 2.0639.

    logit(0.9) = 2.1972; deviation 2.0639 / sqrt(25 * 0.09) = 1.3759; level 1 / (1 + e^-3.5731) = 0.97269, beyond the last
    independent one at 0.96. Quantile there 96.04. Above place 79 (value 80): excesses 1 to 20, mean 10.5. So
    96.04 + 10.5 * 20 * ((0.04 / 0.02731)^(1 / 20) - 1) = 100.09.
    """
    tail = Tail.of(np.arange(1.0, 101.0), 90.0, 6)
    assert tail is not None and OF_A_BLOCK * 6 == 4
    assert tail.upper(0.95) == pytest.approx(100.09, abs=0.01)


def test_two_blocks_and_a_high_confidence_have_a_far_end_and_not_none() -> None:
    """The level is 1 to the last digit, t(2) = 31.6: logit 2.2 + 31.6 / sqrt(2 * 0.09) = 76.7, and ln(1 / (1 - level)) is that; 20 excesses."""
    tail = Tail.of(np.arange(1.0, 101.0), 90.0, 100)
    assert tail.upper(0.999) == pytest.approx(90.1 + 210 * math.expm1((76.7 + math.log(0.1)) / 20), rel=1e-2)
    ends = [tail.upper(c) for c in (0.9, 0.99, 0.999, 0.9999)]
    assert ends == sorted(set(ends))


def test_an_end_among_requests_that_did_not_finish_is_unavailable() -> None:
    ordered = np.concatenate([np.arange(1.0, 187.0), np.full(14, np.inf)])
    tail = Tail.of(ordered, 90.0, 1)
    assert tail is not None and math.isinf(tail.upper(0.99))
    estimate = estimate_percentiles(ordered, (90.0,), 200, np.random.default_rng(0), length=1)[90.0]
    assert estimate.quantity(0.99).high is None
    assert estimate.quantity(0.99).reason == "reaches_failed"


def test_values_that_are_all_the_same_have_no_tail() -> None:
    tail = Tail.of(np.full(50, 7.0), 99.0, 10)
    assert tail is not None and tail.upper(0.95) == 7.0


def test_an_interval_of_p90_reaches_as_far_as_its_tail() -> None:
    values = np.random.default_rng(5).exponential(1.0, 200)
    estimate = estimate_percentiles(values, (90.0,), 400, np.random.default_rng(0), length=20)[90.0]
    tail = Tail.of(np.sort(values), 90.0, 20)
    assert estimate.interval(0.95)[1] == max(
        tail.upper(0.95), np.quantile(estimate.replicates, 0.975, method="nearest")
    )
