"""Taxes of all campaigns of a sweep in one table per latency: a connector in a row, the entries of one axis in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.config.sweep import Sweep, SweepCell
from connector_tax.base.documents.aggregate import Interval, LatencyMetric
from connector_tax.base.documents.rates import Reference
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.compare.changes import LATENCIES, Side
from connector_tax.read.compare.comparison import number_of, read_side
from connector_tax.read.figures.labels import label
from connector_tax.read.figures.questions import reference_flags, reference_rate, source_note
from connector_tax.read.figures.words import METRICS, clean, listing, rate, with_interval
from connector_tax.sweep.own import fault_of

MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """One place of a table.

    Attributes:
        text: a tax with its interval, or why there is none.
        under: of how many launches, and what qualifies it.
        known: whether it is a number.
        campaign: whose number it is.
        flags: of the cells behind it.
    """

    text: str
    under: str = ""
    known: bool = False
    campaign: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """
    Attributes:
        combination: of the other axes; empty where there is none.
        name: the connector's label, or what the row holds.
    """

    combination: str
    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """
    Attributes:
        of: what the names of its rows are; empty where they say so themselves.
    """

    title: str
    of: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """
    Attributes:
        columns: entries of ``across``.
        notes: what qualifies all of it.
    """

    sweep: str
    across: str
    columns: tuple[str, ...]
    other_axes: bool
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """Aggregates of campaigns that can be read and are the sweep's, of the others why not, and what of the first is not in them."""

    sides: Mapping[str, Side]
    why_not: Mapping[str, str]
    lacks: Mapping[str, str]


def matrix_of(sweep: Sweep, results: Path, across: str | None, reference: Reference) -> Matrix:
    """
    Args:
        across: the axis in the columns; None takes the first.

    Raises:
        ConfigError: there is no such axis.
    """
    axis = across or next(iter(sweep.axes))
    if axis not in sweep.axes:
        raise ConfigError(f"--across {axis}: {sweep.path} has the axes {', '.join(sweep.axes)}.")
    rows, read = _rows(sweep, axis), _read(sweep, results)
    tables = [
        *(
            Table(
                f"{METRICS[metric]} at {reference}: tax on plain vLLM",
                "connector",
                tuple(
                    Row(
                        combination,
                        label,
                        tuple(_entry(read, cell, config, metric, reference) for cell in cells),
                    )
                    for combination, cells in rows
                    for config, label in _connectors(cells, metric).items()
                ),
            )
            for metric in LATENCIES
        ),
        Table(
            f"{reference}, req/s",
            "",
            tuple(
                Row(combination, "rate", tuple(_rate(read, cell, reference) for cell in cells))
                for combination, cells in rows
            ),
        ),
    ]
    return Matrix(
        sweep.name,
        axis,
        sweep.axes[axis],
        len(sweep.axes) > 1,
        tuple(tables),
        (*_notes(read, rows, reference), *_flags(tables), *_versions(sweep, read, axis), *_lacks(read)),
    )


def _rows(sweep: Sweep, across: str) -> list[tuple[str, list[SweepCell | None]]]:
    """Combinations of all other axes in words, and their campaign for each entry of ``across``; None where it is excluded."""
    found: dict[str, dict[str, SweepCell]] = {}
    for cell in sweep.cells:
        words = ", ".join(f"{axis} {name}" for axis, name in cell.entries.items() if axis != across)
        found.setdefault(words, {})[cell.entries[across]] = cell
    return [(words, [own.get(name) for name in sweep.axes[across]]) for words, own in found.items()]


def _read(sweep: Sweep, results: Path) -> _Read:
    sides: dict[str, Side] = {}
    why_not: dict[str, str] = {}
    lacks: dict[str, str] = {}
    for cell in sweep.cells:
        folder = results / cell.name
        try:
            if not (folder / "aggregate.json").exists():
                why_not[cell.name] = "not analysed yet" if folder.is_dir() else "not measured yet"
                continue
            side = read_side(cell.name, folder)
            fault = fault_of(cell.config, folder, side.aggregate)
        except (ArtifactError, OSError) as error:
            why_not[cell.name] = f"cannot be read: {error}"
            continue
        if fault is None or fault.stands:
            sides[cell.name] = side
            lacks |= {} if fault is None else {cell.name: fault.why}
        else:
            why_not[cell.name] = fault.why
    return _Read(sides, why_not, lacks)


def _connectors(cells: Sequence[SweepCell | None], metric: LatencyMetric) -> dict[str, str]:
    """Id -> label, of all campaigns of a row, measured yet or not."""
    found: dict[str, str] = {}
    for cell in cells:
        for connector in () if cell is None else cell.config.connectors:
            no_tax = metric == "ttft_p90" and connector.ttft_is_no_tax
            if connector.id not in ("plain", PLAIN_AGAIN) and not no_tax:
                found.setdefault(connector.id, clean(connector.label))
    return found


def _entry(
    read: _Read, cell: SweepCell | None, config: str, metric: LatencyMetric, reference: Reference
) -> Entry:
    if cell is None:
        return Entry("excluded")
    if config not in cell.config.connector_ids:
        return Entry("not in this campaign")
    if cell.name in read.why_not:
        return Entry(printable(read.why_not[cell.name], 300))
    side = read.sides[cell.name]
    at = reference_rate(side.aggregate, reference)
    if at is None:
        return Entry(f"no {reference}")
    found = number_of(side, config, metric, reference, at)
    if found.value is None:
        return Entry(clean(found.reason))
    value = Interval(found.value.point, found.value.low, found.value.high)
    under = [found.kind, *(["holds queueing"] if found.overloaded else []), *_mark(read, cell)]
    return Entry(with_interval(value), ", ".join(under), known=True, campaign=cell.name, flags=found.flags)


def _rate(read: _Read, cell: SweepCell | None, reference: Reference) -> Entry:
    if cell is None:
        return Entry("excluded")
    at = _rate_of(read, cell, reference)
    if at is None:
        return Entry("–")
    flags = reference_flags(read.sides[cell.name].aggregate)
    return Entry(rate(at), ", ".join([*map(clean, flags), *_mark(read, cell)]), known=True)


def _mark(read: _Read, cell: SweepCell) -> list[str]:
    return ["older than its campaign"] if cell.name in read.lacks else []


def _rate_of(read: _Read, cell: SweepCell | None, reference: Reference) -> float | None:
    side = None if cell is None else read.sides.get(cell.name)
    return None if side is None else reference_rate(side.aggregate, reference)


def _notes(
    read: _Read, rows: Sequence[tuple[str, list[SweepCell | None]]], reference: Reference
) -> list[str]:
    aggregates = [side.aggregate for side in read.sides.values()]
    notes = list(dict.fromkeys(note for a in aggregates if (note := source_note(a))))
    confidences = sorted({a.provenance.confidence for a in aggregates})
    if confidences:
        of = " and ".join(f"{c * 100:g} %" for c in confidences)
        notes.append(f"In brackets: {of} intervals.")
    for combination, cells in rows:
        rates = {r for cell in cells if (r := _rate_of(read, cell, reference)) is not None}
        if len(rates) > 1:
            where = f" of {combination}" if combination else ""
            notes.append(
                f"{reference} is not the same in all campaigns{where}: taxes at different rates answer different questions."
            )
    flags = dict.fromkeys(flag for a in aggregates for flag in reference_flags(a))
    notes += [f"{clean(flag)}: {label('rate_flag', flag)}" for flag in flags]
    return notes


def _versions(sweep: Sweep, read: _Read, axis: str) -> list[str]:
    """What each column was measured with: two entries that are meant to be two releases may be one."""
    found = []
    for name in sweep.axes[axis]:
        versions: dict[str, None] = {}
        for cell in sweep.cells:
            if cell.entries[axis] == name and cell.name in read.sides:
                provenance = read.sides[cell.name].aggregate.provenance
                version = provenance.versions.get("vllm")
                embedded = version is None and provenance.engine_kind == "emulator"
                versions[
                    "the embedded engine"
                    if embedded
                    else f"vLLM {clean(str(version or 'of unknown version'))}"
                ] = None
        if versions:
            found.append(f"{clean(axis)} {clean(name)}: {listing(list(versions), MOST_NAMED)}")
    return [f"Measured with: {'; '.join(found)}."] if found else []


def _lacks(read: _Read) -> list[str]:
    return [
        f"{clean(name)}: {clean(why)}. Its numbers are older than its campaign."
        for name, why in read.lacks.items()
    ]


def _flags(tables: Sequence[Table]) -> list[str]:
    """Of the cells behind the taxes: which campaigns have which."""
    entries = [e for table in tables for row in table.rows for e in row.entries if e.campaign]
    every = {e.campaign for e in entries}
    by_flag: dict[str, dict[str, None]] = {}
    for e in entries:
        for flag in e.flags:
            by_flag.setdefault(flag, {})[e.campaign] = None
    return [
        f"Cells behind taxes are flagged {clean(flag)} in "
        + ("every campaign" if len(found) == len(every) else listing(list(found), MOST_NAMED))
        + "."
        for flag, found in by_flag.items()
    ]


def markdown(matrix: Matrix) -> str:
    """All tables, with what qualifies them below."""
    parts = []
    for table in matrix.tables:
        head = (*(("other axes",) if matrix.other_axes else ()), table.of)
        lines = [
            f"### {table.title}",
            "",
            _line([*head, *(f"{matrix.across} {name}" for name in matrix.columns)]),
            _line(["---"] * (len(head) + len(matrix.columns))),
            *(
                _line(
                    [
                        *((row.combination,) if matrix.other_axes else ()),
                        row.name,
                        *(", ".join(filter(None, (e.text, e.under))) for e in row.entries),
                    ]
                )
                for row in table.rows
            ),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *(["\n".join(f"* {note}" for note in matrix.notes)] if matrix.notes else [])])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in cells)} |"
