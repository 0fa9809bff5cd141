"""What is drawn of many values: every part of the time keeps its smallest and its largest, and nothing is drawn that was not there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_tax.read.report.drill.thinning import extremes, medians, part_of

END = 60.0
TIMES = st.floats(0, END, allow_nan=False)
VALUES = st.floats(-1e9, 1e9, allow_nan=False) | st.sampled_from([0.0, 1.0])
POINTS = st.lists(st.tuples(TIMES, VALUES), max_size=200)


def arrays(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    found = np.array(points, dtype=np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


@given(POINTS, st.integers(1, 40))
def test_each_part_keeps_its_smallest_and_its_largest_value(
    points: list[tuple[float, float]], parts: int
) -> None:
    at, values = arrays(points)
    chosen = extremes(at, values, END, parts)
    assert np.all(np.diff(at[chosen]) >= 0) and np.unique(chosen).size == chosen.size
    if at.size <= 2 * parts:
        assert chosen.size == at.size
        return
    part = [min(int(t * (parts / END)), parts - 1) for t in at]
    for k in set(part):
        whole = [v for p, v in zip(part, values, strict=True) if p == k]
        kept = [values[i] for i in chosen if part[i] == k]
        assert len(kept) <= 2 and {min(kept), max(kept)} == {min(whole), max(whole)}
        assert len(kept) == len({min(whole), max(whole)})


def test_of_equal_values_the_first_in_time_is_drawn() -> None:
    at = np.array([3.0, 1.0, 2.0, 0.5, 2.5])
    assert extremes(at, np.array([1.0, 0.0, 1.0, 1.0, 0.0]), 4.0, 1).tolist() == [3, 1]


@given(POINTS, st.integers(1, 12))
def test_a_coarser_drawing_is_one_of_the_finer(points: list[tuple[float, float]], parts: int) -> None:
    """Twice as many parts: each spike of the coarse one stands in the fine one, too."""
    at, values = arrays(points)
    coarse, fine = (extremes(at, values, END, n) for n in (parts, 2 * parts))
    assert set(np.round(values[coarse], 6)) <= set(np.round(values[fine], 6))


@given(POINTS, st.integers(1, 40))
def test_medians_are_those_of_all_values_of_a_part(points: list[tuple[float, float]], parts: int) -> None:
    at, values = arrays(points)
    middle, found = medians(at, values, END, parts)
    part = part_of(at, END, parts)
    assert middle.tolist() == pytest.approx([(k + 0.5) * END / parts for k in sorted(set(part.tolist()))])
    assert found.tolist() == [float(np.median(values[part == k])) for k in sorted(set(part.tolist()))]
