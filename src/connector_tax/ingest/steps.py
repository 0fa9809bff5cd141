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
class Hooks:
    """What each connector hook took of itself in each step; a hook called from another counts once.

    Attributes:
        names: ``scheduler/build_connector_meta``, ``worker/0:NixlConnector/get_finished``; shape (k,).
        us: microseconds, shape (n, k); NaN where the worker's row is missing.
        calls: shape (n, k).
    """

    names: tuple[str, ...]
    us: Floats
    calls: Floats


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps of one cell's window with at least one token, in time order.

    Every column has shape (n,), times in microseconds.

    Attributes:
        connector_total_us: the hooks of both sides summed; NaN where the worker's row is missing.
        tokens: prefill and decode tokens together.
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
    tokens: Floats
    kind: NDArray[np.int8]
    hooks: Hooks
    n_empty: int
    n_unjoined: int
    n_joined_by_order: int
    torn: bool

    @property
    def n(self) -> int:
        return int(self.step_duration_us.size)


# One worker's step: (start_load_kv, get_finished, all its hooks), microseconds, and the row's own list of hooks.
WorkerStep = tuple[float, float, float, list[int]]
MISSING: WorkerStep = (np.nan, np.nan, np.nan, [])


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
    worker_steps, by_order = _worker_steps(steps, found.worker_steps)
    has_worker = bool(found.worker_steps) or any(h.get("process") == "worker" for h in found.headers)
    inside = [row for row in steps if window.window_start_ns <= row["t_ns"] < window.t_stop_ns]
    rows = [row for row in inside if row["prefill_tokens"] + row["decode_tokens"] > 0]
    workers = [worker_steps.get(row["step_id"]) or _own_hooks(row, has_worker) for row in rows]
    times = np.array([w[:3] for w in workers], dtype=np.float64).reshape(-1, 3)
    build_meta = _column(rows, "build_meta_us")
    prefill, decode = _column(rows, "prefill_tokens"), _column(rows, "decode_tokens")
    hooks = _hooks(found.headers, rows, workers)
    return StepTable(
        step_duration_us=_column(rows, "step_duration_us"),
        schedule_us=_column(rows, "schedule_us"),
        update_us=_column(rows, "update_us"),
        round_trip_us=_column(rows, "round_trip_us"),
        build_meta_us=build_meta,
        get_finished_us=times[:, 1],
        start_load_kv_us=times[:, 0],
        connector_total_us=hooks.us.sum(axis=1) if hooks.names else build_meta + times[:, 2],
        tokens=prefill + decode,
        kind=np.where(prefill == 0, DECODE_ONLY, np.where(decode == 0, PREFILL_ONLY, MIXED)).astype(np.int8),
        hooks=hooks,
        n_empty=len(inside) - len(rows),
        n_unjoined=int(np.isnan(times[:, 2]).sum()),
        n_joined_by_order=sum(row["step_id"] in by_order for row in rows),
        torn=found.torn,
    )


def _hooks(headers: list[Row], rows: list[Row], workers: list[WorkerStep]) -> Hooks:
    """Rows name no hooks; the longest list among a side's headers does, since names are only ever added."""
    lists: dict[str, list[str]] = {"scheduler": [], "worker": []}
    for header in headers:
        side, own = header.get("process"), header.get("hooks") or []
        if side in lists and len(own) > len(lists[side]):
            lists[side] = own
    names = tuple(f"{side}/{name}" for side in ("scheduler", "worker") for name in lists[side])
    n_scheduler, n_worker = len(lists["scheduler"]), len(lists["worker"])
    table = np.zeros((len(rows), 2 * len(names)))
    for i, (row, worker) in enumerate(zip(rows, workers, strict=True)):
        own, theirs = row.get("hooks") or [], worker[3]
        table[i, : len(own)] = own
        table[i, 2 * n_scheduler : 2 * n_scheduler + len(theirs)] = theirs
        if worker is MISSING and n_worker:
            table[i, 2 * n_scheduler :] = np.nan
    return Hooks(names, table[:, ::2] / 1e3, table[:, 1::2])


def _worker_steps(steps: list[Row], worker_rows: list[Row]) -> tuple[dict[int, WorkerStep], set[int]]:
    """step id -> the worker's part of it; and the ids that were joined by order.

    With several workers (tensor parallelism) the slowest counts, since the step waits for it.
    """
    found: dict[int, WorkerStep] = {}
    unnamed: dict[int, list[Row]] = {}
    for row in worker_rows:
        if row["step_id"] is None:
            unnamed.setdefault(row["pid"], []).append(row)
        else:
            _add(found, row["step_id"], row)
    by_order: set[int] = set()
    for rows in unnamed.values():
        for step_id, row in _in_order(steps, sorted(rows, key=lambda r: r["t_ns"])):
            _add(found, step_id, row)
            by_order.add(step_id)
    return found, by_order


def _add(found: dict[int, WorkerStep], step_id: int, row: Row) -> None:
    load, finished = float(row["start_load_kv_us"] or 0.0), float(row["get_finished_us"] or 0.0)
    hooks = row.get("hooks") or []
    total = sum(hooks[::2]) / 1e3 if hooks else load + finished
    earlier = found.get(step_id)
    if earlier is None or total > earlier[2]:
        found[step_id] = (load, finished, total, hooks)


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


def _own_hooks(row: Row, has_worker: bool) -> WorkerStep:
    load, finished = row.get("start_load_kv_us"), row.get("get_finished_us")
    if load is None and finished is None:
        return MISSING if has_worker else (0.0, 0.0, 0.0, [])
    return float(load or 0.0), float(finished or 0.0), float(load or 0.0) + float(finished or 0.0), []


def _column(rows: list[Row], name: str) -> Floats:
    return np.array([row[name] for row in rows], dtype=np.float64)
