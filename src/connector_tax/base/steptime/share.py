"""Raw files of a launch (steps per engine process, samples of /metrics) -> one cell's share, by time."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.documents.cell import ClockHealth, Lateness, Slack
from connector_tax.base.files import append_lines
from connector_tax.base.records.bounds import Foreign

# Converts the raw lines that step timing writes inside the engine to the rows of a cell.
#
# Inside the engine a row may cost no more than its integers: formatting text, even in another thread, would
# hold the GIL while the scheduler needs it. So a raw line is a header or a list of rows as recorded, and
# rows are formatted here, after the cell.

# A process's header; see ``patches/_step_profile.py``, which imports nothing of ours.
Header = Foreign
# Hooks that a row sums over a connector and its children, by the published experiment's names.
_BUILD = ("build_connector_meta",)
_LOAD = ("start_load_kv",)
_FINISHED = ("get_finished", "get_transfer_results")

# A row in a cell's file.
WORKER = (
    '{"kind":"worker_step","process":"worker","pid":%d,"step_id":%s,"t_ns":%d,"span_us":%.3f,'
    '"start_load_kv_us":%.3f,"get_finished_us":%.3f,"hooks":%s%s}'
)
SCHEDULER = (
    '{"kind":"step","process":"scheduler","pid":%d,"step_id":%d,"t_ns":%d,"schedule_us":%.3f,'
    '"t_update_ns":%d,"update_us":%.3f,"step_duration_us":%.3f,"step_interval_us":%s,"round_trip_us":%.3f,'
    '"build_meta_us":%.3f,"get_finished_us":null,"start_load_kv_us":null,'
    '"num_running":%d,"num_waiting":%d,"prefill_tokens":%d,"decode_tokens":%d,"hooks":%s%s}'
)


def headers_of(path: Path) -> list[Header]:
    """Return the headers of a raw file or of a cell's share."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        found = [json.loads(line) for line in lines if '"header"' in line and line.endswith("}\n")]
    return [value for value in found if value.get("kind") == "header"]


def rows_of(line: str, header: Header) -> Iterator[tuple[int, str]]:
    """Yield (t_ns, row in a cell's form) for each row of one list.

    Args:
        header: the last one before it in the file; names the hooks.
    """
    worker = header["process"] == "worker"
    for row in json.loads(line):
        yield (row[1], _worker_row(row, header)) if worker else (row[0][1], _scheduler_row(row, header))


def _worker_row(row: list[Any], header: Header) -> str:
    step_id, t_ns, span_ns, hooks, cpu = row
    return WORKER % (
        *(header["pid"], "null" if step_id is None else step_id, t_ns, span_ns / 1e3),
        *(_sum_us(hooks[1:], header, _LOAD), _sum_us(hooks[1:], header, _FINISHED), _list(hooks[1:])),
        _cpu(cpu),
    )


def _scheduler_row(row: list[Any], header: Header) -> str:
    (
        (step_id, t_ns, schedule_ns, interval_ns, earlier, *counts),
        t_update_ns,
        update_ns,
        duration_ns,
        hooks,
        cpu,
    ) = row
    # A connector may have been created in between; its hooks then count as 0 in the earlier list.
    total = [a + b for a, b in zip_longest(hooks[1:], earlier[1:], fillvalue=0)]
    interval = "null" if interval_ns is None else f"{interval_ns / 1e3:.3f}"
    trip_us = (duration_ns - schedule_ns - update_ns) / 1e3
    times = (schedule_ns / 1e3, t_update_ns, update_ns / 1e3, duration_ns / 1e3, interval, trip_us)
    build_us = _sum_us(total, header, _BUILD)
    return SCHEDULER % (header["pid"], step_id, t_ns, *times, build_us, *counts, _list(total), _cpu(cpu))


def _sum_us(hooks: list[int], header: Header, wanted: tuple[str, ...]) -> float:
    """Sum hooks with these names; a row older than its header may have fewer."""
    names = header["hooks"][: len(hooks) // 2]
    return sum(hooks[2 * i] for i, name in enumerate(names) if name.rsplit("/", 1)[-1] in wanted) / 1e3


def _cpu(values: list[int] | None) -> str:
    """Return the key for CPU times, which only some steps measure; rows of others lack it."""
    return "" if values is None else f',"hooks_cpu_ns":{_list(values)}'


def _list(values: list[int]) -> str:
    return json.dumps(values, separators=(",", ":"))


# A virtual GPU's clock: a cell's share of its log, and whether it kept the time.

COLUMNS = 4
NO_RECORD = "the virtual GPU's clock left no record of this window, so nothing says what the device was"


def cut_clock(log: Path, start_ns: int, end_ns: int, out: Path) -> int:
    """Write the rows with ``start_ns <= t_launch_ns < end_ns`` to ``out``, except a torn last line.

    Returns:
        The number of rows; without a log or rows nothing is written.
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
    """Return the plugin's descriptions of its replacements for device parts that the connector requires."""
    if not log.is_file():
        return []
    with open(log, encoding="utf-8", errors="replace") as lines:
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
    return [words for line in found if line.get("kind") == "stand_ins" for words in line["stand_ins"]]


def clock_health(share: Path, start_ns: int, end_ns: int) -> ClockHealth | None:
    """Return the clock's health over steps launched in ``[start_ns, end_ns)``; None without such steps."""
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
    """Return each step's device time, which starts at its launch or at the previous step's end."""
    launch, due = rows[:, 0], rows[:, 1]
    device_ns: NDArray[np.int64] = due - np.maximum(launch, np.concatenate([launch[:1], due[:-1]]))
    return device_ns


def _percentile(values: NDArray[np.float64], q: int) -> float:
    return float(np.percentile(values, q))


# The recorder's switch: while a file lies beside the step log, an engine records and wraps nothing.


@contextmanager
def recording(step_log: Path | None, *, wanted: bool, settle_s: float) -> Iterator[Path | None]:
    """Record steps, or not, during the body; yield the log to cut from, None if nothing is recorded.

    Args:
        step_log: AGENTIC_STEP_LOG_PATH of the launch; None if step timing is off.
        settle_s: longest time until the recorder sees its switch.
    """
    if wanted or step_log is None:
        yield step_log
        return
    switch = step_log.with_name(step_log.name + ".off")
    switch.touch()
    time.sleep(settle_s)
    try:
        yield None
    finally:
        switch.unlink()
        time.sleep(settle_s)


# Tolerance between the engine's count of iterations and recorded steps, for the edges of a cell.
TOLERANCE = 0.01

_T_NS = re.compile(r'"t_ns":(\d+)')


def cut(raw: list[Path], start_ns: int, end_ns: int, out: Path) -> int:
    """Write the headers of all processes and the rows with ``start_ns <= t_ns < end_ns`` to ``out``.

    Rows of all processes are merged in time order. Lines are copied unchanged, except the engine's lists of
    rows; a torn last line is dropped.

    Returns:
        The number of rows.
    """
    headers: list[str] = []
    rows: list[tuple[int, str]] = []
    for path in raw:
        if not path.exists():
            continue
        with open(path, encoding="utf-8", errors="replace") as handle:
            header: Header = {}
            for line in handle:
                if line.startswith("[") and line.endswith("]\n"):
                    rows += [row for row in rows_of(line, header) if start_ns <= row[0] < end_ns]
                    continue
                if not line.endswith("}\n"):
                    continue
                if '"kind":"header"' in line:
                    header = json.loads(line)
                    headers.append(line.rstrip("\n"))
                    continue
                found = _T_NS.search(line)
                if found and start_ns <= int(found.group(1)) < end_ns:
                    rows.append((int(found.group(1)), line.rstrip("\n")))
    rows.sort(key=lambda row: row[0])
    append_lines(out, [*headers, *(line for _, line in rows)])
    return len(rows)


@dataclass(frozen=True, slots=True)
class StepCount:
    """Recorded steps of one cell.

    Attributes:
        decoding: with at least one decode token, so certainly with an output.
        with_tokens: with any token; a step with only a part of a prompt has no output.
        of_workers: rows of the worker, which only a connector has.
    """

    decoding: int
    with_tokens: int
    of_workers: int = 0

    def agrees_with(self, iterations: float) -> bool:
        """Return whether vLLM's count of iterations, the steps with an output, agrees with these steps."""
        slack = TOLERANCE * max(iterations, 100.0)
        return self.decoding - slack <= iterations <= self.with_tokens + slack


def count_steps(path: Path) -> StepCount:
    """Count the rows of a cell's share."""
    decoding = with_tokens = of_workers = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            of_workers += '"kind":"worker_step"' in line
            if '"kind":"step"' in line:
                row = json.loads(line)
                decoding += row["decode_tokens"] > 0
                with_tokens += row["decode_tokens"] + row["prefill_tokens"] > 0
    return StepCount(decoding, with_tokens, of_workers)
