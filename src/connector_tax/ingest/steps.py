"""``engine_step_*.jsonl`` to columns, worker rows joined to the scheduler's steps."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.records.cell import CellWindow
from connector_tax.steptime import read_step_file

Floats = NDArray[np.float64]
Row = dict[str, Any]

DECODE_ONLY, MIXED, PREFILL_ONLY = 0, 1, 2
KIND_NAMES = ("decode_only", "mixed", "prefill_only")


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps of one cell's window with at least one token, in time order.

    Every column has shape (n,), times in microseconds.

    Attributes:
        connector_total_us: the hooks of both sides summed; NaN where the worker's row is missing.
        kind: DECODE_ONLY, MIXED or PREFILL_ONLY.
        n_empty: steps of the window without a token, which are left out.
        n_unjoined: steps of a configuration with a connector that no worker row belongs to.
        n_joined_by_order: steps whose worker row carried no step id.
        torn: the file's last line was cut off.
    """

    step_duration_us: Floats
    schedule_us: Floats
    update_us: Floats
    round_trip_us: Floats
    build_meta_us: Floats
    get_finished_us: Floats
    start_load_kv_us: Floats
    connector_total_us: Floats
    kind: NDArray[np.int8]
    n_empty: int
    n_unjoined: int
    n_joined_by_order: int
    torn: bool

    @property
    def n(self) -> int:
        return int(self.step_duration_us.size)


def read_steps(path: Path, window: CellWindow) -> StepTable:
    """Read one cell's share; a step belongs to the window if its ``schedule()`` began in it.

    Hook times of the worker come from, in this order: its rows, joined by ``step_id``; its rows without
    one, joined by order; the scheduler's own row, where both share a process. Where no worker ever wrote
    there is no connector, and its hooks took no time.

    Raises:
        ArtifactError: a line is not a step record.
    """
    found = read_step_file(path)
    steps = sorted(found.steps, key=lambda row: row["t_ns"])
    hooks, by_order = _worker_hooks(steps, found.worker_steps)
    has_worker = bool(found.worker_steps) or any(h.get("process") == "worker" for h in found.headers)
    inside = [
        (row, hooks.get(row["step_id"]) or _own_hooks(row, has_worker))
        for row in steps
        if window.window_start_ns <= row["t_ns"] < window.t_stop_ns
    ]
    rows = [row for row, _ in inside if row["prefill_tokens"] + row["decode_tokens"] > 0]
    times = np.array(
        [h for row, h in inside if row["prefill_tokens"] + row["decode_tokens"] > 0], dtype=np.float64
    ).reshape(-1, 3)
    build_meta = _column(rows, "build_meta_us")
    prefill, decode = _column(rows, "prefill_tokens"), _column(rows, "decode_tokens")
    return StepTable(
        step_duration_us=_column(rows, "step_duration_us"),
        schedule_us=_column(rows, "schedule_us"),
        update_us=_column(rows, "update_us"),
        round_trip_us=_column(rows, "round_trip_us"),
        build_meta_us=build_meta,
        get_finished_us=times[:, 1],
        start_load_kv_us=times[:, 0],
        connector_total_us=build_meta + times[:, 2],
        kind=np.where(prefill == 0, DECODE_ONLY, np.where(decode == 0, PREFILL_ONLY, MIXED)).astype(np.int8),
        n_empty=len(inside) - len(rows),
        n_unjoined=int(np.isnan(times[:, 2]).sum()),
        n_joined_by_order=sum(row["step_id"] in by_order for row in rows),
        torn=found.torn,
    )


Hooks = tuple[float, float, float]


def _worker_hooks(steps: list[Row], worker_rows: list[Row]) -> tuple[dict[int, Hooks], set[int]]:
    """step id -> (start_load_kv, get_finished, their sum); and the ids that were joined by order.

    With several workers (tensor parallelism) the slowest counts, since the step waits for it.
    """
    hooks: dict[int, Hooks] = {}
    unnamed: dict[int, list[Row]] = {}
    for row in worker_rows:
        if row["step_id"] is None:
            unnamed.setdefault(row["pid"], []).append(row)
        else:
            _add(hooks, row["step_id"], row)
    by_order: set[int] = set()
    for rows in unnamed.values():
        for step_id, row in _in_order(steps, sorted(rows, key=lambda r: r["t_ns"])):
            _add(hooks, step_id, row)
            by_order.add(step_id)
    return hooks, by_order


def _add(hooks: dict[int, Hooks], step_id: int, row: Row) -> None:
    load, finished = float(row["start_load_kv_us"] or 0.0), float(row["get_finished_us"] or 0.0)
    earlier = hooks.get(step_id, (0.0, 0.0, 0.0))
    hooks[step_id] = (max(earlier[0], load), max(earlier[1], finished), max(earlier[2], load + finished))


def _in_order(steps: list[Row], worker_rows: list[Row]) -> list[tuple[int, Row]]:
    """A worker binds once per step and in the same order, so the next row belongs to the oldest step open.

    A step is open from its ``schedule()`` to its ``update_from_output()``; a row outside of every step
    belongs to one beyond the ends of the cell.
    """
    waiting = deque(steps)
    joined = []
    for row in worker_rows:
        while waiting and waiting[0]["t_update_ns"] < row["t_ns"]:
            waiting.popleft()
        if waiting and waiting[0]["t_ns"] <= row["t_ns"]:
            joined.append((waiting.popleft()["step_id"], row))
    return joined


def _own_hooks(row: Row, has_worker: bool) -> Hooks:
    load, finished = row.get("start_load_kv_us"), row.get("get_finished_us")
    if load is None and finished is None:
        return (np.nan, np.nan, np.nan) if has_worker else (0.0, 0.0, 0.0)
    return float(load or 0.0), float(finished or 0.0), float(load or 0.0) + float(finished or 0.0)


def _column(rows: list[Row], name: str) -> Floats:
    return np.array([row[name] for row in rows], dtype=np.float64)
