"""Raw files of a launch (steps of each engine process, samples of /metrics) to one cell's share, by time."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.files import append_lines
from connector_tax.base.steptime.raw import Header, rows_of

# The engine's own count of its iterations and the recorded steps may differ by this much: a cell's edges.
TOLERANCE = 0.01

_T_NS = re.compile(r'"t_ns":(\d+)')


def cut(raw: list[Path], start_ns: int, end_ns: int, out: Path) -> int:
    """Write the headers of every process and the rows with ``start_ns <= t_ns < end_ns`` to ``out``.

    Rows of all processes are merged in time order. Lines are copied as they stand, but for the lists of rows that the
    engine writes; a torn last line is left out.

    Returns:
        How many rows were written.
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
        with_tokens: with any token; one that computes a part of a prompt has no output.
        of_workers: rows of the worker, which only a connector has.
    """

    decoding: int
    with_tokens: int
    of_workers: int = 0

    def agrees_with(self, iterations: float) -> bool:
        """Whether vLLM's count of iterations, which are steps with an output, can be these steps."""
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
