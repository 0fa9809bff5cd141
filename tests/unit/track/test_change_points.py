"""Change points: the divergence by hand, found where they are, none where there are none, and what a single last value is."""

import numpy as np
import pytest

from connector_tax.base.statistics.change_points import (
    LEAST_POINTS,
    _divergence,
    change_points,
    noise,
    noise_limit,
    shifts,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def level(*parts: tuple[int, float], sd: float = 1.0, seed: int = 3) -> np.ndarray:
    own = np.random.default_rng(seed)
    return np.concatenate([own.normal(mean, sd, n) for n, mean in parts])


def by_hand(x: np.ndarray, cut: int, end: int) -> float:
    """Matteson and James 2014, equations 5 and 6, with exponent 1."""
    a, b = x[:cut], x[cut:end]
    m, n = len(a), len(b)
    across = np.mean([abs(p - q) for p in a for q in b])
    inside = [np.mean([abs(p - q) for i, p in enumerate(v) for q in v[i + 1 :]]) for v in (a, b)]
    return float(m * n / (m + n) * (2 * across - sum(inside)))


def test_the_divergence_is_that_of_the_definition() -> None:
    x = level((5, 0.0), (6, 2.0))
    found = _divergence(np.abs(x[:, None] - x[None, :])[None])[0]
    for i, cut in enumerate(range(LEAST_POINTS, len(x) - LEAST_POINTS + 1)):
        for j, end in enumerate(range(2 * LEAST_POINTS, len(x) + 1)):
            expected = by_hand(x, cut, end) if end - cut >= LEAST_POINTS else -np.inf
            assert found[i, j] == pytest.approx(expected)


def test_a_level_that_rises_and_falls_again_is_found() -> None:
    assert change_points(level((12, 0.0), (12, 5.0), (12, 0.0)), rng()) == [12, 24]


def test_changes_are_found_where_they_are() -> None:
    assert change_points(level((20, 0.0), (20, 5.0), (20, 1.0)), rng()) == [20, 40]


def test_noise_and_equal_values_have_no_change() -> None:
    assert change_points(level((60, 0.0)), rng()) == []
    assert change_points(np.ones(30), rng()) == []
    assert change_points(np.array([]), rng()) == []


def test_a_change_has_its_size_with_an_interval_and_the_levels_beside_it() -> None:
    x = level((30, 1.0), (30, 4.0))
    [found] = shifts(x, 0.5, 0.95, rng())
    assert (found.at, found.confirmed) == (30, True)
    assert (found.before, found.after) == pytest.approx((x[:30].mean(), x[30:].mean()))
    # Student's t of two samples with one variance, scipy's own.
    from scipy import stats

    apart = stats.ttest_ind(x[30:], x[:30]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((apart.low, apart.high))


def test_a_change_below_the_threshold_is_none() -> None:
    x = level((30, 0.0), (30, 3.0), sd=0.3)
    assert [s.at for s in shifts(x, 2.0, 0.95, rng())] == [30]
    assert shifts(x, 4.0, 0.95, rng()) == []


def test_a_single_last_value_is_suspected_and_a_second_one_confirms_it() -> None:
    x = level((12, 0.0))
    [suspected] = shifts(np.append(x, 9.0), 1.0, 0.95, rng())
    assert (suspected.at, suspected.confirmed) == (12, False)
    [confirmed] = shifts(np.append(x, [9.0, 8.0]), 1.0, 0.95, rng())
    assert (confirmed.at, confirmed.confirmed) == (12, True)


def test_a_last_value_that_a_second_one_does_not_repeat_is_no_change() -> None:
    assert shifts(np.append(level((12, 0.0)), [9.0, 0.1]), 1.0, 0.95, rng()) == []


def test_with_few_values_nothing_is_told() -> None:
    for n in range(5):
        assert shifts(np.arange(n, dtype=float) * 100, 0.0, 0.95, rng()) == []


def test_the_same_values_give_the_same_changes() -> None:
    x = level((15, 0.0), (9, 1.2), (9, 0.0))
    assert shifts(x, 0.1, 0.95, rng()) == shifts(x, 0.1, 0.95, rng())


def test_noise_is_that_inside_the_parts() -> None:
    spread, freedom = noise(np.array([1.0, 3.0, 10.0, 14.0]), [2])
    assert (spread, freedom) == (pytest.approx(np.sqrt(10 / 2)), 2)


def test_of_differences_of_a_thing_from_itself_so_many_lie_within_the_limit() -> None:
    """Student's t of the root mean square, since their mean is known to be zero."""
    own = np.random.default_rng(5)
    inside = [abs(own.normal()) < noise_limit(own.normal(size=6), 0.95) for _ in range(4000)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.012)


def test_of_histories_without_a_change_next_to_none_has_one() -> None:
    own = np.random.default_rng(11)
    found = [
        shifts(own.normal(0, 1, 25), noise_limit(own.normal(0, 1, 25), 0.95), 0.95, own) for _ in range(100)
    ]
    assert sum(any(s.confirmed for s in f) for f in found) <= 2
