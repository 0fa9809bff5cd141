"""``metrics_*.jsonl`` to what the analysis asks of it."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.connector_off import EXTERNAL_QUERIES
from connector_tax.base.documents.aggregate import Host
from connector_tax.base.opening import each_line_of, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest.host import host_reading, host_state, median

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
    host: Host | None = None
    n_waiting: int = 0
    external_queries: Counted = ()


def read_samples(path: Path, window: CellWindow) -> Samples:
    """A line that does not parse counts as missed; so does a sample that failed."""
    rows, readings, queries, missed = [], [], [], 0
    for line in each_line_of(path) if path.exists() else ():
        try:
            row = msgspec.json.decode(line.decode("utf-8", errors="replace"))
            inside = window.window_start_ns <= row["t_ns"] < window.t_stop_ns
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError):
            missed += 1
            continue
        if inside and (reading := host_reading(row)) is not None:
            readings.append(reading)  # also where the engine did not answer
        values = _numbers(row["values"]) if row.get("ok") else None
        if values is not None and EXTERNAL_QUERIES in values:
            queries.append((row["t_ns"], float(values[EXTERNAL_QUERIES])))
        if inside and values is not None:
            rows.append(values)
        missed += inside and values is None
    waiting, running = (
        [row[name] for row in rows if name in row]
        for name in ("num_requests_waiting", "num_requests_running")
    )
    return Samples(
        waiting_p50=median(waiting),
        running_p50=median(running),
        n=len(rows) + missed,
        n_missed=missed,
        host=host_state(readings),
        n_waiting=len(waiting),
        external_queries=tuple(queries),
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
