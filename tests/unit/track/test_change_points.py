"""Change points: the divergence by hand, found where they are, none where there are none, and what a single last value is."""

import numpy as np
import pytest

from connector_tax.base.statistics.change_points import (
    LEAST_POINTS,
    Shift,
    _divergence,
    change_points,
    noise,
    noise_limit,
    pooled_limit,
    search,
    spread_limit,
)
from connector_tax.base.statistics.change_points import shifts as shifts_at


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def shifts(values: np.ndarray, threshold: float) -> list[Shift]:
    return shifts_at(values, search(values, rng), threshold, 0.95)


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
    [found] = shifts(x, 0.5)
    assert (found.at, found.confirmed) == (30, True)
    assert (found.before, found.after) == pytest.approx((x[:30].mean(), x[30:].mean()))
    # Student's t of two samples with one variance, scipy's own.
    from scipy import stats

    apart = stats.ttest_ind(x[30:], x[:30]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((apart.low, apart.high))


def test_a_change_below_the_threshold_is_none() -> None:
    x = level((30, 0.0), (30, 3.0), sd=0.3)
    assert [s.at for s in shifts(x, 2.0)] == [30]
    assert shifts(x, 4.0) == []


def test_a_single_last_value_is_suspected_and_a_second_one_confirms_it() -> None:
    x = level((12, 0.0))
    [suspected] = shifts(np.append(x, 9.0), 1.0)
    assert (suspected.at, suspected.confirmed) == (12, False)
    [confirmed] = shifts(np.append(x, [9.0, 8.0]), 1.0)
    assert (confirmed.at, confirmed.confirmed) == (12, True)


def test_a_last_value_that_a_second_one_does_not_repeat_is_no_change() -> None:
    assert shifts(np.append(level((12, 0.0)), [9.0, 0.1]), 1.0) == []


def test_with_few_values_nothing_is_told() -> None:
    for n in range(5):
        assert shifts(np.arange(n, dtype=float) * 100, 0.0) == []


def test_the_same_values_give_the_same_changes() -> None:
    x = level((15, 0.0), (9, 1.2), (9, 0.0))
    assert shifts(x, 0.1) == shifts(x, 0.1)


def test_noise_is_that_inside_the_parts() -> None:
    spread, freedom = noise(np.array([1.0, 3.0, 10.0, 14.0]), [2])
    assert (spread, freedom) == (pytest.approx(np.sqrt(10 / 2)), 2)


def test_of_differences_of_a_thing_from_itself_so_many_lie_within_the_limit() -> None:
    """Student's t of the root mean square, since their mean is known to be zero."""
    own = np.random.default_rng(5)
    inside = [abs(own.normal()) < noise_limit(own.normal(size=6), 0.95)[0] for _ in range(4000)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.012)


def test_of_histories_without_a_change_next_to_none_has_one() -> None:
    own = np.random.default_rng(11)
    found = [shifts(own.normal(0, 1, 25), noise_limit(own.normal(0, 1, 25), 0.95)[0]) for _ in range(100)]
    assert sum(any(s.confirmed for s in f) for f in found) <= 2


@pytest.mark.parametrize("size", [5.0, 30.0, 100.0])
def test_one_bad_night_hides_no_later_change(size: int) -> None:
    """Of the noise, of the levels and of the search."""
    long, short = level((15, 0.0), (15, 4.7)), level((28, 0.0), (2, 6.0))
    for x in (long, short):
        x[5] += size
    [found] = shifts(long, 2.8)
    assert (found.at, found.confirmed) == (15, True) and found.low < 4.7 < found.high
    assert [(s.at, s.confirmed) for s in shifts(short, 2.8)] == [(28, True)]


def test_one_bad_pair_widens_no_threshold() -> None:
    pairs = np.random.default_rng(2).normal(size=30)
    limit, n = noise_limit(np.append(pairs, 50.0), 0.95)
    assert (limit, n) == (pytest.approx(noise_limit(pairs, 0.95)[0]), 30)


def test_the_standard_errors_of_few_blocks_are_pooled() -> None:
    """Of three blocks each: Student's t of 2 degrees is 4.3, that of all campaigns together 2.0."""
    own = np.random.default_rng(4)
    errors = own.normal(size=(30, 3)).std(axis=1, ddof=1) / np.sqrt(3)
    limit, n = pooled_limit(np.append(errors, 40.0), np.full(31, 2.0), 0.95)
    assert n == 30
    assert limit == pytest.approx(2.0003 * np.sqrt((errors**2).mean()), rel=1e-4)
    inside = [
        abs(own.normal() / np.sqrt(3))
        < pooled_limit(own.normal(size=(8, 3)).std(axis=1, ddof=1) / np.sqrt(3), np.full(8, 2.0), 0.95)[0]
        for _ in range(2000)
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("before", [4, 6, 10, 20])
def test_the_spread_of_a_series_holds_no_step_of_its_own(before: int) -> None:
    """A rise of 60 standard deviations is found with the first campaign, confirmed with the second, and stays so."""
    x = level((before, 0.0), (16, 60.0))
    for behind in range(1, 17):
        values = x[: before + behind]
        cuts = search(values, rng)
        limit = spread_limit(values, cuts, 0.95)
        assert limit is not None and limit[0] < 12
        [found] = shifts_at(values, cuts, limit[0], 0.95)
        assert (found.at, found.confirmed) == (before, behind > 1)


def test_a_last_value_alone_changes_nothing_before_it() -> None:
    for x in (level((15, 0.0), (15, 4.7)), level((20, 0.0), (2, 9.0)), level((12, 0.0), (9, 5.0), (12, 0.0))):
        then = [(s.at, s.confirmed) for s in shifts(x, 1.0)]
        for last in (-20.0, 0.0, 20.0):
            now = [(s.at, s.confirmed) for s in shifts(np.append(x, last), 1.0)]
            assert now[: len(then)] == then and all(s == (x.size, False) for s in now[len(then) :]), last
