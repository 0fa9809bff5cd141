"""Arrivals are known before the run and are what their name says."""

import numpy as np
import pytest
from scipy import stats

from connector_tax.run.workload.arrivals import BLOCK, Ramp, Schedule, gamma_gaps


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


def test_another_seed_gives_another_schedule() -> None:
    assert Schedule("poisson", 8.0, seed=3)[5] != Schedule("poisson", 8.0, seed=4)[5]


@pytest.mark.parametrize(("low", "high"), [(2.0, 20.0), (20.0, 2.0), (5.0, 5.0)])
def test_a_ramp_has_at_every_time_as_many_arrivals_as_its_rate_adds_up_to(low: float, high: float) -> None:
    """Fixed arrivals: arrival k comes when the integral of the rate is k; the integral by small steps, over the ramp and beyond."""
    over_s, step_s = 10.0, 0.001
    times = np.arange(0.0, 14.0, step_s) + step_s / 2
    rates = np.where(times < over_s, low + (high - low) * times / over_s, high)
    expected = np.cumsum(rates) * step_s
    schedule = Schedule("fixed", high, seed=1, ramp=Ramp(low, high, round(over_s * 1e9)))
    for k in range(1, int(expected[-1])):
        at_s = schedule[k] / 1e9
        assert abs(at_s - times[np.searchsorted(expected, k)]) < 2 * step_s


def test_random_arrivals_follow_a_ramp_too() -> None:
    """Seconds 0 to 10 rise from 10 to 100 per second: their count up to 4.53 s is Poisson, with the integral as its mean."""
    counts = []
    for seed in range(40):
        schedule = Schedule("poisson", 100.0, seed=seed, ramp=Ramp(10.0, 100.0, 10_000_000_000))
        counts.append(schedule.count_before(4_530_000_000))
    # 10 t + 4.5 t^2 at 4.53 s.
    expected = 10 * 4.53 + 4.5 * 4.53**2
    assert np.mean(counts) == pytest.approx(expected, abs=4 * np.sqrt(expected / 40))


def everything(arrival: str, n: int) -> list[int]:
    """As the first version drew it: all gaps from the start, in one go."""
    if arrival == "fixed":
        return [round(k * (1e9 / 300.0)) for k in range(n)]
    gaps = [gamma_gaps(300.0, {"poisson": 1.0, "gamma": 0.5}[arrival], b, 3) for b in range(-(-n // BLOCK))]
    return np.cumsum(np.concatenate(gaps))[:n].tolist()


@pytest.mark.parametrize("arrival", ["fixed", "poisson", "gamma"])
def test_what_is_kept_does_not_grow_with_what_was_read(arrival: str) -> None:
    """Forwards, backwards and at random, and counted: the offsets are those of one long draw, out of two blocks that are kept."""
    n = 40 * BLOCK
    expected = everything(arrival, n)
    schedule = Schedule(arrival, 300.0, seed=3, shape=0.5)
    rng = np.random.default_rng(1)
    order = [*range(0, n, 7), *reversed(range(0, n, 11)), *rng.integers(0, n, 500).tolist()]
    assert [schedule[k] for k in order] == [expected[k] for k in order]
    for k in rng.integers(1, n, 50).tolist():
        assert schedule.count_before(expected[k]) == expected.index(expected[k])
        assert schedule.count_before(expected[k] + 1) == np.searchsorted(expected, expected[k], side="right")
    assert sum(block.size for block in schedule._kept.values()) <= 2 * BLOCK
    assert len(schedule._ends) <= 41
