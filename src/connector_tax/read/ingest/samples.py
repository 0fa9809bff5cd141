"""``metrics_*.jsonl`` to what the analysis asks of it."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from connector_tax.base.connector_off import EXTERNAL_QUERIES
from connector_tax.base.files import each_line_of, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest.host import HostState, host_reading, host_state

# A counter over time: (t_ns, value) of each sample that has it.
Counted = tuple[tuple[int, float], ...]
# Of tokens since the launch and of bytes alike.
MOST_VALUE = 1e18


@dataclass(frozen=True, slots=True)
class Samples:
    """One cell's samples inside its window.

    Attributes:
        external_queries: that counter in all samples from the cell's beginning to its drain.
        waiting_p50, running_p50: medians over the window's samples; None without any.
        n_waiting: samples that waiting_p50 is the median of.
        n, n_missed: samples in the window, and how many of them could not be taken.
        host: what the host did meanwhile; None where no sample says, as in artifacts of older versions.
    """

    waiting_p50: float | None
    running_p50: float | None
    n: int
    n_missed: int
    host: HostState | None = None
    n_waiting: int = 0
    external_queries: Counted = ()


def read_samples(path: Path, window: CellWindow) -> Samples:
    """A line that does not parse counts as missed; so does a sample that failed."""
    rows = []
    readings = []
    queries = []
    missed = 0
    if path.exists():
        for line in each_line_of(path):
            try:
                row = msgspec.json.decode(line.decode("utf-8", errors="replace"))
                inside = window.window_start_ns <= row["t_ns"] < window.t_stop_ns
            except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError):
                missed += 1
                continue
            if inside and (reading := host_reading(row)) is not None:
                readings.append(reading)  # also where the engine did not answer
            if row.get("ok") and EXTERNAL_QUERIES in _numbers(row["values"]):
                queries.append((row["t_ns"], float(row["values"][EXTERNAL_QUERIES])))
            if inside and row.get("ok"):
                rows.append(_numbers(row["values"]))
            elif inside:
                missed += 1
    return Samples(
        _median(rows, "num_requests_waiting"),
        _median(rows, "num_requests_running"),
        len(rows) + missed,
        missed,
        host_state(readings),
        sum("num_requests_waiting" in row for row in rows),
        tuple(queries),
    )


def _numbers(values: Foreign) -> dict[str, float]:
    """
    Raises:
        ValueError, AttributeError: they are none, or one is beyond all that a server counts.
    """
    for name, value in values.items():
        if not isinstance(value, int | float) or not abs(value) < MOST_VALUE:
            raise ValueError(f"{shown(name)} of a sample is {shown(value)}, which is no number of a server")
    return values


def _median(rows: list[dict[str, float]], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return float(np.median(values)) if values else None
