"""``summary.json`` of ``connector-tax load`` itself, in the form in which other tools' results are compared."""

import json
from collections.abc import Sequence
from pathlib import Path

from connector_tax.base.documents.load import LoadCell, Summary
from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import lines_of, read_whole
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.load.foreign_result import PERCENTILES, Document, ForeignResult, SingleRequests

NOTE = (
    "connector-tax counts TTFT and E2E from when a request was due, and a failed request as infinitely slow."
)


def read_own(path: Path, documents: Sequence[Document]) -> tuple[ForeignResult, ...]:
    """One of each cell; with latencies of single requests where their files lie beside it."""
    summaries = [document.read_as(Summary) for document in documents]
    return tuple(_result(path, summary, cell) for summary in summaries for cell in summary.cells)


def _result(path: Path, summary: Summary, cell: LoadCell) -> ForeignResult:
    ok = cell.requests.get("ok", 0)
    return ForeignResult(
        tool="connector-tax",
        version=summary.version,
        load=cell.cell_id,
        completed=ok,
        failed=_window(path, cell) - ok,
        duration_s=cell.throughput.over_s,
        requests_per_s=cell.throughput.requests_per_s,
        output_tokens_per_s=cell.throughput.output_tokens_per_s,
        latencies_ms={
            name: {q: levels[q].point if q in levels else None for q in PERCENTILES}
            for name, levels in cell.latencies.items()
        },
        requests=_requests(path.parent / f"requests_{cell.cell_id}.jsonl", cell),
        notes=(NOTE,),
    )


def _window(path: Path, cell: LoadCell) -> int:
    """Requests of the window.

    Raises:
        ConfigError: the cell does not say.
    """
    if "window" not in cell.requests:
        raise ConfigError(
            f"{path}: cell {cell.cell_id[:40]!r} does not say how many requests its window has; is the file whole?"
        )
    return cell.requests["window"]


def _requests(path: Path, cell: LoadCell) -> SingleRequests | None:
    """Of the completed ones alone, as in other tools' results; None where a request failed, since ours count it."""
    ok = cell.requests.get("ok", 0)
    # What a batch or a ramp has no interval for has none here either.
    levels = [level for quantity in cell.latencies.values() for level in quantity.values()]
    if any(level.point is not None and level.low is level.high is None for level in levels):
        return None
    if ok != cell.requests["window"]:
        return None
    try:
        if not path.exists():
            return None
        records = [RequestRecord.from_json(json.loads(line)) for line in lines_of(read_whole(path, 1 << 32))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{path}: not what connector-tax load writes: {error}.") from error
    counted = in_window(records, cell.window)
    if len(counted) != ok:
        return None  # some of them are not in the file, and those that are would pass for all
    found = latencies_ms(counted)
    return SingleRequests(tuple(found["ttft_ms"]), tuple(found["tpot_ms"]), tuple(found["e2e_ms"]))
