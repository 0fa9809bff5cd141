"""What the clock of a virtual GPU says of its steps: a cell's share of it, and whether it kept the time.

The plugin inside vLLM appends a header and lists of rows ``[t_launch_ns, t_due_ns, t_asked_ns, t_done_ns]``, CLOCK_MONOTONIC: when a
step was handed to the device, when the device was to be done with it, when the engine began to wait for its result, and when the
thread that waited went on. A cell keeps one row a line. Where something stands in for a part of the device, a line says what.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.documents.cell import ClockHealth, Lateness, Slack
from connector_tax.base.files import append_lines

COLUMNS = 4
NO_RECORD = "the virtual GPU's clock left no record of this window, so nothing says what the device was"


def cut_clock(log: Path, start_ns: int, end_ns: int, out: Path) -> int:
    """Write the rows with ``start_ns <= t_launch_ns < end_ns`` to ``out``, one a line; a torn last line is left out.

    Returns:
        How many rows were written; nothing is written where the log is not there or holds none.
    """
    rows = [row for row in _raw_rows(log) if start_ns <= row[0] < end_ns]
    if rows:
        append_lines(out, (json.dumps(row, separators=(",", ":")) for row in sorted(rows)))
    return len(rows)


def _raw_rows(log: Path) -> list[list[int]]:
    if not log.is_file():
        return []
    with open(log, encoding="utf-8", errors="replace") as lines:
        return [
            row for line in lines if line.startswith("[") and line.endswith("]\n") for row in json.loads(line)
        ]


def stand_ins(log: Path) -> list[str]:
    """What the plugin put in place of parts of the device that the connector asks for, in its words."""
    if not log.is_file():
        return []
    with open(log, encoding="utf-8", errors="replace") as lines:
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
    return [words for line in found if line.get("kind") == "stand_ins" for words in line["stand_ins"]]


def clock_health(share: Path, start_ns: int, end_ns: int) -> ClockHealth | None:
    """Of the steps launched in ``[start_ns, end_ns)``; None where ``share``, a cell's rows, holds none of them."""
    if not share.is_file():
        return None
    rows = np.array(
        [json.loads(line) for line in share.read_text(encoding="utf-8").splitlines()], dtype=np.int64
    )
    if rows.ndim != 2 or rows.shape[1] != COLUMNS:
        return None
    device_ns = _device_ns(rows)
    inside = (rows[:, 0] >= start_ns) & (rows[:, 0] < end_ns)
    if not inside.any():
        return None
    due, asked, done = rows[inside].T[1:]
    late_us, slack_us = (done - np.maximum(due, asked)) / 1e3, (due - asked) / 1e3
    busy_ns = float(device_ns[inside].sum())
    return ClockHealth(
        steps=int(inside.sum()),
        lateness_us=Lateness(
            p50=_percentile(late_us, 50), p99=_percentile(late_us, 99), max=float(late_us.max())
        ),
        late_share=float(late_us.sum() * 1e3 / busy_ns) if busy_ns > 0 else 0.0,
        device_busy_share=busy_ns / (end_ns - start_ns),
        slack_us=Slack(p10=_percentile(slack_us, 10), p50=_percentile(slack_us, 50)),
    )


def _device_ns(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How long the device was at each step: it begins when it is launched and the step before it is done."""
    launch, due = rows[:, 0], rows[:, 1]
    device_ns: NDArray[np.int64] = due - np.maximum(launch, np.concatenate([launch[:1], due[:-1]]))
    return device_ns


def _percentile(values: NDArray[np.float64], q: int) -> float:
    return float(np.percentile(values, q))
