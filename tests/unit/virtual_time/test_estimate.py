"""What cells in virtual time say: phases averaged, intervals over starts, hooks without their observer."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from virtual_gpus import IDENTITY

from connector_tax.base.documents.identity import GpuDocument
from connector_tax.base.records.host import HostCosts, StepCosts
from connector_tax.read.ingest.steps import Hooks
from connector_tax.virtual_time import EngineSpec, Load, Measured, compare
from connector_tax.virtual_time.cells import Cell, Start
from connector_tax.virtual_time.estimate import _hooks, phase_averaged_ttft_ms, ttft_ms

MS = 1_000_000
STEP, SERVICE = 8 * MS, 5 * MS


def cell(seed: int, *, longer_ns: int = 0, **given: Any) -> Cell:
    """200 requests into an engine that looks every step and answers ``SERVICE`` after its look; then a token a step."""
    step = STEP + longer_ns
    arrivals = np.sort(np.random.default_rng(seed).integers(0, 1000 * STEP, 200))
    looked = -(-arrivals // step) * step
    first = looked + SERVICE + longer_ns
    found = Cell(
        arrivals,
        looked,
        np.full(200, step),
        first,
        first + 15 * step,
        np.full(200, 16),
        1000,
        150_000_000,
        0,
        0,
        (1.0, 1.0),
        100_000_000,
        100_000_000,
    )
    return replace(found, **given)


def measured(cells: list[Cell], others: list[Cell] | None = None, recorded: Any = None) -> Measured:
    document = GpuDocument(
        name="g", memory_bytes=1, kv_cache_bytes=1, step=StepCosts(**IDENTITY["step"]), host=HostCosts()
    )
    spec = EngineSpec("s", "python", Path("model"), document)
    starts = [Start(a, b, recorded) for a, b in zip(cells, others or cells, strict=True)]
    return Measured(spec, Load(requests=200), "sync", starts=starts)


def test_averaging_over_phases_gives_what_all_phases_would_give_whichever_happened() -> None:
    """A wait is even over a step: the median half of it, the 90th percentile nine tenths."""
    raw = []
    for seed in range(20):
        one = cell(seed)
        averaged = phase_averaged_ttft_ms(one)
        assert np.percentile(averaged, 50) == pytest.approx(5 + 4.0, abs=0.01)
        assert np.percentile(averaged, 90) == pytest.approx(5 + 7.2, abs=0.21)  # of twenty phases
        raw.append(np.percentile(ttft_ms(one), 50))
    assert np.std(raw) > 0.2
    assert np.mean(raw) == pytest.approx(9.0, abs=0.3)


def test_a_request_that_the_engine_was_waiting_for_has_one_phase() -> None:
    one = cell(0)
    idle = replace(one, looked_ns=one.arrivals_ns, before_ns=np.zeros(200, dtype=np.int64))
    np.testing.assert_allclose(phase_averaged_ttft_ms(idle), np.repeat(ttft_ms(idle), 20))


def test_a_tax_is_the_mean_ratio_of_pairs_and_its_interval_is_over_starts() -> None:
    """By hand: log ratios of 1.01, 1.02, 1.03, Student's t of two degrees of freedom, 4.3027."""
    plain = [cell(k) for k in range(3)]
    own = [cell(k, longer_ns=round(STEP * (k + 1) / 100)) for k in range(3)]
    ratio = compare(measured(plain), measured(own)).tax("tpot_p50").ratio
    logs = np.log([1.01, 1.02, 1.03])
    reach = 4.302653 * logs.std(ddof=1) / 3**0.5
    assert ratio.charged.point == pytest.approx(np.expm1(logs.mean()), rel=1e-6)
    assert ratio.charged.low == pytest.approx(np.expm1(logs.mean() - reach), rel=1e-4)
    assert ratio.charged.high == pytest.approx(np.expm1(logs.mean() + reach), rel=1e-4)
    one = compare(measured(plain[:1]), measured(own[:1])).tax("tpot_p50").ratio.charged
    assert (one.point, one.low, one.high) == (pytest.approx(0.01), None, None)


def test_the_second_bound_is_of_the_cells_in_which_other_threads_are_charged() -> None:
    plain, own = [cell(k) for k in range(2)], [cell(k, waits=500) for k in range(2)]
    others = [cell(k, longer_ns=STEP // 10, others_ns=60_000_000) for k in range(2)]
    found = compare(measured(plain), measured(own, others))
    tax = found.tax("tpot_p50").ratio
    assert (tax.charged.point, tax.with_others.point) == (0.0, pytest.approx(0.1))
    assert (found.step_us.charged.point, found.step_us.with_others.point) == (0.0, 60.0)
    assert found.waits_per_step == {"plain": 0.0, "connector": 0.5}


@pytest.mark.parametrize(
    ("plain_wall", "own_wall", "others", "seen"),
    [
        pytest.param(100, 100, 0, True, id="quiet"),
        pytest.param(300, 310, 0, True, id="a busy host takes as much from plain"),
        pytest.param(100, 200, 100, True, id="the interpreter's lock, which other threads had"),
        pytest.param(100, 400, 0, False, id="a disk"),
        pytest.param(300, 600, 0, False, id="a disk on a busy host"),
    ],
)
def test_a_connector_that_is_off_its_core_where_plain_is_not_is_not_in_virtual_time(
    plain_wall: int, own_wall: int, others: int, seen: bool
) -> None:
    """In few steps, so the median step shows nothing; milliseconds in 1000 steps. The hook is the one whose wall time exceeds its charge most."""
    names = ("scheduler/null_hook", "scheduler/build_connector_meta", "worker/save_kv_layer")
    wall = np.tile([1.0, 3.0, 3.0], (10, 1))
    wall[3] = [1.0, 3.0, 3000.0]
    hooks = Hooks(names, wall, np.ones((10, 3)), np.tile([1.0, 3.0, 3.0], (10, 1)))
    sides = [
        measured(
            [cell(k, wall_ns=wall * MS, others_ns=spent * MS) for k in range(3)],
            recorded=SimpleNamespace(hooks=hooks),
        )
        for wall, spent in ((plain_wall, 0), (own_wall, others))
    ]
    found = compare(*sides)
    assert {h.hook: h.in_virtual_time for h in found.hooks} == {
        "build_connector_meta": True,
        "save_kv_layer": seen,
    }


def test_a_hook_is_told_without_its_observer_and_not_judged_where_it_waits() -> None:
    """Of 10 steps: a hook of 3 us beside a null hook of 1 us, called twice; and one that waits for a millisecond."""
    names = ("scheduler/null_hook", "scheduler/build_connector_meta", "worker/start_load_kv")
    cpu = np.tile([2.0, 4.0, 20.0], (10, 1))
    wall = np.tile([2.0, 4.5, 1000.0], (10, 1))
    wall[0] = 5000.0  # the core was somebody else's
    calls = np.tile([2.0, 1.0, 1.0], (10, 1))
    start = SimpleNamespace(recorded=SimpleNamespace(hooks=Hooks(names, wall, calls, cpu)))
    (build, load), null_us = _hooks([start, start])  # type: ignore[list-item]
    assert null_us == 1.0
    assert (build.side, build.hook, build.cpu_us_per_step.point, build.in_virtual_time) == (
        "scheduler",
        "build_connector_meta",
        3.0,
        True,
    )
    assert (load.cpu_us_per_step.point, load.wall_us_per_step, load.in_virtual_time) == (19.0, 1400.0, False)
