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
            assert low is not None and high is not None
            held[q] += low <= truth[q] <= high
    assert all(180 <= n <= 199 for n in held.values()), held


def test_few_answers_have_a_number_and_no_interval() -> None:
    (level,) = gap_percentiles(
        answers(stream(1, "g"), 2), (50.0,), 100, stream(1, "d"), length=1, confidence=0.95
    ).values()
    assert level.point is not None and level.interval(0.95) == (None, None)
    assert "too few" in (level.why_open(0.95) or "")


def test_no_gaps_have_no_number() -> None:
    (level,) = gap_percentiles([], (50.0,), 100, stream(1, "d"), length=1, confidence=0.95).values()
    assert level.point is None
