"""Blocks drawn together: at the same arrivals in every cell, and in each cell as if it were alone."""

import numpy as np
import pytest

from connector_tax.base.statistics.resampling import CommonArrivals

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
