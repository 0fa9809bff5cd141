"""Intervals follow the confidence that was asked for, and steps the requests that they belong to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from connector_tax.base.documents.aggregate import ByKind, Steps
from connector_tax.base.statistics.bootstrap import Estimate, estimate_percentiles
from connector_tax.read.ingest.steps import Hooks, StepTable
from connector_tax.read.stats.attribution import attribute
from connector_tax.read.stats.cells import _steps, _Wide
from connector_tax.read.stats.taxes import difference, relative, verdict


def test_resamples_that_were_widened_for_one_confidence_are_so_for_another() -> None:
    """Of ratios and differences, too, which have no more blocks than their parts."""
    rng = np.random.default_rng(2)
    a, b = (
        estimate_percentiles(rng.normal(100.0, 3.0, 200), (50.0,), 20_000, rng, length=40)[50.0]
        for _ in range(2)
    )
    for found in (a, difference(a, b), relative(a, b)):
        (low, high), (lower, higher) = found.interval(0.95), found.interval(0.99)
        assert None not in (low, high, lower, higher)
        wanted = t.ppf(0.995, 4) / t.ppf(0.975, 4)
        assert (higher - lower) / (high - low) == pytest.approx(wanted, rel=0.06)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Stands for a cell's step records."""

    table: StepTable

    def load(self) -> StepTable:
        return self.table


def steps_of(durations: np.ndarray[Any, Any], kind: np.ndarray[Any, Any]) -> StepTable:
    ones, n = np.ones(durations.size), durations.size
    parts = (
        "schedule_us",
        "update_us",
        "round_trip_us",
        "build_meta_us",
        "get_finished_us",
        "start_load_kv_us",
    )
    return StepTable(
        began_s=np.cumsum(durations) / 1e6,
        step_duration_us=durations,
        connector_total_us=ones,
        tokens=ones,
        kind=kind.astype(np.int8),
        hooks=Hooks((), np.empty((n, 0)), np.empty((n, 0)), np.empty((n, 0))),
        n_empty=0,
        n_unjoined=0,
        torn=False,
        **dict.fromkeys(parts, ones),
    )


def by_kind(table: StepTable, rng: np.random.Generator) -> ByKind:
    found = _steps(Recorded(table), rng, _Wide(factor=1.0, confidence=0.95), None).document  # type: ignore[arg-type]
    assert isinstance(found, Steps)
    return found.by_kind


def test_medians_of_steps_by_kind_are_held_though_requests_last_hundreds_of_them() -> None:
    """4,000 steps in spells of 200 that share what requests are in flight; every twentieth is mixed, and takes twice as long."""
    rng, held, campaigns = np.random.default_rng(3), {"decode_only": 0, "mixed": 0}, 60
    kind = np.arange(4000) % 20 == 7
    for _ in range(campaigns):
        spells = np.repeat(rng.normal(0.0, 0.02, 21), 200)[rng.integers(200) :][:4000]
        durations = 1000.0 * np.exp(spells + rng.normal(0.0, 0.03, 4000)) * (1 + kind)
        table = steps_of(durations, kind)
        found = by_kind(table, rng)
        for name, truth in (("decode_only", 1000.0), ("mixed", 2000.0)):
            p50 = getattr(found, name).p50
            held[name] += p50.low <= truth <= p50.high
    assert min(held.values()) / campaigns >= 0.9


@pytest.mark.parametrize("n", [1, 5])
def test_a_handful_of_steps_has_no_interval_and_no_parts(n: int) -> None:
    """Every resample of so few would be all of them, and the interval a point."""
    rng = np.random.default_rng(4)
    few, many = (steps_of(rng.normal(1000.0, 5.0, k), np.zeros(k)) for k in (n, 400))
    p50 = by_kind(few, rng).decode_only.p50
    assert p50.point is None and p50.reason == "few_observations"
    assert attribute(few, many, seed=1, name="x", cell_id="r1", confidence=0.95) is None


@pytest.mark.parametrize("n", [1, 5])
def test_a_tax_of_a_handful_of_requests_is_no_verdict(n: int) -> None:
    """Twice as slow as plain, whose cell is whole; and six are a verdict."""
    rng = np.random.default_rng(5)

    def p90(values: np.ndarray[Any, Any]) -> Estimate:
        return estimate_percentiles(values, (90.0,), 400, rng, length=40)[90.0]

    plain = p90(rng.normal(100.0, 1.0, 200))
    assert verdict(relative(p90(np.full(n, 200.0)), plain), 0.95) == "unavailable"
    assert verdict(relative(p90(rng.normal(200.0, 1.0, 6)), plain), 0.95) == "tax"
