"""Reads ``engine_step_*.jsonl`` into columns, with worker rows joined to the scheduler's steps.

A large campaign's records exceed memory: a cell keeps a handle, and decodes them on each access.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.errors import ArtifactError
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.steptime.columns import HookLists, StepColumns, read_step_columns
from connector_tax.base.steptime.hooks_recorded import Unheard
from connector_tax.base.units import NS_PER_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DECODE_ONLY, MIXED, PREFILL_ONLY = 0, 1, 2
KIND_NAMES = ("decode_only", "mixed", "prefill_only")
# Columns of every step record.
TIMES = ("step_duration_us", "schedule_us", "update_us", "round_trip_us", "build_meta_us")


@dataclass(frozen=True, slots=True)
class Hooks:
    """Each connector hook's own time in each step; a hook called from another counts once.

    Attributes:
        names: ``scheduler/build_connector_meta``, ``worker/0:NixlConnector/get_finished``; shape (k,).
        us: microseconds, shape (n, k); NaN if the worker's row is missing.
        calls: shape (n, k).
        cpu_us: CPU time of the calling thread in microseconds, shape (n, k); NaN except in the few steps that
            measured it.
    """

    names: tuple[str, ...]
    us: Floats
    calls: Floats
    cpu_us: Floats


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps of one cell's window with at least one token, in time order.

    Every column has shape (n,), durations in microseconds.

    Attributes:
        began_s: start of ``schedule()``, in seconds from the window's beginning.
        connector_total_us: sum of both sides' hooks; NaN if the worker's row is missing.
        tokens: prefill and decode tokens together.
        kind: DECODE_ONLY, MIXED or PREFILL_ONLY.
        n_empty: steps of the window without a token, which are left out.
        n_unjoined: steps of a configuration with a connector without a worker row.
        torn: the file's last line was cut off.
        hooks_missing: codes of why hook times are unknown despite a connector; they are NaN then.
    """

    began_s: Floats
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
    torn: bool
    hooks_missing: tuple[Unheard, ...] = ()

    @property
    def n(self) -> int:
        return int(self.step_duration_us.size)

    @property
    def member_us(self) -> dict[str, dict[str, Floats]]:
        """Return member of the connector -> kind of step -> total hook time in each step.

        Members are ``""`` (the outermost) and children such as ``0:NixlConnector``; kinds are decode-only
        steps (``decode``) and others (``prefill``). A kind without known times is missing.
        """
        columns: dict[str, list[int]] = {}
        for k, name in enumerate(self.hooks.names):
            columns.setdefault(name.partition("/")[2].rpartition("/")[0], []).append(k)
        kinds = {"decode": self.kind == DECODE_ONLY, "prefill": self.kind != DECODE_ONLY}
        us_by_member: dict[str, dict[str, Floats]] = {}
        for member, member_columns in columns.items():
            us = self.hooks.us[:, member_columns].sum(axis=1)
            known = ~np.isnan(us) if not self.hooks_missing else np.zeros(self.n, dtype=np.bool_)
            us_by_member[member] = {
                kind: us[known & rows] for kind, rows in kinds.items() if (known & rows).any()
            }
        return us_by_member


@dataclass(frozen=True, slots=True)
class StepRecords:
    """Step records of one cell, read on demand.

    Attributes:
        connector: the launch had one.
        n, torn, hooks_missing: as in ``StepTable``.
        members: median hook time of each member of the connector, microseconds; see ``StepTable.member_us``.
    """

    source: Path
    window: CellWindow
    connector: bool
    n: int
    torn: bool
    hooks_missing: tuple[Unheard, ...]
    members: dict[str, dict[str, float]]

    def load(self) -> StepTable:
        return read_steps(self.source, self.window, connector=self.connector)


def open_steps(source: Path, window: CellWindow, *, connector: bool) -> StepRecords:
    """Read the records once, and keep what the analysis needs of each cell.

    Raises:
        ArtifactError: a line of ``source`` is not a step record.
    """
    table = read_steps(source, window, connector=connector)
    members = {
        member: {kind: float(np.median(us)) for kind, us in kinds.items()}
        for member, kinds in table.member_us.items()
    }
    return StepRecords(source, window, connector, table.n, table.torn, table.hooks_missing, members)


def read_steps(path: Path, window: CellWindow, *, connector: bool = False) -> StepTable:
    """Read one cell's records; a step belongs to the window if its ``schedule()`` began in it.

    Worker hook times come from worker rows, joined by ``step_id``; a row without a match belongs to no step.
    Without any worker row there is no connector, and its hooks took no time.

    Args:
        connector: there is a connector anyway; missing worker rows then mean unknown times, not zero.

    Raises:
        ArtifactError: a line is not a step record, or a step with a token has no times.
    """
    columns = read_step_columns(path)
    ints, floats = columns.steps.ints, columns.steps.floats
    worker = _worker_parts(columns, connector)
    order = np.argsort(ints["t_ns"], kind="stable")
    t_ns = ints["t_ns"][order]
    inside = (window.window_start_ns <= t_ns) & (t_ns < window.t_stop_ns)
    tokens = ints["prefill_tokens"] + ints["decode_tokens"]
    rows = order[inside & (tokens[order] > 0)]
    if untimed := int(np.isnan([floats[name][rows] for name in TIMES]).any(axis=0).sum()):
        raise ArtifactError(f"{path.name}: {untimed} steps with a token lack {' or '.join(TIMES)}")
    prefill, decode = ints["prefill_tokens"][rows], ints["decode_tokens"][rows]
    load, finished, total = (of_step[rows] for of_step in worker[:3])
    build_meta = floats["build_meta_us"][rows]
    hooks = _hooks(columns, rows, worker[3][rows], total)
    all_us = hooks.us.sum(axis=1) if hooks.names else build_meta + total
    missing = _missing_hooks(columns, rows, total) if connector else {}
    if missing:
        missing_us = np.full(rows.size, np.nan)
        build_meta = missing_us if "scheduler" in missing else build_meta
        load, finished = (missing_us, missing_us) if "worker" in missing else (load, finished)
        all_us = missing_us
    return StepTable(
        began_s=(ints["t_ns"][rows] - window.window_start_ns) / NS_PER_S,
        step_duration_us=floats["step_duration_us"][rows],
        schedule_us=floats["schedule_us"][rows],
        update_us=floats["update_us"][rows],
        round_trip_us=floats["round_trip_us"][rows],
        build_meta_us=build_meta,
        get_finished_us=finished,
        start_load_kv_us=load,
        connector_total_us=all_us,
        tokens=tokens[rows].astype(np.float64),
        kind=np.where(prefill == 0, DECODE_ONLY, np.where(decode == 0, PREFILL_ONLY, MIXED)).astype(np.int8),
        hooks=hooks,
        n_empty=int(inside.sum() - rows.size),
        n_unjoined=int(np.isnan(total).sum()),
        torn=columns.torn,
        hooks_missing=tuple(missing.values()),
    )


def _missing_hooks(columns: StepColumns, rows: Ints, total: Floats) -> dict[str, Unheard]:
    """Return the sides without hook times, with the code of why."""
    if rows.size and np.isnan(total).all():
        return {"worker": "worker_without_rows", **columns.unheard}
    return columns.unheard


def _worker_parts(columns: StepColumns, connector: bool) -> tuple[Floats, Floats, Floats, Ints]:
    """Return per step the worker's hook times (loading, finishing, total; NaN if unknown) and row or -1."""
    ids = columns.steps.ints["step_id"]
    workers = columns.workers
    load, finished = (np.nan_to_num(workers.floats[n]) for n in ("start_load_kv_us", "get_finished_us"))
    total = _totals(columns, load, finished)
    named_rows = np.flatnonzero(columns.named)
    row = _slowest(ids, workers.ints["step_id"][named_rows], named_rows, total)
    unknown = np.full(ids.size, np.nan if columns.has_worker or connector else 0.0)

    def chosen(worker_values: Floats) -> Floats:
        out = unknown.copy()
        out[row >= 0] = worker_values[row[row >= 0]]
        return out

    return chosen(load), chosen(finished), chosen(total), row


def _totals(columns: StepColumns, load: Floats, finished: Floats) -> Floats:
    """Sum the hooks of each worker row, microseconds; rows without a list use the two hook columns."""
    lists = columns.workers.hooks
    if not lists.values.size:
        return load + finished
    nanoseconds = lists.padded(int(lists.lengths.max()))[:, ::2].sum(axis=1)
    return np.where(lists.lengths > 0, nanoseconds / 1e3, load + finished)


def _slowest(ids: Ints, joined_ids: Ints, joined_rows: Ints, total: Floats) -> Ints:
    """Return the worker row of each step, -1 without one.

    With several workers (tensor parallelism) the slowest counts, since the step waits for it; the first of
    equals.
    """
    order = np.lexsort((np.arange(joined_ids.size), -total[joined_rows], joined_ids))
    known, first = np.unique(joined_ids[order], return_index=True)
    if not known.size:
        return np.full(ids.size, -1, dtype=np.int64)
    index = np.minimum(np.searchsorted(known, ids), known.size - 1)
    return np.where(known[index] == ids, joined_rows[order][first][index], -1)


def _hooks(columns: StepColumns, rows: Ints, row: Ints, total: Floats) -> Hooks:
    """Build the hooks' table; hook names come from headers, not rows.

    Args:
        row: the worker's row of each step.
    """
    lists = columns.hook_names
    names = tuple(f"{side}/{name}" for side in ("scheduler", "worker") for name in lists[side])
    n_scheduler_columns, n_columns = 2 * len(lists["scheduler"]), 2 * len(names)
    table = np.zeros((rows.size, n_columns))
    table[:, :n_scheduler_columns] = columns.steps.hooks.padded(n_scheduler_columns)[rows]
    worker_hooks = columns.workers.hooks.padded(n_columns - n_scheduler_columns)
    table[row >= 0, n_scheduler_columns:] = worker_hooks[row[row >= 0]]
    table[np.isnan(total), n_scheduler_columns:] = np.nan
    cpu = np.full((rows.size, len(names)), np.nan)
    cpu[:, : n_scheduler_columns // 2] = _cpu_us(columns.steps.cpu, n_scheduler_columns // 2)[rows]
    cpu[row >= 0, n_scheduler_columns // 2 :] = _cpu_us(
        columns.workers.cpu, (n_columns - n_scheduler_columns) // 2
    )[row[row >= 0]]
    return Hooks(names, table[:, ::2] / 1e3, table[:, 1::2], cpu)


def _cpu_us(lists: HookLists, width: int) -> Floats:
    """Return CPU times, shape (rows, width); a row without them is all NaN."""
    return np.where(lists.lengths[:, None] > 0, lists.padded(width) / 1e3, np.nan)
