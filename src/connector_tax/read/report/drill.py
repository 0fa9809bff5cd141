"""Drill-downs: each cell's raw files as columns over time and facts, shown in ``report.html`` on opening a
cell.

Times are seconds from the cell's T0, rounded to milliseconds; other values keep four digits. Words and plots
are in ``workflow/report/drill.*``.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import printable
from connector_tax.base.parallel import each_in
from connector_tax.base.records.host import GpuReading, HostReading
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.secrets import excerpt
from connector_tax.base.statistics.cell import in_window
from connector_tax.base.units import NS_PER_MS, NS_PER_S
from connector_tax.read.analysis import processes_for
from connector_tax.read.ingest import CellData, read_campaign
from connector_tax.read.ingest.samples import Moment, read_timeline
from connector_tax.read.ingest.steps import StepTable

Key = tuple[str, str, str]
Column = Sequence[float | None] | NDArray[np.float64]
Columns = Mapping[str, Column]
T = TypeVar("T")

# Rows of a table over all cells of a page. One row of all three tables takes at most 120 bytes: 3.6 MB.
MOST_ROWS = 30_000
# Number of runs of consecutive steps with a median each.
MEDIANS = 60
MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class DrillDown:
    """The page's details of one cell.

    Attributes:
        folder: of its raw files, below the campaign's.
        data: ``times`` (begin and end of the window, end of the cell), ``statuses`` that ``failed`` refers to
            by number, and the tables ``requests``, ``steps`` and ``samples``; see ``table``.
        counts: requests of the window, and those that are ok.
        unreadable: why files cannot be shown.
        launch: the connector's configuration as launched; empty for plain.
        hooks: name, percent of a step, microseconds and calls per step; means of steps with known hook times.
        hooks_missing: codes of why no hook time is known.
        compacted: step records were left out of a published campaign.
        unread: step records exist but were not read, since the cell's files are faulty.
        failures: status, count and first error.
        throttled: reasons for reduced GPU clocks, in percent of samples.
    """

    anchor: str
    folder: str
    data: Mapping[str, object]
    counts: tuple[int, int]
    unreadable: Sequence[str]
    launch: str
    hooks: Sequence[tuple[str, float, float, float]]
    hooks_missing: Sequence[str]
    compacted: bool
    unread: bool
    failures: Sequence[tuple[str, int, str]]
    throttled: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class DrillDowns:
    """The drill-downs of a page.

    Attributes:
        of: by configuration, phase and cell id; a cell without raw files is missing.
        failed: why nothing could be read; else empty.
        kept: the rule by which a published campaign was thinned; empty for a whole one.
    """

    of: Mapping[Key, DrillDown]
    failed: str = ""
    kept: str = ""


NONE = DrillDowns({})


def read_drill_downs(root: Path, order: Sequence[Key]) -> DrillDowns:
    """Read the raw results of the page's cells; an unreadable campaign still gets a page."""
    try:
        with each_in(processes_for(root)) as each:
            campaign = read_campaign(root, each=each)
            raw = {
                cell.key: (cell, run.folder.cell(cell.cell_id)) for run in campaign.runs for cell in run.cells
            }
            keys = [key for key in order if key in raw]
            drill = partial(drill_down, root=root, most_rows=MOST_ROWS // max(1, len(keys)))
            drill_downs = each(drill, [(f"cell-{n}", *raw[key]) for n, key in enumerate(keys, 1)])
            by_key = dict(zip(keys, drill_downs, strict=True))
    except ArtifactError as error:
        return DrillDowns({}, failed=printable(str(error).replace(f"{root}/", "")))
    thinned = campaign.document.thinned
    return DrillDowns(by_key, kept=printable(thinned.rule) if thinned else "")


def drill_down(raw: tuple[str, CellData, CellFolder], root: Path, most_rows: int) -> DrillDown:
    """Collect what can be read of a cell (anchor, records, folder); unreadable files are named."""
    anchor, cell, folder = raw
    window, unreadable = cell.window, list[str]()

    def read(load: Callable[[], T], otherwise: T) -> T:
        try:
            return load()
        except ArtifactError as error:
            unreadable.append(printable(str(error), MOST_CHARS))
            return otherwise

    def seconds(times_ns: Sequence[int]) -> list[float]:
        return [(t - window.t0_ns) / NS_PER_S for t in times_ns]

    steps = read(cell.steps.load, None) if cell.steps else None
    moments = read(lambda: read_timeline(folder.metrics), list[Moment]())
    hosts = [m.host or HostReading() for m in moments]
    times = seconds([window.window_start_ns, window.t_stop_ns, window.drained_ns])
    fit = partial(table, end=times[-1], most_rows=most_rows)
    statuses = sorted({r.status for r in cell.requests} - {"ok"})
    clock_reason_counts = Counter(reason for h in hosts if h.gpu for reason in h.gpu.clock_reasons or ())
    inside = in_window(cell.requests, window)
    kv_transfer_config = cell.document.kv_transfer_config
    return DrillDown(
        anchor=anchor,
        folder=printable(str(folder.path.relative_to(root))),
        data={
            "times": times,
            "statuses": [status.replace("_", " ") for status in statuses],
            "requests": fit(
                seconds([r.t_sched_ns for r in cell.requests]), _requests(cell.requests, statuses)
            ),
            "steps": fit(steps.began_s + times[0], _steps(steps)) if steps and steps.n else {},
            "samples": fit(seconds([m.t_ns for m in moments]), _samples(moments, hosts)),
        },
        counts=(len(inside), sum(r.status == "ok" for r in inside)),
        unreadable=unreadable,
        launch=printable(json.dumps(kv_transfer_config, ensure_ascii=False)) if kv_transfer_config else "",
        hooks=_hooks(steps) if steps and not steps.hooks_missing else (),
        hooks_missing=steps.hooks_missing if steps else (),
        compacted=bool(cell.document.steps_left_out),
        unread=bool(cell.faults) and folder.engine_step.is_file(),
        failures=_failures(cell.requests),
        throttled=[
            (printable(reason, MOST_CHARS), 100 * n / len(hosts))
            for reason, n in clock_reason_counts.most_common()
        ],
    )


def table(at: Column, columns: Columns, end: float, most_rows: int) -> dict[str, object]:
    """Return columns over ``t`` from 0 to ``end``, and their number of rows as ``of``.

    A column without a value is missing; a column with a single value throughout is that value. Above
    ``most_rows``, runs of consecutive rows keep the rows with a column's smallest or largest value.
    """
    t = np.array(at, dtype=np.float64)
    order = np.argsort(t, kind="stable")
    order = order[(t[order] >= 0) & (t[order] <= end)]
    all_columns = {name: np.array(column, dtype=np.float64)[order] for name, column in columns.items()}
    finite_columns = {name: column for name, column in all_columns.items() if np.isfinite(column).any()}
    if not finite_columns:
        return {}
    values = np.array(list(finite_columns.values()))
    known, kept_rows = np.isfinite(values), np.arange(order.size)
    if order.size > most_rows:
        low, high = (np.where(known, values, fill) for fill in (np.inf, -np.inf))
        runs = np.array_split(kept_rows, max(1, most_rows // (2 * len(values))))
        kept_rows = np.unique([run[[*low[:, run].argmin(1), *high[:, run].argmax(1)]] for run in runs])
    rows = {"t": [round(v, 3) for v in t[order][kept_rows].tolist()]}
    for name, column, is_known in zip(
        finite_columns, values[:, kept_rows].tolist(), known[:, kept_rows], strict=True
    ):
        rows[name] = [float(f"{v:.4g}") if k else None for v, k in zip(column, is_known, strict=True)]
    return {"of": order.size} | {k: v if k == "t" or len(set(v)) > 1 else v[0] for k, v in rows.items()}


def _requests(requests: Sequence[RequestRecord], statuses: Sequence[str]) -> Columns:
    ns = {name: [getattr(r, f"{name}_ns") for r in requests] for name in ("ttft", "e2e", "tpot")}
    times_ms: dict[str, Column] = {
        k: np.array(times_ns, dtype=np.float64) / NS_PER_MS for k, times_ns in ns.items()
    }
    return times_ms | {"failed": [None if r.status == "ok" else statuses.index(r.status) for r in requests]}


def _steps(steps: StepTable) -> Columns:
    ms = steps.step_duration_us / 1e3
    runs = np.array_split(ms, min(MEDIANS, ms.size))
    return {"step": ms, "median": np.concatenate([np.full(run.size, np.median(run)) for run in runs])}


def _samples(moments: Sequence[Moment], hosts: Sequence[HostReading]) -> Columns:
    gpus = [h.gpu or GpuReading() for h in hosts]
    return {
        "running": [m.running for m in moments],
        "waiting": [m.waiting for m in moments],
        "stolen": _stolen(hosts),
        "work_us": [float(np.mean(h.cpu_work_us or np.nan)) for h in hosts],
        "cpu_mhz": [float(np.median(h.cpu_mhz or np.nan)) for h in hosts],
        **{
            name: [getattr(gpu, name) for gpu in gpus]
            for name in ("sm_mhz", "mem_mhz", "temperature_c", "power_w")
        },
    }


def _stolen(hosts: Sequence[HostReading]) -> Column:
    """Return stolen ticks since the last sample, percent; NaN if counters are missing or ran backwards."""
    total_ticks, stolen = (
        np.diff(np.array([getattr(h, name) for h in hosts], dtype=np.float64), prepend=np.nan)
        for name in ("cpu_ticks", "steal_ticks")
    )
    percent: Column = (
        100
        * stolen
        / np.where((stolen >= 0) & (stolen <= total_ticks) & (total_ticks > 0), total_ticks, np.nan)
    )
    return percent


def _hooks(steps: StepTable) -> list[tuple[str, float, float, float]]:
    """Return name, percent of a step, microseconds and calls per step of each hook, the largest first."""
    known = ~np.isnan(steps.hooks.us).any(axis=1)
    if not known.any():
        return []
    us, calls, step_us = (
        values[known].mean(axis=0) for values in (steps.hooks.us, steps.hooks.calls, steps.step_duration_us)
    )
    return [
        (printable(steps.hooks.names[k], MOST_CHARS), 100 * us[k] / step_us, us[k], calls[k])
        for k in np.argsort(-us, kind="stable")
        if us[k] > 0
    ]


def _failures(requests: Sequence[RequestRecord]) -> list[tuple[str, int, str]]:
    """Return the statuses that are not ok, most frequent first, with the first error of each."""
    counts = Counter(r.status for r in requests if r.status != "ok")
    first = {r.status: r.error for r in reversed(requests) if r.error}
    return [
        (status.replace("_", " "), n, printable(excerpt(first.get(status, ""), MOST_CHARS), 2 * MOST_CHARS))
        for status, n in counts.most_common()
    ]
