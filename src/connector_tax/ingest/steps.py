"""``engine_step_*.jsonl`` to columns, worker rows joined to the scheduler's steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.steptime import read_step_file

Floats = NDArray[np.float64]

DECODE_ONLY, MIXED, PREFILL_ONLY = 0, 1, 2
KIND_NAMES = ("decode_only", "mixed", "prefill_only")


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps with at least one token, in time order; every column has shape (n,), times in microseconds.

    Attributes:
        connector_total_us: the hooks of both sides summed; NaN where the worker's row is missing.
        kind: DECODE_ONLY, MIXED or PREFILL_ONLY.
        n_empty: steps without a token, which are left out.
        n_unjoined: steps of a configuration with a connector that no worker row belongs to.
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
    torn: bool

    @property
    def n(self) -> int:
        return int(self.step_duration_us.size)


def read_steps(path: Path) -> StepTable:
    """Read one cell's share.

    Worker rows are joined by ``step_id``. Without worker rows there is no connector, and its hooks took
    no time; with several workers (tensor parallelism) the slowest counts, since the step waits for it.
    """
    found = read_step_file(path)
    worker: dict[int, tuple[float, float]] = {}
    for row in found.worker_steps:
        if row["step_id"] is None:
            continue
        load, finished = worker.get(row["step_id"], (0.0, 0.0))
        worker[row["step_id"]] = (max(load, row["start_load_kv_us"]), max(finished, row["get_finished_us"]))
    has_worker = any(h["process"] == "worker" for h in found.headers)
    rows = [r for r in found.steps if r["prefill_tokens"] + r["decode_tokens"] > 0]
    missing = (np.nan, np.nan) if has_worker else (0.0, 0.0)
    hooks = np.array([worker.get(r["step_id"], missing) for r in rows], dtype=np.float64).reshape(-1, 2)
    build_meta = _column(rows, "build_meta_us")
    prefill, decode = _column(rows, "prefill_tokens"), _column(rows, "decode_tokens")
    return StepTable(
        step_duration_us=_column(rows, "step_duration_us"),
        schedule_us=_column(rows, "schedule_us"),
        update_us=_column(rows, "update_us"),
        round_trip_us=_column(rows, "round_trip_us"),
        build_meta_us=build_meta,
        get_finished_us=hooks[:, 1],
        start_load_kv_us=hooks[:, 0],
        connector_total_us=build_meta + hooks.sum(axis=1),
        kind=np.where(prefill == 0, DECODE_ONLY, np.where(decode == 0, PREFILL_ONLY, MIXED)).astype(np.int8),
        n_empty=len(found.steps) - len(rows),
        n_unjoined=int(np.isnan(hooks[:, 0]).sum()),
        torn=found.torn,
    )


def _column(rows: list[dict[str, Any]], name: str) -> Floats:
    return np.array([row[name] for row in rows], dtype=np.float64)
