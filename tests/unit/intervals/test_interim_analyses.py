"""Looking more than once: against published tables, against simulation, and as the config says."""

from typing import Any

import numpy as np
import pytest
from cell_specs import cell_spec
from scipy import stats

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.statistics.bootstrap import estimate_percentiles
from connector_tax.base.statistics.interim import interim_analyses, interim_factor, pocock_factor

Z = stats.norm.ppf(0.975)


def spec(**changes: Any) -> CellSpec:
    own = {
        "warmup_s": 1.0,
        "duration_s": 1.0,
        "min_completed": 50,
    }
    return cell_spec(**{**own, **changes})


@pytest.mark.parametrize(
    ("looks", "confidence", "constant"),
    [(2, 0.95, 2.178), (4, 0.95, 2.361), (8, 0.95, 2.512), (3, 0.99, 2.873)],
)
def test_equally_spaced_looks_are_as_in_the_tables(looks: int, confidence: float, constant: float) -> None:
    """Jennison & Turnbull 2000, table 2.1."""
    factor = pocock_factor(tuple(range(1, looks + 1)), confidence)
    assert factor * stats.norm.ppf((1 + confidence) / 2) == pytest.approx(constant, abs=0.003)


def test_of_doubling_looks_means_stay_inside_as_often_as_said() -> None:
    looks = (50, 100, 200, 400)
    steps = np.diff([0, *looks])
    rng = np.random.default_rng(1)
    sums = np.cumsum(rng.standard_normal((200_000, len(looks))) * np.sqrt(steps), axis=1)
    outside = (np.abs(sums / np.sqrt(looks)) > pocock_factor(looks, 0.95) * Z).any(axis=1).mean()
    assert outside == pytest.approx(0.05, abs=0.0015)


def test_looks_double_up_to_the_last() -> None:
    assert interim_analyses(spec(stop_half_width=0.1, max_completed=500)) == (50, 100, 200, 400, 500)
    assert interim_analyses(spec(stop_half_width=0.1, max_completed=51)) == (50, 51)


def test_without_a_rule_nothing_is_wider() -> None:
    assert interim_analyses(spec()) == ()
    assert interim_factor(spec(), 0.95) == 1.0


def test_an_interval_is_wider_by_the_factor_on_both_sides_of_the_log() -> None:
    values = np.random.default_rng(2).exponential(1.0, 400)

    def ends(factor: float, q: float) -> tuple[float, float]:
        found = estimate_percentiles(values, (q,), 400, np.random.default_rng(0), length=8, factor=factor)[q]
        low, high = found.interval(0.95)
        return float(np.log(found.point / low)), float(np.log(high / found.point))

    narrow, wide = ends(1.0, 50.0), ends(1.3, 50.0)
    assert wide == pytest.approx([1.3 * side for side in narrow])
    assert all(w > n for w, n in zip(ends(1.3, 90.0), ends(1.0, 90.0), strict=True))
