"""Resampling against independent computations, and against what it must do on data of known law."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import bootstrap, norm, t

from connector_tax.base.statistics.bootstrap import (
    Estimate,
    block_length,
    estimate_jointly,
    estimate_percentiles,
    pooled_length,
    small_sample_factor,
    widened,
)
from connector_tax.base.statistics.resampling import Counts, Floats, SortedColumn, block_counts
from connector_tax.read.stats.taxes import relative, verdict


def resampled_percentiles(values: Floats, counts: Counts, qs: tuple[float, ...]) -> dict[float, Floats]:
    """Each percentile of each resample, looked for everywhere; arrays of shape (draws,)."""
    column = SortedColumn.of(values, qs)
    return {q: column.percentiles(q, counts, None) for q in qs}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_counts_come_in_blocks() -> None:
    """Neighbours are drawn together: that is what keeps the dependence of a queue."""
    counts = block_counts(1000, 400, rng(), 10).astype(float)
    correlation = np.corrcoef(counts[500], counts[501])[0, 1]
    assert correlation > 0.7
    assert abs(np.corrcoef(counts[500], counts[530])[0, 1]) < 0.2


@pytest.mark.parametrize("q", [50.0, 90.0, 99.0])
def test_a_resamples_percentile_is_numpys(q: float) -> None:
    """The percentile from counts equals numpy's on the repeated values."""
    values = rng(1).exponential(size=37)
    counts = block_counts(37, 25, rng(2), 4)
    expected = [np.percentile(np.repeat(values, column), q) for column in counts.T]
    assert resampled_percentiles(values, counts, (q,))[q] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["independent", "one slow wave", "ties", "failures"])
def test_looking_near_a_percentile_finds_what_looking_everywhere_finds(kind: str) -> None:
    """3,000 values: of the slow wave a resample may have its percentile far from where it mostly is."""
    values = {
        "independent": rng(1).exponential(size=3000),
        "one slow wave": np.sin(np.linspace(0, 2 * np.pi, 3000)) + rng(1).normal(0, 0.01, 3000),
        "ties": rng(1).integers(0, 5, 3000).astype(float),
        "failures": np.where(rng(1).random(3000) < 0.09, np.inf, rng(1).exponential(size=3000)),
    }[kind]
    found = estimate_percentiles(values, (0.0, 1.0, 50.0, 90.0, 99.9), 300, rng(2))
    length = block_length([values])
    everywhere = resampled_percentiles(values, block_counts(3000, 300, rng(2), length), tuple(found))
    for q, estimate in found.items():
        by_hand = widened(estimate.point, everywhere[q], small_sample_factor(3000, length, 0.95))
        assert np.array_equal(estimate.replicates, by_hand, equal_nan=True)


def test_an_interval_that_reaches_failures_says_so() -> None:
    """8 of 100 failed: p90 exists, but some resamples have it on a failure."""
    values = rng(5).permutation(np.concatenate([rng(3).uniform(10, 20, 92), np.full(8, np.inf)]))
    found = estimate_percentiles(values, (90.0,), 1000, rng())[90.0]
    assert found.point is not None
    assert found.interval(0.95)[1] is None
    assert found.quantity(0.95).reason == "reaches_failed"


def test_no_observations_is_a_reason_not_a_crash() -> None:
    assert estimate_percentiles(np.empty(0), (50.0,), 100, rng())[50.0].reason == "no_observations"


def test_columns_of_the_same_requests_are_resampled_together() -> None:
    """Replicate i of TTFT and of E2E is the same resample, whatever the chunks it is drawn in."""
    values = rng(1).exponential(size=3000)
    found = estimate_jointly({"ttft": values, "e2e": 2 * values}, (50.0, 90.0), 700, rng())
    assert found["e2e", 90.0].replicates == pytest.approx(2 * found["ttft", 90.0].replicates)
    assert found["ttft", 50.0].replicates.shape == (700,)
    assert np.unique(found["ttft", 50.0].replicates).size > 100


def test_an_interval_agrees_with_scipys_bootstrap_on_independent_data() -> None:
    """With n^(1/3) blocks of independent data the bounds are those of the plain bootstrap, about."""
    values = rng(2).normal(100, 10, size=400)
    low, high = estimate_percentiles(values, (50.0,), 2000, rng(3))[50.0].interval(0.95)
    other = bootstrap(
        (values,), np.median, n_resamples=2000, method="percentile", random_state=np.random.default_rng(4)
    ).confidence_interval
    assert low == pytest.approx(other.low, abs=0.5)
    assert high == pytest.approx(other.high, abs=0.5)


def test_a_resample_that_could_be_anything_widens_the_interval_on_both_sides() -> None:
    """4 % of the resamples are infinity over infinity: neither bound is known at 95 %."""
    replicates = np.concatenate([np.linspace(0.1, 0.2, 96), np.full(4, np.nan)])
    assert Estimate(0.15, replicates, 100).interval(0.95) == (None, None)
    low, high = Estimate(0.15, replicates, 100).interval(0.80)
    assert low is not None and high is not None and low < 0.11 and high > 0.19


def test_no_tax_is_found_where_there_is_none() -> None:
    """Two samples of the same law: the interval of the tax covers zero in about 95 of 100 seeds."""
    found = 0
    for seed in range(100):
        a, b = rng(seed).gamma(4, size=(2, 200))
        x = estimate_percentiles(a, (90.0,), 400, rng(seed + 1000))[90.0]
        y = estimate_percentiles(b, (90.0,), 400, rng(seed + 2000))[90.0]
        found += verdict(relative(x, y), 0.95) == "no_tax_found"
    assert found >= 88


def test_a_tax_is_the_ratio_less_one() -> None:
    own = Estimate(13.0, np.array([12.0, 13.0, 14.0]), 10)
    plain = Estimate(10.0, np.array([10.0, 10.0, 10.0]), 9)
    tax = relative(own, plain)
    assert tax.point == pytest.approx(0.3)
    assert tax.replicates == pytest.approx([0.2, 0.3, 0.4])
    assert tax.n == 9


def test_a_tax_without_a_baseline_says_why() -> None:
    own = Estimate(13.0, np.array([13.0]), 10)
    missing = Estimate(None, np.empty(0), 0, "p90 falls on requests that failed or did not finish")
    found = relative(own, missing)
    assert (found.reason, found.subject) == (missing.reason, "plain")


def dependent(coefficient: float, n: int, seed: int) -> np.ndarray:
    series: np.ndarray = lfilter([1.0], [1.0, -coefficient], rng(seed).normal(size=n + 500))[500:]
    return series


def test_blocks_are_as_long_as_the_dependence() -> None:
    """Independent data gets the shortest, a slow queue longer ones, nothing more than a fifth of all."""
    lengths = {
        c: np.median([block_length([dependent(c, 1000, seed)]) for seed in range(15)])
        for c in (0.0, 0.6, 0.9)
    }
    assert 10 <= lengths[0.0] <= 16
    assert lengths[0.0] < lengths[0.6] < lengths[0.9] <= 200
    assert 100 < block_length([dependent(0.999, 1000, 1)]) <= 200
    assert block_length([dependent(0.9, 1000, 1), rng().normal(size=1000)]) == block_length(
        [dependent(0.9, 1000, 1)]
    )


def test_a_length_is_found_where_nothing_varies_or_nothing_finished() -> None:
    assert block_length([np.ones(1000)]) == 10
    assert block_length([np.full(1000, np.inf)]) == 10
    assert block_length([np.empty(0)]) == 1
    assert block_length([rng().normal(size=7)]) == 2
    assert block_length([np.where(rng().random(200) < 0.1, np.inf, 1.0)]) >= 6


def test_few_blocks_widen_as_students_t_does() -> None:
    """200 in blocks of 40 are five: t with four degrees of freedom, and a fifth of the variance lost."""
    expected = t.ppf(0.975, 4) / norm.ppf(0.975) * np.sqrt(200 / 160)
    assert small_sample_factor(200, 40, 0.95) == pytest.approx(expected)
    assert small_sample_factor(10**6, 100, 0.95) == pytest.approx(1.0, abs=1e-3)
    values = widened(100.0, np.array([50.0, 100.0, 200.0, np.inf]), 2.0)
    assert values == pytest.approx([25.0, 100.0, 400.0, np.inf])
    assert widened(0.0, np.array([-1.0, 0.0, 2.0]), 2.0) == pytest.approx([-2.0, 0.0, 4.0])


def test_a_tax_of_two_queues_is_held_as_often_as_said() -> None:
    """M/M/1 at half its capacity, 200 requests, no tax: single requests find one in every third campaign."""
    held = {"blocks": 0, "single": 0}
    campaigns = 200
    for seed in range(campaigns):
        chance = rng(seed)
        gaps, service = chance.exponential(1.0, (2, 400)), chance.exponential(0.5, (2, 400))
        series = np.zeros((2, 400))
        wait = np.zeros(2)
        for k in range(400):
            series[:, k] = wait + service[:, k]
            wait = np.maximum(0.0, series[:, k] - gaps[:, k])
        a, b = (estimate_percentiles(x, (90.0,), 400, chance)[90.0] for x in series[:, 200:])
        low, high = relative(a, b).interval(0.95)
        held["blocks"] += low is not None and high is not None and low <= 0 <= high
        drawn = [np.percentile(x[chance.integers(0, 200, (400, 200))], 90, axis=1) for x in series[:, 200:]]
        alone = np.quantile(drawn[0] / drawn[1] - 1, [0.025, 0.975])
        held["single"] += alone[0] <= 0 <= alone[1]
    assert 0.92 <= held["blocks"] / campaigns <= 0.99
    assert held["single"] / campaigns < 0.75


def test_a_calm_cell_takes_the_block_length_of_its_siblings() -> None:
    """The median of all under one load; never less than its own, never more than a fifth of its requests."""
    assert pooled_length(6, [6, 20, 24], 200) == 20
    assert pooled_length(24, [6, 20, 24], 200) == 24
    assert pooled_length(6, [6, 20, 24, 30], 200) == 22
    assert pooled_length(6, [6, 90, 100], 50) == 10
    assert pooled_length(6, [6], 200) == 6
