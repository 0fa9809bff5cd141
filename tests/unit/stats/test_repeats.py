"""Blocks of launches: taxes, noise floor and drift against closed forms, scipy, and counted coverage."""

import math

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from connector_tax.base.documents.aggregate import Blocks, BlockTax
from connector_tax.base.statistics.bootstrap import LEAST_P
from connector_tax.base.statistics.decisions import p_of
from connector_tax.base.statistics.distributions import log_mean
from connector_tax.read.stats.hypotheses import H1_THRESHOLD, Evidence, judge_hypotheses
from connector_tax.read.stats.launches import Launch
from connector_tax.read.stats.repeats import (
    _drawn_jointly,
    found_by_blocks,
    mean_over_blocks,
    smallest_detectable,
    summarise,
)
from connector_tax.read.stats.taxes import verdict

CONFIGS = ("plain", "plain_again", "x", "y")


def launches(
    blocks: int,
    rng: np.random.Generator,
    *,
    taxes: dict[str, float] | None = None,
    launch_sd: float = 0.0,
    block_sd: float = 0.0,
    drift_per_h: float = 0.0,
    within_sd: float = 0.0,
) -> dict[tuple[str, str], Launch]:
    """A campaign of one launch every six minutes, in random order inside blocks."""
    found, k = {}, 0
    for b in range(1, blocks + 1):
        level = math.log(100) + rng.normal(0, block_sd)
        for config in rng.permutation(CONFIGS):
            value = level + math.log1p((taxes or {}).get(str(config), 0.0)) + drift_per_h * k / 10
            value += rng.normal(0, math.hypot(launch_sd, within_sd)) if launch_sd or within_sd else 0.0
            found[f"r{b}", str(config)] = Launch(f"r{b}", str(config), k / 10, value, within_sd)
            k += 1
    return found


def tax(entry: Blocks | None, config: str) -> BlockTax:
    return next(t for t in entry.taxes if t.config == config)


def test_without_noise_the_tax_is_exact() -> None:
    """What a block is slower by as a whole cancels."""
    entry = summarise(launches(4, np.random.default_rng(1), taxes={"x": 0.3, "y": -0.1}, block_sd=0.5), 0.95)
    for config, truth in (("x", 0.3), ("y", -0.1)):
        found = tax(entry, config)
        assert (found.low, found.point, found.high) == pytest.approx((truth, truth, truth))
        assert list(found.by_block.values()) == pytest.approx([truth] * 4)


def test_the_interval_is_that_of_a_t_test() -> None:
    values = np.random.default_rng(2).normal(0.1, 0.05, 6)
    found = mean_over_blocks(values, 0.95)
    by_scipy = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.low == pytest.approx(math.expm1(by_scipy.low))
    assert found.high == pytest.approx(math.expm1(by_scipy.high))
    assert found.point == pytest.approx(math.exp(values.mean()) - 1)


def test_a_straight_drift_is_found_and_taken_out() -> None:
    """2 % an hour: the adjusted tax is exact, the raw one is off by where the connector happened to stand."""
    entry = summarise(launches(5, np.random.default_rng(3), taxes={"x": 0.2}, drift_per_h=0.02), 0.95)
    assert entry.drift.change.point == pytest.approx(math.expm1(0.02 * entry.drift.hours))
    assert entry.drift.p_value < 1e-4
    assert tax(entry, "x").adjusted.point == pytest.approx(0.2)
    assert tax(entry, "x").point != pytest.approx(0.2)


def test_what_blocks_differ_by_is_no_drift() -> None:
    """500 campaigns whose launches differ by 1 % and whose blocks differ as well, in which nothing drifts."""
    chance = np.random.default_rng(3)
    found = [summarise(launches(3, chance, launch_sd=0.01, block_sd=0.03), 0.95) for _ in range(500)]
    false = np.mean([e.drift.p_value < 0.05 for e in found if e is not None])
    # Three standard errors of a share of 500 are 2.9 %.
    assert false < 0.079


def test_the_deviation_between_launches_has_an_interval_that_holds_it() -> None:
    """Of 400 campaigns of five blocks many have 0.0 % for an estimate, where the truth is 2 %."""
    chance, held = np.random.default_rng(8), 0
    for _ in range(400):
        entry = summarise(launches(5, chance, launch_sd=0.02, within_sd=0.02), 0.95)
        found = entry.between_launches
        held += found.low <= 0.02 <= found.high
        assert found.point == entry.between_launch_sd
    assert held / 400 > 0.917


def test_the_tax_that_is_found_four_times_in_five_lies_in_the_interval_that_is_printed() -> None:
    """800 campaigns whose launches differ by 2 %; by scipy's t-test a tax of the true size is found in 80 % of 20,000."""
    blocks, chance = 3, np.random.default_rng(3)
    true = smallest_detectable(0.02 * math.sqrt(1.5 / blocks), freedom=blocks - 1)
    seen = chance.normal(true, 0.02 * math.sqrt(1.5), (20_000, blocks))
    found = stats.ttest_1samp(seen, 0.0, axis=1)
    assert ((found.pvalue < 0.05) & (found.statistic > 0)).mean() == pytest.approx(0.8, abs=0.01)
    printed = [
        summarise(launches(blocks, chance, launch_sd=0.02), 0.95).noise_floor.found_4_of_5  # type: ignore[index]
        for _ in range(800)
    ]
    size = math.expm1(true)
    # Four standard errors of these shares are 3.1 % and 7.1 %.
    assert np.mean([p.low <= size <= p.high for p in printed]) == pytest.approx(0.95, abs=0.031)
    assert np.mean([p.point < size for p in printed]) == pytest.approx(0.5, abs=0.071)


def test_a_deviation_that_nobody_could_use_has_no_tax_that_is_found() -> None:
    assert found_by_blocks(50.0, 3, 3, 0.95) is None


@pytest.mark.parametrize("blocks", [3, 5])
def test_intervals_hold_the_truth_and_a_bootstrap_of_blocks_does_not(blocks: int) -> None:
    """Launches that differ by 5 %, a tax of 10 %: 2000 campaigns."""
    chance = np.random.default_rng(blocks)
    truth, held, held_by_bootstrap, false_alarms = math.log1p(0.1), 0, 0, 0
    n = 2000
    for _ in range(n):
        own = chance.normal(truth, 0.05, blocks) - chance.normal(0, 0.05, (2, blocks)).mean(axis=0)
        found = mean_over_blocks(own, 0.95)
        held += found.low <= 0.1 <= found.high
        means = own[chance.integers(0, blocks, (200, blocks))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        held_by_bootstrap += low <= truth <= high
        against_itself = mean_over_blocks(chance.normal(0, 0.07, blocks), 0.95)
        false_alarms += not against_itself.low <= 0 <= against_itself.high
    # Three standard errors of a share of 2000 are 1.5 %.
    assert held / n == pytest.approx(0.95, abs=0.016)
    assert false_alarms / n == pytest.approx(0.05, abs=0.016)
    assert held_by_bootstrap / n < held / n - 0.1


def test_a_lost_block_leaves_what_two_configurations_share_through_plain() -> None:
    """Plain differs by 3 % from block to block, connectors by 1 %. Sum and difference are held as often as promised.

    Drawn as if nothing were shared, 90 % of sums are, and differences are twice as wide.
    """
    rng, n, held, wide = np.random.default_rng(3), 600, {"sum": 0, "gap": 0, "sum apart": 0}, np.zeros(2)
    for _ in range(n):
        table = rng.normal(0, 0.03, (6, 1)) + rng.normal(0, 0.01, (6, 2))
        table[rng.integers(6), 1] = math.nan
        drawn = _drawn_jointly(table, ["x", "y"], 500, rng)
        assert [drawn[c].n for c in ("x", "y")] == [6, 5]
        x, y = (np.log1p(drawn[c].replicates) for c in ("x", "y"))
        apart = rng.permutation(y)
        for name, values in (("sum", x + y), ("gap", x - y), ("sum apart", x + apart)):
            low, high = np.quantile(values, [0.025, 0.975])
            held[name] += bool(low <= 0 <= high)
        wide += np.ptp(np.quantile([x - y, x - apart], [0.025, 0.975], axis=1), axis=0)
    assert held["sum"] / n == pytest.approx(0.95, abs=0.03)
    assert held["gap"] / n == pytest.approx(0.96, abs=0.03)
    assert held["sum apart"] < held["sum"] - 0.02 * n
    assert wide[0] < 0.6 * wide[1]
    own = mean_over_blocks(table[~np.isnan(table[:, 1]), 1], 0.95)
    assert drawn["y"].interval(0.95) == (own.low, own.high)


def test_two_blocks_are_no_evidence() -> None:
    assert summarise(launches(2, np.random.default_rng(5)), 0.95) is None


def test_a_block_without_both_plains_does_not_count() -> None:
    found = launches(4, np.random.default_rng(6), taxes={"x": 0.1})
    lost = found["r2", "plain_again"]
    found["r2", "plain_again"] = Launch(lost.block, lost.config, lost.start_h, math.nan, math.nan)
    entry = summarise(found, 0.95)
    assert entry is not None and entry.blocks == 3
    del found["r3", "x"]
    left = summarise(found, 0.95)
    assert left is not None and [t.config for t in left.taxes] == ["y"]


def test_a_configuration_that_lost_a_block_keeps_the_others() -> None:
    found = launches(5, np.random.default_rng(6), taxes={"x": 0.1})
    before = tax(summarise(found, 0.95), "y")
    del found["r3", "x"]
    entry = summarise(found, 0.95)
    assert entry is not None and entry.blocks == 5
    assert sorted(tax(entry, "x").by_block) == ["r1", "r2", "r4", "r5"]
    assert tax(entry, "x").n == 4
    after = tax(entry, "y")
    assert replace(after, adjusted=None) == replace(before, adjusted=None)


CONFIG, DRAWS = "mooncake_both", 2000


def near(border: float, rng: np.random.Generator, confidence: float) -> np.ndarray:
    """Log ratios of 3 to 10 blocks, an end of whose interval lies within 1 % of their deviation beside ``border``."""
    ratios = rng.normal(0.0, 0.02, rng.integers(3, 11))
    mean = log_mean(ratios)
    reach = mean.error * float(stats.t.isf((1 - confidence) / 2, mean.freedom))
    end = mean.log_ratio + rng.choice([-1, 1]) * reach
    return ratios - end + math.log1p(border) + rng.uniform(-0.01, 0.01) * ratios.std(ddof=1)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_near_a_border_table_verdict_p_and_hypothesis_say_the_same(confidence: float) -> None:
    """60 taxes near zero and 60 near H1's threshold; with ends taken from resamples some in a hundred differed."""
    rng = np.random.default_rng(1)
    for border in (0.0, H1_THRESHOLD):
        for _ in range(60):
            ratios = near(border, rng, confidence)
            row = mean_over_blocks(ratios, confidence)
            estimate = _drawn_jointly(ratios[:, None], [CONFIG], DRAWS, rng)[CONFIG]
            assert estimate.interval(confidence) == (row.low, row.high)
            word = "tax" if row.low > 0 else "gain" if row.high < 0 else "no_tax_found"
            assert verdict(estimate, confidence) == word
            p = p_of(estimate, confidence, lambda low, high: (low or 0) > 0 or (high or 0) < 0)
            assert (p is not None) == (word != "no_tax_found")
            evidence = Evidence(
                {CONFIG: estimate}, {}, {}, {}, {}, confidence, n_blocks={CONFIG: len(ratios)}
            )
            h1 = next(v for v in judge_hypotheses(evidence) if v.id == "H1")
            outcome = (
                "supported"
                if row.low >= H1_THRESHOLD
                else "refuted"
                if row.high < H1_THRESHOLD
                else "undetermined"
            )
            assert (h1.outcome, h1.p_value is None) == (outcome, outcome == "undetermined")
            assert h1.p_value is None or h1.p_value <= 1 - confidence
            assert h1.numbers.tax_ttft_p90.low == row.low


def test_p_is_that_of_the_t_test_whose_interval_decides() -> None:
    """Far below what 2,000 resamples could tell."""
    rng = np.random.default_rng(2)
    for tax in (0.03, 0.05, 0.2):
        ratios = rng.normal(math.log1p(tax), 0.005, 5)
        estimate = _drawn_jointly(ratios[:, None], [CONFIG], DRAWS, rng)[CONFIG]
        p = p_of(estimate, 0.95, lambda low, high: low is not None and low > 0)
        assert p == pytest.approx(max(stats.ttest_1samp(ratios, 0.0).pvalue, LEAST_P), rel=1e-3)


def test_an_end_that_no_float_is_large_enough_for_is_unbounded() -> None:
    """Three blocks that differ a thousandfold, asked for a p of one in a billion."""
    ratios = np.log([1.0, 1e3, 1e6])
    estimate = _drawn_jointly(ratios[:, None], [CONFIG], DRAWS, np.random.default_rng(3))[CONFIG]
    assert estimate.interval(1 - LEAST_P) == (-1.0, None)
