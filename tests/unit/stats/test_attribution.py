"""Parts of a step, worked out by hand: they add up, and hooks are taken out of what surrounds them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from connector_tax.base.documents.aggregate import Attribution, Hook
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.distributions import student_quantile
from connector_tax.read.ingest.steps import DECODE_ONLY, MIXED, Hooks, StepTable
from connector_tax.read.stats.attribution import _cpu_of_hooks, _share, attribute, mean_cpu_us

N = 400


def table(
    *, step: float, schedule: float, update: float, hooks: dict[str, tuple[float, float]], **change: Any
) -> StepTable:
    """``hooks``: name -> (microseconds per step, calls per step)."""
    ones = np.ones(N)
    names = tuple(hooks)
    us = np.array([[us for us, _ in hooks.values()]] * N).reshape(N, len(names))
    calls = np.array([[n for _, n in hooks.values()]] * N).reshape(N, len(names))
    values: dict[str, Any] = {
        "began_s": np.arange(N) * step / 1e6,
        "step_duration_us": ones * step,
        "schedule_us": ones * schedule,
        "update_us": ones * update,
        "round_trip_us": ones * (step - schedule - update),
        "build_meta_us": ones * 0,
        "get_finished_us": ones * 0,
        "start_load_kv_us": ones * 0,
        "connector_total_us": us.sum(axis=1),
        "tokens": ones * 4,
        "kind": np.full(N, DECODE_ONLY, dtype=np.int8),
        "hooks": Hooks(names, us, calls, np.where(np.arange(N)[:, None] % 16 == 0, us / 4, np.nan)),
        "n_empty": 0,
        "n_unjoined": 0,
        "torn": False,
        **change,
    }
    return StepTable(**values)


PLAIN = table(step=1000, schedule=40, update=30, hooks={})
OWN = table(
    step=1100,
    schedule=50,
    update=45,
    hooks={
        "scheduler/build_connector_meta": (4.0, 1.0),
        "scheduler/update_connector_output": (6.0, 1.0),
        "worker/get_finished": (20.0, 1.0),
        "worker/wait_for_layer_load": (8.0, 2.0),
        "worker/handle_preemptions": (0.0, 0.0),
    },
)


def found(own: StepTable = OWN, plain: StepTable = PLAIN) -> Attribution:
    return attribute(own, plain, seed=1, name="x", cell_id="r1", confidence=0.95)  # type: ignore[return-value]


def test_the_parts_add_up_to_the_difference() -> None:
    """schedule(): 50 - 4 against 40; update: 45 - 6 against 30; between: 1005 - 28 against 930."""
    entry = found()
    parts = {p.part: p.point for p in entry.parts}
    assert parts == {
        "scheduler_hooks": 10.0,
        "worker_hooks": 28.0,
        "schedule": 6.0,
        "update": 9.0,
        "round_trip": 47.0,
    }
    assert sum(parts.values()) == entry.difference_us.point == 100.0
    assert entry.in_hooks_share.point == pytest.approx(0.38)
    assert entry.in_hooks_share.low <= 0.38 <= entry.in_hooks_share.high


def test_a_difference_that_may_be_nothing_has_no_share() -> None:
    """+75 [-55, +194] us is no whole of which hooks could take 78 %; of a whole that is one, its ends are those of the share."""
    assert found(PLAIN, PLAIN).in_hooks_share is None
    assert found(PLAIN, OWN).in_hooks_share is None
    draws = np.sort(np.random.default_rng(1).normal(222.6, 100.0, 4000))
    whole = Estimate(222.6, draws, 51, freedom=4.0)
    low, high = whole.interval(0.95)
    share = _share(whole, 100.0, np.full(4000, 100.0), 0.95)
    assert share.point == pytest.approx(100 / 222.6)
    assert (share.low, share.high) == pytest.approx((100 / high, 100 / low), rel=1e-6)


def test_a_hook_between_two_steps_is_listed_and_in_no_part_of_a_step() -> None:
    """add_request() and has_requests() call them, before schedule() begins: the step does not hold it."""
    hooks = {f"scheduler/{hook}": (300.0, 1.0) for hook in ("on_new_request", "has_pending_push_work")}
    entry = found(table(step=1000, schedule=40, update=30, hooks=hooks))
    assert {p.part: p.point for p in entry.parts} == dict.fromkeys(
        ("scheduler_hooks", "worker_hooks", "schedule", "update", "round_trip"), 0.0
    )
    assert [h.us_per_step for h in entry.hooks] == [300.0, 300.0]


def test_hooks_are_given_per_step_call_and_token_dearest_first() -> None:
    hooks = found().hooks
    assert [h.hook for h in hooks] == [
        *("worker/get_finished", "worker/wait_for_layer_load"),
        *("scheduler/update_connector_output", "scheduler/build_connector_meta"),
    ]
    assert hooks[1] == Hook(
        hook="worker/wait_for_layer_load",
        calls_per_step=2.0,
        us_per_step=8.0,
        us_per_call=4.0,
        us_per_token=2.0,
        cpu_us_per_step=2.0,
        n_cpu_steps=N // 16,
    )


def test_each_part_has_the_steps_of_the_side_with_fewer() -> None:
    few = np.where(np.arange(N) < 60, DECODE_ONLY, MIXED).astype(np.int8)
    entry = found(OWN, table(step=1000, schedule=40, update=30, hooks={}, kind=few))
    numbers = [entry.difference_us, entry.in_hooks_share, *entry.parts]
    assert {v.n for v in numbers if v is not None} == {60}
    assert (entry.n_steps, entry.n_plain_steps) == (N, 60)


def test_the_interval_holds_a_difference_in_noise() -> None:
    rng = np.random.default_rng(3)
    noisy = [rng.normal(mean, 50, N) for mean in (1100, 1000)]
    own = table(step=1100, schedule=50, update=45, hooks={}, step_duration_us=noisy[0])
    plain = table(step=1000, schedule=40, update=30, hooks={}, step_duration_us=noisy[1])
    difference = found(own, plain).difference_us
    assert difference.low < 100 < difference.high
    assert 8 < difference.high - difference.low < 25, "2 * 1.96 * 50 * sqrt(2 / 400) is 13.9"


def test_only_steps_that_decode_count() -> None:
    kinds = np.where(np.arange(N) % 2 == 0, DECODE_ONLY, MIXED).astype(np.int8)
    steps = np.where(kinds == MIXED, 9000.0, 1100.0)
    mixed = table(step=1100, schedule=50, update=45, hooks={}, kind=kinds, step_duration_us=steps)
    assert found(mixed).step_us == 1100
    none = table(step=1, schedule=1, update=0, hooks={}, kind=np.full(N, MIXED, dtype=np.int8))
    assert attribute(none, PLAIN, seed=1, name="x", cell_id="r1", confidence=0.95) is None


def test_a_hook_that_was_called_in_no_step_that_measured_cpu_time_has_none() -> None:
    """Rare hooks, such as those of a request's end, miss one step in 16."""
    cpu_us, calls = np.full(64, np.nan), np.zeros(64)
    cpu_us[::16], calls[5] = 0.0, 1.0
    assert mean_cpu_us(cpu_us, calls) is None
    cpu_us[16], calls[16] = 8.0, 2.0
    assert mean_cpu_us(cpu_us, calls) == 2.0


def test_the_cpu_time_of_hooks_has_an_interval_of_the_steps_that_measured_it() -> None:
    nan = float("nan")
    names = ("scheduler/build_connector_meta", "worker/get_finished")

    def cpu_of(cpu: Any) -> Any:
        hooks = Hooks(names, np.array([[10.0, 20.0]] * 4), np.ones((4, 2)), np.array(cpu))
        return _cpu_of_hooks(SimpleNamespace(hooks=hooks), np.ones(4, bool), 1.0, 0.95)  # type: ignore[arg-type]

    own = cpu_of([[4.0, nan], [6.0, nan], [nan, 8.0], [nan, 30.0]])
    # Means of 5 and 19 us; 30 us of CPU in a hook of 20 us counts as 20 for the spread.
    variance = (np.var([4, 6], ddof=1) + np.var([8, 20], ddof=1)) / 2
    half = float(student_quantile(0.975, 1)) * variance**0.5
    assert (own.point, own.n) == (pytest.approx(24.0), 2)
    assert (own.low, own.high) == (0.0, pytest.approx(24.0 + half))
    assert cpu_of([[nan, nan]] * 4) is None
