"""What a hook takes of the CPU and what it waits, from steps whose truth is known."""

import numpy as np
import pytest

from connector_tax.read.stats.hook_waits import hook_times
from connector_tax.read.stats.step_slopes import CellSteps

N = 640


def steps(wall_us: np.ndarray, cpu_us: np.ndarray, calls: np.ndarray | None = None) -> CellSteps:
    called = np.ones(N) if calls is None else calls
    hooks = ("worker side", "worker/get")
    return CellSteps(
        "own a 1",
        dict.fromkeys(hooks, wall_us),
        dict.fromkeys(hooks, called),
        dict.fromkeys(hooks, cpu_us),
        np.zeros((N, 5)),
    )


def measured_in(every: int, values: np.ndarray) -> np.ndarray:
    return np.where(np.arange(N) % every == 0, values, np.nan)


def test_the_wait_is_wall_time_less_cpu_time_though_few_steps_measured_the_latter() -> None:
    rng = np.random.default_rng(3)
    wall, cpu = rng.normal(900, 90, N), rng.normal(76, 8, N)
    found = hook_times(steps(wall, measured_in(16, cpu)), seed=1)
    assert list(found) == ["worker/get"]  # a side's sum is no hook
    times = found["worker/get"]
    assert times.wait.point == pytest.approx(824, abs=15)
    low, high = times.wait.interval(0.95)
    assert low is not None and high is not None and low < 824 < high and high - low < 60
    assert times.cpu.n == N / 16


def test_cpu_time_of_too_few_steps_is_not_known_and_the_wait_is_not_either() -> None:
    times = hook_times(steps(np.full(N, 900.0), measured_in(100, np.full(N, 76.0))), seed=1)["worker/get"]
    assert times.cpu.point is None and times.wait.point is None
    assert times.cpu.reason is not None and "7 steps measured CPU time" in times.cpu.reason


def test_a_hook_that_no_measuring_step_called_has_no_cpu_time_rather_than_zero() -> None:
    calls = (np.arange(N) % 16 == 1).astype(float)
    times = hook_times(steps(900 * calls, measured_in(16, np.zeros(N)), calls), seed=1)["worker/get"]
    assert times.cpu.point is None and times.wait.point is None
