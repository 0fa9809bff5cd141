"""Differences of independent numbers from their intervals: by hand, by a published table, and by counting."""

import math

import numpy as np
import pytest

from connector_tax.base.statistics.decisions import Bounded, independent_difference


def test_the_distances_to_the_ends_add_up_in_squares() -> None:
    """0.12 - sqrt(0.04^2 + 0.06^2) and 0.12 + sqrt(0.07^2 + 0.05^2)."""
    found = independent_difference((0.30, 0.25, 0.36), (0.42, 0.38, 0.49))
    assert found == pytest.approx((0.12, 0.0478890, 0.2060233), abs=1e-7)


def test_it_gives_newcombes_interval_for_two_proportions() -> None:
    """56 of 70 against 48 of 80, from their Wilson intervals: 0.0524 to 0.3339 (Newcombe 1998, example a, method 10)."""

    def wilson(k: int, n: int) -> Bounded:
        z, p = 1.959964, k / n
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (
            p,
            (p + z * z / (2 * n) - half) / (1 + z * z / n),
            (p + z * z / (2 * n) + half) / (1 + z * z / n),
        )

    assert independent_difference(wilson(48, 80), wilson(56, 70)) == pytest.approx(
        (0.2, 0.0524, 0.3339), abs=5e-5
    )


def test_an_end_that_is_unbounded_stays_unbounded() -> None:
    known = (0.3, 0.2, 0.4)
    assert independent_difference(known, (0.5, 0.4, None))[1:] == (
        pytest.approx(0.2 - math.hypot(0.1, 0.1)),
        None,
    )
    assert independent_difference(known, (0.5, None, 0.6))[1] is None
    assert independent_difference((0.3, 0.2, None), known)[1:] == (None, pytest.approx(math.hypot(0.1, 0.1)))
    assert independent_difference((0.3, None, 0.4), known)[2] is None


def resampled(chance: np.random.Generator, truth: float, spread: float, n: int) -> np.ndarray:
    """Estimates of ``truth`` (first column) and 400 resamples around each; shape (n, 401)."""
    estimate = truth * chance.lognormal(0, spread, (n, 1))
    return np.hstack([estimate, estimate * chance.lognormal(0, spread, (n, 400))])


def bounded(values: np.ndarray) -> list[Bounded]:
    ends = np.quantile(values[:, 1:], [0.025, 0.975], axis=1)
    return [(float(p), float(low), float(high)) for p, low, high in zip(values[:, 0], *ends, strict=True)]


@pytest.mark.parametrize(("spreads", "rise"), [((0.05, 0.05), 0.0), ((0.15, 0.05), 0.2)])
def test_the_change_of_a_tax_is_held_as_often_as_promised(spreads: tuple[float, float], rise: float) -> None:
    """Two campaigns of 2000, a tax of 30 % and of 30 % and ``rise``; spreads are those of A's and B's percentiles."""
    chance, n, held, told = np.random.default_rng(7), 2000, 0, 0
    taxes = []
    for truth, spread in zip((1.3, 1.3 + rise), spreads, strict=True):
        own, plain = resampled(chance, 100 * truth, spread, n), resampled(chance, 100.0, spread, n)
        taxes.append(bounded(own / plain - 1))
    for first, second in zip(*taxes, strict=True):
        _, low, high = independent_difference(first, second)
        held += low <= rise <= high
        told += low > 0
    # Three standard errors of a share of 2000 are 1.5 %.
    assert held / n == pytest.approx(0.95, abs=0.016)
    if rise == 0:
        assert told / n == pytest.approx(0.025, abs=0.012)
