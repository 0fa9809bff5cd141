"""``summary.json`` of ``connector-tax load`` itself, in the form in which other tools' results are compared."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from connector_tax.base.documents.load import LATENCIES, LoadCell, Summary
from connector_tax.base.errors import ConfigError
from connector_tax.load.foreign_result import PERCENTILES, Document, ForeignResult
from connector_tax.load.table import open_reasons, unavailable_lines

NOTE = (
    "connector-tax counts TTFT and E2E from when a request was due, and a failed request as infinitely slow. Its ITL is the time between two "
    "reads that brought tokens of one answer: tokens that come at once have no gap."
)


def read_own(path: Path, documents: Sequence[Document]) -> tuple[ForeignResult, ...]:
    """One of each cell, with the intervals that it has."""
    summaries = [document.read_as(Summary) for document in documents]
    results = tuple(_result(path, summary, cell) for summary in summaries for cell in summary.cells)
    if not results:
        raise ConfigError(f"{path}: holds no cell; the run ended before its first one was over.")
    return results


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
        requests=None,
        levels=cell.latencies,
        notes=(
            NOTE,
            *(f"{cell.cell_id}, no interval or an open one: {why}" for why in open_reasons(cell)),
            *_reservations(path, cell),
        ),
    )


def _reservations(path: Path, cell: LoadCell) -> Iterator[str]:
    """What the run itself said of the cell; with the file, since several may have a cell of that name."""
    for why in (*cell.not_believed, *cell.remarks, *unavailable_lines(cell)):
        yield f"{path}, {cell.cell_id}: {why}"
    if cell.flags:
        yield f"{path}, {cell.cell_id}: flagged {', '.join(cell.flags)}"


def _window(path: Path, cell: LoadCell) -> int:
    """Requests of the window.

    Raises:
        ConfigError: the cell does not say, or its counts or latencies are not all there.
    """
    where = f"{path}: cell {cell.cell_id[:40]!r}"
    if "window" not in cell.requests:
        raise ConfigError(f"{where} does not say how many requests its window has; is the file whole?")
    window, ok = cell.requests["window"], cell.requests.get("ok", 0)
    if not 0 <= ok <= window:
        raise ConfigError(f"{where} says that {ok} of {window} requests ended well; is the file whole?")
    if missing := [name for name in LATENCIES if name not in cell.latencies]:
        raise ConfigError(f"{where} has no {', '.join(missing)}; is the file whole?")
    return window
