"""Raw files of a launch (steps of each engine process, samples of /metrics) to one cell's share, by time."""

import re
from pathlib import Path

from connector_tax.files import append_lines

_T_NS = re.compile(r'"t_ns":(\d+)')


def cut(raw: list[Path], start_ns: int, end_ns: int, out: Path) -> int:
    """Write the headers of every process and the rows with ``start_ns <= t_ns < end_ns`` to ``out``.

    Rows of all processes are merged in time order. Lines are copied as they stand; a torn last line
    is left out.

    Returns:
        How many rows were written.
    """
    headers: list[str] = []
    rows: list[tuple[int, str]] = []
    for path in raw:
        if not path.exists():
            continue
        with open(path, encoding="utf-8", errors="replace") as handle:
            for line in handle:
                if not line.endswith("}\n"):
                    continue
                if '"kind":"header"' in line:
                    headers.append(line.rstrip("\n"))
                    continue
                found = _T_NS.search(line)
                if found and start_ns <= int(found.group(1)) < end_ns:
                    rows.append((int(found.group(1)), line.rstrip("\n")))
    rows.sort(key=lambda row: row[0])
    append_lines(out, [*headers, *(line for _, line in rows)])
    return len(rows)
