"""Step files worked out by hand: which steps count, and whose hook times belong to them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest.steps import DECODE_ONLY, MIXED, PREFILL_ONLY, StepTable, read_steps

WINDOW = CellWindow(
    t0_ns=0, window_start_ns=1000, t_stop_ns=9000, drained_ns=20_000, min_completed_reached=True
)
SCHEDULER = {"kind": "header", "process": "scheduler", "pid": 1}
WORKER = {"kind": "header", "process": "worker", "pid": 2}


def step(step_id: int, t_ns: int, *, prefill: int = 0, decode: int = 4, **change: Any) -> dict[str, Any]:
    return {
        "kind": "step", "process": "scheduler", "pid": 1, "step_id": step_id, "t_ns": t_ns, "schedule_us": 1.0,
        "t_update_ns": t_ns + 800, "update_us": 0.5, "step_duration_us": 900.0, "step_interval_us": None,
        "round_trip_us": 898.5, "build_meta_us": 10.0, "get_finished_us": None, "start_load_kv_us": None,
        "num_running": 1, "num_waiting": 0, "prefill_tokens": prefill, "decode_tokens": decode, **change,
    }  # fmt: skip


def worker(step_id: int | None, t_ns: int, load: float, finished: float, pid: int = 2) -> dict[str, Any]:
    return {
        "kind": "worker_step", "process": "worker", "pid": pid, "step_id": step_id, "t_ns": t_ns,
        "start_load_kv_us": load, "get_finished_us": finished,
    }  # fmt: skip


def read(tmp_path: Path, *rows: dict[str, Any], tail: str = "", connector: bool = False) -> StepTable:
    path = tmp_path / "engine_step.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return read_steps(path, WINDOW, connector=connector)


def test_only_steps_of_the_window_count(tmp_path: Path) -> None:
    """Warm-up and drain are other mixtures of prefill and decode."""
    found = read(tmp_path, SCHEDULER, *[step(i, t) for i, t in enumerate((0, 999, 1000, 8999, 9000))])
    assert found.n == 2 and found.connector_total_us.tolist() == [10.0, 10.0], "no worker, no connector"


def test_kinds_go_by_the_tokens_of_the_step(tmp_path: Path) -> None:
    rows = (
        step(1, 1000),
        step(2, 2000, prefill=9),
        step(3, 3000, prefill=9, decode=0),
        step(4, 4000, decode=0),
    )
    found = read(tmp_path, SCHEDULER, *rows)
    assert found.kind.tolist() == [DECODE_ONLY, MIXED, PREFILL_ONLY]
    assert (found.n, found.n_empty) == (3, 1), "a step without tokens is counted apart"


def test_hooks_of_both_sides_are_summed_by_step_id(tmp_path: Path) -> None:
    """10 in the scheduler, 3 and 4 in the worker; the file's order does not matter."""
    found = read(
        tmp_path,
        SCHEDULER,
        WORKER,
        worker(2, 2500, 30, 40),
        step(1, 1000),
        step(2, 2000),
        worker(1, 1500, 3, 4),
        connector=True,
    )
    assert (found.hooks_missing, found.connector_total_us.tolist()) == ((), [17.0, 80.0])
    assert found.start_load_kv_us.tolist() == [3.0, 30.0]
    assert found.get_finished_us.tolist() == [4.0, 40.0]


def test_of_several_workers_the_slowest_counts(tmp_path: Path) -> None:
    """Rank 0 spends 5 + 1, rank 1 spends 3 + 4: the step waits for 7."""
    found = read(
        tmp_path, SCHEDULER, WORKER, step(1, 1000), worker(1, 1500, 5, 1), worker(1, 1501, 3, 4, pid=3)
    )
    assert found.connector_total_us.tolist() == [17.0]
    assert (found.start_load_kv_us[0], found.get_finished_us[0]) == (3.0, 4.0), "what rank 1 took for each"


def test_a_step_whose_worker_row_is_missing_has_no_total(tmp_path: Path) -> None:
    """Unknown is not zero, and a row without a step's number belongs to none."""
    rows = (step(1, 1000), worker(None, 1300, 1, 1), step(2, 2000), worker(2, 2500, 3, 4))
    found = read(tmp_path, SCHEDULER, WORKER, *rows)
    assert found.n_unjoined == 1
    assert np.isnan(found.connector_total_us[0]) and found.connector_total_us[1] == 17.0


def test_a_torn_last_line_is_noted(tmp_path: Path) -> None:
    found = read(tmp_path, SCHEDULER, step(1, 1000), tail='{"kind":"st')
    assert (found.n, found.torn) == (1, True)


def test_no_steps_are_an_empty_table(tmp_path: Path) -> None:
    assert [read(tmp_path, *rows).n for rows in ([], [SCHEDULER, WORKER])] == [0, 0]


def test_every_hook_has_its_own_time_and_calls(tmp_path: Path) -> None:
    """Names stand in the headers, the longest list of a side counts; numbers are nanoseconds and calls in turn."""
    scheduler = {**SCHEDULER, "hooks": ["build_connector_meta"]}
    longer = {**SCHEDULER, "hooks": ["build_connector_meta", "take_events"]}
    side = {**WORKER, "hooks": ["get_finished", "0:A/get_finished"]}
    first = {**step(1, 1000), "hooks": [2000, 1]}
    second = {**step(2, 2000), "hooks": [3000, 1, 500, 2]}
    rows = [scheduler, longer, side, first, second, {**worker(2, 2500, 0, 1.5), "hooks": [1000, 1, 500, 1]}]
    found = read(tmp_path, *rows)
    assert found.hooks.names == (
        *("scheduler/build_connector_meta", "scheduler/take_events"),
        *("worker/get_finished", "worker/0:A/get_finished"),
    )
    assert found.hooks.us[1].tolist() == [3.0, 0.5, 1.0, 0.5]
    assert found.hooks.calls[1].tolist() == [1, 2, 1, 1]
    assert found.hooks.us[0, :2].tolist() == [2.0, 0.0]
    assert np.isnan(found.hooks.us[0, 2:]).all(), "the worker's row is missing, which is not zero"
    assert np.isnan(found.connector_total_us[0]) and found.connector_total_us[1] == 5.0


def test_a_connector_whose_worker_recorded_nothing_is_not_known_to_take_no_time(tmp_path: Path) -> None:
    """The same records as plain's, but for what the scheduler's own hook took."""
    found = read(tmp_path, SCHEDULER, step(1, 1000), step(2, 2000), connector=True)
    assert np.isnan([found.connector_total_us, found.get_finished_us, found.start_load_kv_us]).all()
    assert found.build_meta_us.tolist() == [10.0, 10.0], "the scheduler was heard"
    assert found.hooks_missing == ("no_worker",)


def test_a_worker_that_gave_up_before_the_cell_was_not_heard_either(tmp_path: Path) -> None:
    found = read(tmp_path, SCHEDULER, WORKER, step(1, 1000), connector=True)
    assert np.isnan(found.connector_total_us).all()
    assert found.hooks_missing == ("worker_without_rows",)


@pytest.mark.parametrize("silent", ["scheduler", "worker"])
def test_a_process_that_wrapped_no_hook_was_not_heard(tmp_path: Path, silent: str) -> None:
    """Its rows have zeros, since there was nothing to measure them with."""
    names = {"scheduler": ["build_connector_meta"], "worker": ["start_load_kv", "get_finished"]}
    names[silent] = []
    headers = [{**h, "hooks": names[h["process"]]} for h in (SCHEDULER, WORKER)]
    rows = [step(1, 1000, build_meta_us=0.0), worker(1, 1100, 0.0, 0.0)]
    found = read(tmp_path, *headers, *rows, connector=True)
    assert np.isnan(found.connector_total_us).all()
    assert np.isnan(found.build_meta_us).all() == (silent == "scheduler")
    assert np.isnan(found.get_finished_us).all() == (silent == "worker")
    assert found.hooks_missing == (f"{silent}_without_hooks",)
