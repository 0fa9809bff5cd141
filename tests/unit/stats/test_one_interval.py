"""A tax over blocks has one interval: table, verdict, p and hypothesis go by the same ends, also where an end nearly touches a border."""

import math

import numpy as np
import pytest
from scipy import stats

from connector_tax.base.statistics.bootstrap import LEAST_P
from connector_tax.base.statistics.p_values import p_of
from connector_tax.base.statistics.student import log_mean
from connector_tax.read.stats.hypotheses import H1_THRESHOLD, Evidence, judge_hypotheses
from connector_tax.read.stats.repeats import _drawn_jointly, mean_over_blocks
from connector_tax.read.stats.taxes import verdict

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
