"""Arrivals are known before the run and are what their name says."""

import numpy as np
import pytest
from scipy import stats

from connector_tax.traffic.arrivals import BLOCK, Schedule


def test_fixed_arrivals_lie_on_an_exact_grid() -> None:
    """Arrival k is due at k / rate, also after a million of them: no rounding adds up."""
    schedule = Schedule("fixed", 3.0, seed=1)
    assert [schedule[k] for k in range(4)] == [0, 333333333, 666666667, 1000000000]
    assert schedule[3_000] == 1_000_000_000_000


def test_poisson_gaps_follow_the_exponential_law() -> None:
    """Kolmogorov-Smirnov against scipy's exponential distribution with mean 1 / rate."""
    schedule = Schedule("poisson", 50.0, seed=5)
    offsets = np.array([0] + [schedule[k] for k in range(5000)])
    gaps_s = np.diff(offsets) / 1e9
    assert stats.kstest(gaps_s, stats.expon(scale=1 / 50).cdf).pvalue > 0.001


@pytest.mark.parametrize("arrival", ["fixed", "poisson"])
def test_the_same_seed_gives_the_same_schedule_in_any_order(arrival: str) -> None:
    far_first = Schedule(arrival, 8.0, seed=3)
    last = far_first[2 * BLOCK + 7]
    one_by_one = Schedule(arrival, 8.0, seed=3)
    assert [one_by_one[k] for k in range(2 * BLOCK + 8)][-1] == last


def test_another_seed_gives_another_schedule() -> None:
    assert Schedule("poisson", 8.0, seed=3)[5] != Schedule("poisson", 8.0, seed=4)[5]


def test_arrivals_never_go_back() -> None:
    schedule = Schedule("poisson", 1000.0, seed=0)
    offsets = [schedule[k] for k in range(3 * BLOCK)]
    assert offsets == sorted(offsets)
