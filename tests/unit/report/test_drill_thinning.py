"""What the page holds of many values: every run of rows keeps its smallest and largest, and nothing stands there that was not measured."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from connector_tax.read.report.drill import table

END = 60.0
TIMES = st.floats(-5, END + 5, allow_nan=False)
VALUES = st.none() | st.floats(-1e9, 1e9, allow_nan=False) | st.sampled_from([0.0, 1.0])
ROWS = st.lists(st.tuples(TIMES, VALUES, VALUES), max_size=200)


def columns_of(
    rows: list[tuple[float, float | None, float | None]],
) -> tuple[list[float], dict[str, list[float | None]]]:
    return [r[0] for r in rows], {"a": [r[1] for r in rows], "b": [r[2] for r in rows]}


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def column(found: dict[str, object], name: str) -> list[float | None]:
    """One that never changes is written once."""
    own, t = found.get(name), found["t"]
    assert isinstance(t, list)
    return own if isinstance(own, list) else [own] * len(t)


@given(ROWS, st.integers(4, 80))
def test_rows_are_those_that_were_given_and_hold_the_extremes(
    rows: list[tuple[float, float | None, float | None]], most: int
) -> None:
    at, columns = columns_of(rows)
    found = table(at, columns, END, most)
    inside = sorted((r for r in rows if 0 <= r[0] <= END), key=lambda r: r[0])
    if all(a is None and b is None for _, a, b in inside):
        assert found == {}
        return
    assert found["of"] == len(inside)
    t = found["t"]
    assert isinstance(t, list) and t == sorted(t) and len(t) <= most
    shown = list(zip(t, column(found, "a"), column(found, "b"), strict=True))
    given_rows = [(round(r[0], 3), rounded(r[1]), rounded(r[2])) for r in inside]
    assert set(shown) <= set(given_rows)
    if len(inside) <= most:
        assert shown == given_rows
    for k in (1, 2):
        known = [r[k] for r in given_rows if r[k] is not None]
        kept = [r[k] for r in shown if r[k] is not None]
        assert ([min(kept), max(kept)] == [min(known), max(known)]) if known else not kept


def test_every_run_of_rows_keeps_its_extremes() -> None:
    """Forty rows for one column are twenty runs, each with its smallest and its largest value."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=1000)
    found = table(np.arange(1000) / 20, {"a": values}, END, 40)
    shown = set(column(found, "a"))
    for run in np.array_split(values, 20):
        assert {rounded(run.min()), rounded(run.max())} <= shown


def test_values_of_nothing_are_gaps_and_times_outside_the_cell_are_left_out() -> None:
    found = table(
        [3, -1, 1, 61, 2], {"a": [3.0, 9.0, float("inf"), 9.0, None], "b": [1] * 5, "c": [None] * 5}, END, 9
    )
    assert found == {"of": 3, "t": [1, 2, 3], "a": [None, None, 3], "b": 1}
