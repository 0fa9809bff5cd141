"""The smallest detectable tax, against a closed form and against counting."""

import numpy as np
import pytest
from scipy import stats

from connector_tax.read.stats.repeats import smallest_detectable


def test_a_normal_estimate_needs_two_point_eight_standard_errors() -> None:
    """z(0.975) + z(0.8) = 1.960 + 0.842."""
    assert smallest_detectable(0.01) == pytest.approx(0.02802, abs=1e-5)
    assert smallest_detectable(0.01, power=0.5) == pytest.approx(0.0196, abs=1e-4)


def test_many_degrees_of_freedom_are_a_normal_estimate() -> None:
    assert smallest_detectable(1.0, freedom=5000) == pytest.approx(smallest_detectable(1.0), rel=1e-3)


@pytest.mark.parametrize("blocks", [3, 5, 10])
def test_what_it_names_is_found_four_times_of_five(blocks: int) -> None:
    """20,000 campaigns of so many blocks, each with a t-test of scipy's."""
    sd = 0.05
    truth = smallest_detectable(sd / np.sqrt(blocks), freedom=blocks - 1)
    seen = np.random.default_rng(blocks).normal(truth, sd, (20_000, blocks))
    found = stats.ttest_1samp(seen, 0.0, axis=1)
    share = float(((found.pvalue < 0.05) & (found.statistic > 0)).mean())
    assert share == pytest.approx(0.8, abs=0.01)


def test_two_degrees_of_freedom_and_any_confidence_have_an_answer() -> None:
    """At 99.99 % the critical value is 100."""
    distance = smallest_detectable(1.0, freedom=2, confidence=0.9999)
    assert stats.nct.sf(stats.t.isf(0.00005, 2), 2, distance) == pytest.approx(0.8, abs=1e-6)
