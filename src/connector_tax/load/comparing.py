"""Results of several tools side by side, each number with its 95 % interval where single requests are known."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from connector_tax.base.documents.load import LATENCIES, Level
from connector_tax.base.opening import printable
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import block_length, estimate_percentiles
from connector_tax.load.foreign import read_results
from connector_tax.load.foreign_result import PERCENTILES, ForeignResult
from connector_tax.load.measured import CONFIDENCE, DRAWS
from connector_tax.load.table import NAMES, UNKNOWN, columns, level_text

# Of another tool's words in the head of a column.
MOST_CHARACTERS = 60


def compare_files(paths: Sequence[Path]) -> str:
    """A table with one column for each result, and what makes their numbers differ.

    Raises:
        ConfigError: a file that is no result of a known tool.
    """
    results = [result for path in paths for result in read_results(path)]
    header = [
        "",
        *(printable(f"{r.tool} {r.version}" if r.version else r.tool, MOST_CHARACTERS) for r in results),
    ]
    rows = [
        ["load", *(printable(r.load or UNKNOWN, MOST_CHARACTERS) for r in results)],
        ["completed", *(str(r.completed) for r in results)],
        ["failed", *(UNKNOWN if r.failed is None else str(r.failed) for r in results)],
        ["requests/s", *(_number(r.requests_per_s) for r in results)],
        ["output tokens/s", *(_number(r.output_tokens_per_s) for r in results)],
    ]
    for name in LATENCIES:
        for q in PERCENTILES:
            levels = [_level(r, name, q) for r in results]
            if any(level.point is not None for level in levels):
                rows.append([f"{NAMES[name]} {q}, ms", *(level_text(level) for level in levels)])
    notes = list(dict.fromkeys(printable(note) for r in results for note in r.notes))
    return "\n".join([*columns([header, *rows]), "", *notes])


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _level(result: ForeignResult, name: str, q: str) -> Level:
    """The tool's own number and interval; where it has no intervals, ours, of its single requests."""
    if result.levels is not None:
        return result.levels.get(name, {}).get(q, Level(None))
    point = result.latencies_ms.get(name, {}).get(q)
    values = () if result.requests is None or name == "itl_ms" else getattr(result.requests, name)
    if point is None or len(values) < 1:
        return Level(point)
    column = np.asarray(values, dtype=np.float64)
    percent = float(q.removeprefix("p"))
    rng = stream(0, "compare", result.tool, name)
    estimate = estimate_percentiles(
        column, (percent,), DRAWS, rng, length=block_length([column]), confidence=CONFIDENCE
    )[percent]
    low, high = estimate.interval(CONFIDENCE)
    return Level(point, None if low is None else max(low, 0.0), high, column.size)
