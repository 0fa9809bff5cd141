"""Converts the raw lines that step timing writes inside the engine to the rows of a cell.

Inside the engine a row may cost no more than its integers: formatting text, even in another thread, would
hold the GIL while the scheduler needs it. So a raw line is a header or a list of rows as recorded, and rows
are formatted here, after the cell.
"""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from connector_tax.base.records.bounds import Foreign

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
