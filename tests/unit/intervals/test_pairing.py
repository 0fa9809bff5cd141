"""Blocks drawn together: at the same arrivals in every cell, and in each cell as if it were alone."""

import numpy as np
import pytest

from connector_tax.base.statistics.bootstrap import Estimate, estimate_percentiles
from connector_tax.base.statistics.pairing import CommonArrivals
from connector_tax.read.stats.taxes import relative

AXIS = (0, 210)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def of(first: int, last: int, axis: tuple[int, int] = AXIS, seed: int = 1) -> CommonArrivals:
    return CommonArrivals(seed, ("a", "r2_4096x256"), axis, np.arange(first, last))


def arrivals(cell: CommonArrivals, draws: int, length: int, own: int) -> np.ndarray:
    """Arrivals at which blocks begin; ``own`` is the seed of the cell's own stream."""
    found: np.ndarray = cell.seqs[cell(cell.seqs.size, draws, rng(own), length)]
    return found


def test_cells_with_the_same_arrivals_begin_their_blocks_together() -> None:
    one, other = (arrivals(of(0, 210), 400, 10, own) for own in (1, 2))
    assert np.array_equal(one, other)


def test_another_schedule_draws_other_arrivals() -> None:
    other = CommonArrivals(1, ("b", "r2_4096x256"), AXIS, np.arange(210))
    assert np.mean(arrivals(of(0, 210), 400, 10, 1) == arrivals(other, 400, 10, 1)) < 0.02


def test_windows_that_differ_by_a_few_requests_share_nearly_all_blocks() -> None:
    """205 and 200 requests, of which 195 are common: 42 and 40 blocks of five."""
    one, other = arrivals(of(0, 205), 2000, 5, 1), arrivals(of(10, 210), 2000, 5, 2)
    assert one.shape == (41, 2000) and other.shape == (40, 2000)
    assert np.mean(one[:40] == other) == pytest.approx(195 / 210, abs=0.01)


@pytest.mark.parametrize(("first", "last"), [(0, 210), (7, 203), (100, 110)])
def test_every_request_is_as_likely_as_in_a_cell_by_itself(first: int, last: int) -> None:
    """Also where the other cells have twenty times as many."""
    cell = of(first, last)
    n = last - first
    starts = cell(n, 40_000, rng(3), max(1, n // 5))
    assert starts.min() >= 0 and starts.max() < n
    counts = np.bincount(starts.ravel(), minlength=n)
    assert counts / counts.mean() == pytest.approx(np.ones(n), abs=0.2)


def test_requests_that_are_left_out_move_no_other() -> None:
    """One answer without a TPOT: row k is no longer arrival k, and blocks begin at the same arrivals still."""
    without = CommonArrivals(1, ("a", "r2_4096x256"), AXIS, np.delete(np.arange(210), [3, 77]))
    one, other = arrivals(of(0, 210), 1000, 10, 1), arrivals(without, 1000, 10, 2)
    assert np.mean(one[: len(other)] == other) > 0.98
    assert not np.isin(other, (3, 77)).any()


def queue(gaps: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Time in the system of one server, first come first served; without the first 200."""
    work = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[:-1])])
    found: np.ndarray = (work - np.minimum.accumulate(work) + service)[200:]
    return found


def held_and_width(tax: Estimate) -> tuple[bool, float]:
    low, high = tax.interval(0.95)
    assert low is not None and high is not None
    return low <= 0 <= high, float(np.log((1 + high) / (1 + low)))


def test_taxes_of_queues_behind_the_same_bursts_are_held_and_narrower() -> None:
    """200 requests in bursts at half the capacity, no tax: by themselves intervals are wider than they need be."""
    together, apart = [], []
    for seed in range(150):
        gaps = rng(seed).gamma(0.3, 1 / 0.3, 400)
        cells = [queue(gaps, rng(1000 * k + seed).lognormal(-0.8, 0.47, 400)) for k in (1, 2)]
        common = CommonArrivals(seed, (), (0, 200), np.arange(200))
        paired = [estimate_percentiles(c, (90.0,), 400, rng(), draw=common)[90.0] for c in cells]
        alone = [estimate_percentiles(c, (90.0,), 400, rng(7 * k + seed))[90.0] for k, c in enumerate(cells)]
        together.append(held_and_width(relative(*paired)))
        apart.append(held_and_width(relative(*alone)))
    held, width = np.mean(together, axis=0)
    assert 0.92 <= held <= 0.99
    assert width < 0.75 * np.mean(apart, axis=0)[1]


def test_a_failed_request_of_one_cell_makes_no_bound_of_the_other_unknown() -> None:
    """Failures count as +infinity in their own cell and nowhere else."""
    cell = of(0, 210)
    values = rng(1).exponential(size=210)
    failed = np.where(np.arange(210) % 11 == 0, np.inf, values)
    whole = estimate_percentiles(values, (90.0,), 400, rng(1), draw=cell)[90.0]
    broken = estimate_percentiles(failed, (90.0,), 400, rng(2), draw=cell)[90.0]
    assert whole.interval(0.95)[1] is not None and broken.interval(0.95)[1] is None
    tax = relative(broken, whole)
    assert tax.point is not None and tax.interval(0.95)[0] is not None and tax.interval(0.95)[1] is None
