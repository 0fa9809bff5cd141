"""Quantiles, ranks, lines and block lengths are those of packages that take too long to import."""

import numpy as np
import pytest
from arch.bootstrap import optimal_block_length
from scipy import optimize, stats

from connector_tax.base.statistics.bootstrap import circular_block_length
from connector_tax.base.statistics.distributions import (
    chi_square_quantile,
    normal_quantile,
    ranks_of,
    student_quantile,
    student_two_sided_p,
)
from connector_tax.base.statistics.drift import straight_line
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.stats.repeats import smallest_detectable

P = np.array([1e-6, 0.005, 0.025, 0.1, 0.5, 0.8, 0.95, 0.975, 0.9995])
FREEDOM = np.array([1.0, 2.0, 2.5, 4.0, 9.0, 37.2, 199.0, 5000.0])[:, None]


def test_quantiles_are_scipys_to_the_last_digit() -> None:
    assert (student_quantile(P, FREEDOM) == stats.t.ppf(P, FREEDOM)).all()
    assert (-student_quantile(P, FREEDOM) == stats.t.isf(P, FREEDOM)).all()
    assert (chi_square_quantile(P, FREEDOM) == stats.chi2.ppf(P, FREEDOM)).all()
    assert [normal_quantile(p) for p in P] == [stats.norm.ppf(p) for p in P]
    assert [student_two_sided_p(t, 3) for t in (-2.5, 0.0, 40.0)] == pytest.approx(
        [2 * stats.t.sf(t, 3) for t in (2.5, 0.0, 40.0)], rel=1e-12
    )


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.0], [1.0, 1.0, np.inf, 0.5, np.inf, 1.0], [7.0]])
def test_equal_values_share_a_rank(values: list[float]) -> None:
    assert ranks_of(np.array(values)).tolist() == stats.rankdata(values).tolist()


def series(n: int, dependence: float, seed: int) -> Floats:
    """Each value is so much of the one before and else its own."""
    own = np.random.default_rng(seed).normal(size=n)
    for k in range(1, n):
        own[k] += dependence * own[k - 1]
    return own


@pytest.mark.parametrize("n", [21, 200, 2000])
@pytest.mark.parametrize("dependence", [-0.5, 0.3, 0.999])
def test_blocks_are_as_long_as_the_reference_has_them(n: int, dependence: float) -> None:
    """Of values, of their ranks, of which are high, and of whole numbers, many of which are equal."""
    for seed in range(3):
        values = series(n, dependence, seed)
        ranks = ranks_of(values)
        high = (ranks > np.percentile(ranks, 90)).astype(np.float64)
        for one in (values, ranks, high, np.round(values)):
            expected = float(optimal_block_length(one)["circular"].iloc[0])
            assert circular_block_length(one) == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("first", [True, False])
def test_two_that_differ_among_equals_are_no_warning(first: bool) -> None:
    """A report began with numpy's lines on a division by zero."""
    values = np.full(24, 3.0)
    values[[0, 1] if first else [-2, -1]] = 2.0, 4.0
    assert circular_block_length(ranks_of(values)) == 8.0


def test_a_line_is_scipys() -> None:
    rng = np.random.default_rng(5)
    for n in (3, 4, 9):
        hours, values = np.sort(rng.uniform(0, 30, n)), rng.normal(100, 3, n)
        line, expected = straight_line(list(hours), list(values), 0.95), stats.linregress(hours, values)
        half = stats.t.ppf(0.975, n - 2) * expected.stderr * line.span_h
        assert (line.change, line.high - line.change) == pytest.approx(
            (expected.slope * line.span_h, half), rel=1e-9
        )
        assert line.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_points_on_a_line_leave_no_doubt() -> None:
    line = straight_line([0.0, 1.0, 3.0], [1.0, 2.0, 4.0], 0.95)
    assert line is not None and (line.low, line.change, line.high) == pytest.approx((3.0, 3.0, 3.0))
    assert 0 < line.p_value < 1e-9


@pytest.mark.parametrize("freedom", [1, 4, 300])
@pytest.mark.parametrize("confidence", [0.8, 0.999])
def test_what_is_found_is_where_the_noncentral_t_says(freedom: int, confidence: float) -> None:
    critical = stats.t.isf((1 - confidence) / 2, freedom)
    expected = optimize.brentq(lambda d: stats.nct.sf(critical, freedom, d) - 0.8, 0.0, 200 * critical)
    assert smallest_detectable(1.0, freedom=freedom, confidence=confidence) == pytest.approx(
        expected, rel=1e-7
    )
