"""Percentiles of the gaps between tokens hold the truth although gaps of one answer go together."""

import numpy as np
import pytest

from connector_tax.base.seeds import stream
from connector_tax.base.statistics.gaps import gap_percentiles

QS = (50.0, 90.0)


def answers(rng: np.random.Generator, n: int, tokens: int = 60) -> "list[np.ndarray]":
    """Each answer has a speed of its own: 60 gaps of one say little more than one."""
    return [rng.gamma(4.0, rng.lognormal(0.0, 0.3) / 4.0, tokens) for _ in range(n)]


def test_the_point_is_that_of_all_gaps() -> None:
    gaps = answers(stream(1, "gaps"), 50)
    found = gap_percentiles(gaps, QS, 200, stream(1, "draws"), length=1, confidence=0.95)
    for q in QS:
        assert found[q].point == pytest.approx(np.percentile(np.concatenate(gaps), q))
        assert found[q].n == 3000


def test_intervals_hold_the_truth_in_about_95_of_100() -> None:
    truth = {q: float(np.percentile(np.concatenate(answers(stream(0, "truth"), 20_000)), q)) for q in QS}
    held = dict.fromkeys(QS, 0)
    for k in range(200):
        gaps = answers(stream(k, "gaps"), 60)
        found = gap_percentiles(gaps, QS, 300, stream(k, "draws"), length=1, confidence=0.95)
        for q in QS:
            low, high = found[q].interval(0.95)
            held[q] += low <= truth[q] <= high
    assert all(180 <= n <= 199 for n in held.values()), held


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_answers_have_a_number_and_no_interval(n: int) -> None:
    (level,) = gap_percentiles(
        answers(stream(1, "g"), n), (50.0,), 100, stream(1, "d"), length=1, confidence=0.95
    ).values()
    assert level.point is not None and level.interval(0.95) == (None, None)
    assert level.quantity(0.95).reason == "few_answers"


@pytest.mark.parametrize("n", [10, 11, 16])
def test_an_interval_of_few_answers_holds_its_own_point(n: int) -> None:
    for k in range(40):
        rng = stream(k, "skewed")
        gaps = [rng.lognormal(0.0, 1.5, rng.integers(1, 40)) for _ in range(n)]
        found = gap_percentiles(gaps, (*QS, 99.0), 100, stream(k, "d"), length=3, confidence=0.95)
        for level in found.values():
            low, high = level.interval(0.95)
            assert low <= level.point <= high


def test_no_gaps_have_no_number() -> None:
    (level,) = gap_percentiles([], (50.0,), 100, stream(1, "d"), length=1, confidence=0.95).values()
    assert level.point is None
