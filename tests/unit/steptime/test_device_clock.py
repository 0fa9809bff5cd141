"""What a virtual GPU's clock says of a window, from rows whose truth is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.cell import MAX_LATE_SHARE
from connector_tax.base.steptime.share import clock_health, cut_clock

US, MS = 1_000, 1_000_000
HEADER = '{"kind": "header", "schema": 1, "pid": 7}\n'


def log_of(path: Path, *lists: list[list[int]], torn: str = "") -> Path:
    """As the plugin appends it: a header, then a list of rows every half second."""
    path.write_text(HEADER + "".join(json.dumps(rows) + "\n" for rows in lists) + torn)
    return path


def synchronous(n: int, step_us: int, *, late_us: int, host_us: int = 100) -> list[list[int]]:
    """Launch, wait at once, be late, then work on the host for the next step."""
    rows, now = [], 0
    for _ in range(n):
        due = now + step_us * US
        done = due + late_us * US
        rows.append([now, due, now + 10 * US, done])
        now = done + host_us * US
    return rows


def health(folder: Path, rows: list[list[int]], begin_ns: int, end_ns: int) -> Any:
    """Of the window, from a log of these rows."""
    cut_clock(log_of(folder / "log", rows), 0, 10**12, folder / "share")
    return clock_health(folder / "share", begin_ns, end_ns)


def test_a_cell_keeps_the_rows_of_its_time_in_order(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", [[30, 40, 31, 41]], [[10, 20, 11, 21], [50, 60, 51, 61]], torn="[[20,30,2")
    assert cut_clock(log, 10, 50, tmp_path / "share") == 2
    assert (tmp_path / "share").read_text() == "[10,20,11,21]\n[30,40,31,41]\n"


def test_a_log_that_is_not_there_is_no_share(tmp_path: Path) -> None:
    assert cut_clock(tmp_path / "none", 0, 10, tmp_path / "share") == 0
    assert cut_clock(log_of(tmp_path / "log"), 0, 10, tmp_path / "share") == 0
    assert not (tmp_path / "share").exists()
    assert clock_health(tmp_path / "share", 0, 10) is None


def test_a_synchronous_engine_is_late_by_what_it_was_late(tmp_path: Path) -> None:
    """100 steps of 5 ms, each had 40 us late, 100 us of host between them."""
    rows = synchronous(100, 5000, late_us=40)
    found = health(tmp_path, rows, 0, rows[-1][3] + 100 * US)
    assert found.steps == 100
    assert found.lateness_us == {"p50": 40.0, "p99": 40.0, "max": 40.0}
    assert found.late_share == pytest.approx(40 / 5000)
    assert found.device_busy_share == pytest.approx(5000 / 5140)
    assert found.slack_us == {"p10": 4990.0, "p50": 4990.0}
    assert found.fault is None


def test_a_step_behind_another_is_as_long_as_the_device_was_at_it(tmp_path: Path) -> None:
    """Launched while the step before it ran, as under asynchronous scheduling: it begins when that one is due."""
    rows = [
        [0, 5 * MS, 4 * MS, 5 * MS],
        [1 * MS, 10 * MS, 6 * MS, 10 * MS],
        [6 * MS, 15 * MS, 12 * MS, 15 * MS],
    ]
    found = health(tmp_path, rows, 0, 15 * MS)
    assert found.device_busy_share == pytest.approx(1.0)
    assert found.slack_us["p50"] == pytest.approx(3000.0)


def test_a_host_that_asks_too_late_is_no_error_of_the_clock(tmp_path: Path) -> None:
    """The device waited for it: slack is below 0, and what came after the asking is all the lateness."""
    rows = [[0, 5 * MS, 7 * MS, 7 * MS + 3 * US]]
    found = health(tmp_path, rows, 0, 10 * MS)
    assert found.slack_us == {"p10": -2000.0, "p50": -2000.0}
    assert found.lateness_us["max"] == pytest.approx(3.0)


def test_only_steps_of_the_window_count(tmp_path: Path) -> None:
    """Those before it are in the cell's share as well, since the first of the window may have queued behind one."""
    rows = [
        [0, 5 * MS, 1 * MS, 9 * MS],
        [2 * MS, 10 * MS, 6 * MS, 10 * MS],
        [20 * MS, 25 * MS, 21 * MS, 25 * MS],
    ]
    found = health(tmp_path, rows, 1 * MS, 11 * MS)
    assert (found.steps, found.late_share) == (1, 0.0)
    assert found.device_busy_share == pytest.approx(0.5)
    assert clock_health(tmp_path / "share", 11 * MS, 20 * MS) is None


@pytest.mark.parametrize(("late_us", "valid"), [(99, True), (101, False)])
def test_a_clock_that_ran_late_was_another_device(tmp_path: Path, late_us: int, valid: bool) -> None:
    """Two per cent of steps of 5 ms are 100 us."""
    rows = synchronous(200, 5000, late_us=late_us)
    found = health(tmp_path, rows, 0, rows[-1][3])
    assert (found.fault is None) is valid
    if found.fault is not None:
        assert found.late_share > MAX_LATE_SHARE
        assert "the virtual GPU's clock ran late: results came 2.0% of the device's time" in found.fault


def test_rows_of_another_form_are_no_record(tmp_path: Path) -> None:
    (tmp_path / "share").write_text("[1,2,3]\n")
    assert clock_health(tmp_path / "share", 0, 10) is None
