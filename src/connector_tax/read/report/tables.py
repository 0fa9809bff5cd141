"""Formats the page's numbers and its folded tables by section; a table without rows is left out.

A number has value, interval and unit in digits, and carries the value of ``aggregate.json``, so that the page
can be checked against it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product, takewhile
from typing import Literal

from connector_tax.base.documents.aggregate import (
    PLAIN,
    Aggregate,
    Bounds,
    Decomposition,
    Ends,
    Interval,
    ObserverEffect,
)
from connector_tax.base.files import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.digits import digits_apart, usual_decimals
from connector_tax.read.figures.words import (
    label,
    labels,
    launches_text,
    phase_text,
    problem_text,
    reason_text,
    reference_rate,
)
from connector_tax.read.ingest.connector_on import UNPROVED
from connector_tax.read.stats.connectors import METRICS

Unit = Literal["tax", "points", "share", "change_us", "us", "ms", "plain", "per_s"]
# Unit -> (factor, suffix, positive numbers have a plus sign).
UNITS: dict[Unit, tuple[int, str, bool]] = {
    "tax": (100, "%", True),
    "points": (100, "points", True),
    "share": (100, "%", False),
    "change_us": (1, "µs", True),
    "us": (1, "µs", False),
    "ms": (1, "ms", False),
    "plain": (1, "", False),
    "per_s": (1, "/s", False),
}
# The least span of an axis, and the largest number on it.
SMALLEST, LARGEST = 1e-12, 1e100
MINUS, OPEN = "\N{MINUS SIGN}", "∞"


@dataclass(frozen=True, slots=True)
class Number:
    """A value with its interval.

    Attributes:
        clear: it counts as a tax; such marks are drawn filled.
        injected: the tax of the embedded engine's model; None elsewhere.
    """

    point: float
    unit: Unit
    low: float | None = None
    high: float | None = None
    clear: bool = False
    injected: float | None = None
    has_interval: bool = True

    @property
    def suffix(self) -> str:
        return UNITS[self.unit][1]

    @property
    def ends(self) -> tuple[float, float]:
        """Return the interval; an open end is infinite."""
        low = -math.inf if self.low is None else self.low
        return low, math.inf if self.high is None else self.high

    @property
    def digits(self) -> tuple[str, str, str]:
        """Return point, lower and upper end as text without unit, with enough digits to differ."""
        factor, _, signed = UNITS[self.unit]
        known = [v for v in (self.point, self.low, self.high) if v is not None]
        clear = not self.has_interval or Interval(self.point, self.low, self.high).excludes_zero
        texts = iter(digits_apart([factor * v for v in known], partial(_decimals, self.unit), no_zero=clear))
        point = _signed(next(texts), signed)
        low = MINUS + OPEN if self.low is None else _signed(next(texts), signed)
        return point, low, OPEN if self.high is None else _signed(next(texts), signed)


def number(value: Ends | Bounds | None, unit: Unit) -> Number | None:
    """Convert a quantity of the document for the page; None if it has no number."""
    if value is None or value.point is None:
        return None
    return Number(value.point, unit, value.low, value.high)


def bare(value: float | None, unit: Unit = "plain") -> Number | None:
    """Return a number without an interval."""
    return None if value is None else Number(value, unit, has_interval=False)


def _signed(text: str, signed: bool) -> str:
    if text.startswith("-"):
        return MINUS + text[1:]
    return text if text == "0" or not signed else f"+{text}"


def _decimals(unit: Unit, size: float) -> int:
    if unit in ("us", "change_us"):
        return 0 if size >= 10 else 1
    if unit in ("ms", "plain", "per_s"):
        return 2 if size < 1 else 1 if size < 100 else 0
    return usual_decimals(size)


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis from ``low`` to ``high``; positions are percent of its box, so drawings fit any width."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> str:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{100 * share:.2f}%"

    def width(self, first: float, second: float) -> str:
        return f"{max(0.4, float(self.at(second)[:-1]) - float(self.at(first)[:-1])):.2f}%"

    def is_beyond(self, value: float) -> bool:
        return value > self.high or value < self.low


def axis_of(values: Iterable[float], ticks: int = 3, room: float = 0.05) -> Axis:
    """Return an axis that holds zero and every finite value, with round ticks."""
    # Edited files may hold any number; those too large for an axis lie beyond its end.
    finite = [v for v in values if abs(v) < LARGEST]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    span = high - low if high - low > SMALLEST else 1.0
    low, high = low - room * span, high + room * span
    size = 10.0 ** math.floor(math.log10((high - low) / ticks))
    step = next(k * size for k in (1, 2, 2.5, 5, 10) if (high - low) / (k * size) <= ticks + 1)
    first, last = math.ceil(low / step), math.floor(high / step)
    return Axis(low, high, tuple(k * step for k in range(first, last + 1)))


def tick(value: float, unit: Unit) -> str:
    """Format the label of an axis tick."""
    factor, suffix, signed = UNITS[unit]
    if not value:
        return "0"
    text = f"{factor * value:,.10g}".replace("-", MINUS)
    return ("+" if signed and value > 0 else "") + text + (" %" if suffix == "%" else "")


# The value of a cell: text, a number, a count, or nothing.
Value = Number | str | int | None
Rows = Iterator[Sequence[Value]]
HOST_UNITS: dict[str, Unit] = {"ratio": "share"}
MOST_HOOKS = 6
# A shape, its rate, a connector, its two taxes and the TTFT tax with phases averaged out.
Line = tuple[tuple[int, int], float, str, Number | None, Number | None, Number | None]


@dataclass(frozen=True, slots=True)
class Table:
    """A folded table of the page.

    Attributes:
        code: names its title and introduction.
        heads: words, with the unit of a column's numbers if all share one.
        units: per column, printed in its head instead of behind its numbers.
        rows: texts at a row's beginning that repeat the row above are left out.
    """

    code: str
    heads: Sequence[str]
    units: Sequence[str]
    rows: Sequence[Sequence[Value]]


def name(text: str) -> str:
    """Return a label as one printable line."""
    return " ".join(printable(text, 48).split()) or "?"


def named(aggregate: Aggregate, config: str) -> str:
    """Return a configuration's label; the second plain of a block is labelled by the table of labels."""
    return name(
        aggregate.label_of(config) if config in aggregate.configs else labels()["config"].get(config, config)
    )


def tables_of(aggregate: Aggregate) -> dict[str, list[Table]]:
    """Return section -> its tables."""
    blocks = list(dict.fromkeys(b for r in aggregate.repeats for t in r.taxes for b in t.by_block))
    tables_by_section: dict[str, dict[str, tuple[Sequence[str], Rows]]] = {
        "causes": {
            "hooks": (("connector", "hook", "calls", "time", "cpu"), _hooks(aggregate)),
            "decomposition": (
                ("connector", "metric", "total", "flags", "framework", "implementation"),
                _split(
                    [r for r in aggregate.decomposition if r.parts], "total flags framework implementation"
                ),
            ),
            "observer": (
                ("connector", "metric", "effect", "recorded", "unrecorded"),
                _split(aggregate.observer_effect, "effect tax tax_unrecorded"),
            ),
            "processes": (("connector", "process", "idle", "loaded", "memory"), _processes(aggregate)),
            "device": (("connector", "late", "busy", "slack"), _device(aggregate)),
        },
        "load": {
            "ref_load": (
                ("connector", "shape", "rate", *METRICS, "added_ttft", "added_tpot", "why"),
                _loaded(aggregate),
            ),
            "blocks": (
                ("reference", "metric", "connector", "tax", *map(phase_text, blocks)),
                _blocks(aggregate, blocks),
            ),
            "host_drift": (("rate", "what", "mean", "change", "p"), _drift(aggregate)),
            "conversations": (
                ("connector", "sessions", "rate", "turns", "hits", "ttft_p90", "tpot_p90"),
                _conversations(aggregate),
            ),
            "growth": (("connector", "of_a_step", "per_blocks", "per_running"), _slopes(aggregate)),
            "growth_cells": (("connector", "cached", "running", "ttft_p50", "tpot_p50"), _levels(aggregate)),
            "burns": (("connector", "metric", "rate", "put_in", "found", "held"), _burns(aggregate)),
        },
        "cells": {
            "configs": (("connector", "status", "why", "install"), _states(aggregate)),
            "outputs": (("connector", "phase", "same", "prompts", "verdict"), _outputs(aggregate)),
        },
    }
    return {
        section: [t for code, (heads, rows) in tables.items() for t in _table(aggregate, code, heads, rows)]
        for section, tables in tables_by_section.items()
    }


def lengths_table(aggregate: Aggregate, lines: Sequence[Line]) -> list[Table]:
    """Return the table of Phase B; its last column is left out if empty."""
    averaged_column = ["phase_averaged"] * any(line[-1] for line in lines)
    heads = ("shape", "rate", "connector", *METRICS, *averaged_column)
    rows = ((f"{i:,} × {o:,}", f"{rate:g}/s", *rest)[: len(heads)] for (i, o), rate, *rest in lines)
    return _table(aggregate, "lengths", heads, rows)


def _table(aggregate: Aggregate, code: str, heads: Sequence[str], rows: Rows) -> list[Table]:
    """Return the table without empty columns; nothing without rows.

    ``rows`` hold connectors and metrics as codes.
    """
    formatters = {"connector": partial(named, aggregate), "metric": partial(label, "metric")}
    all_rows = [
        [formatters[h](str(v)) if h in formatters else v for h, v in zip(heads, row, strict=True)]
        for row in rows
    ]
    columns = list(zip(*all_rows, strict=True))
    kept_columns = [k for k, column in enumerate(columns) if any(v is not None and v != "" for v in column)]
    kept_cells = [[row[k] for k in kept_columns] for row in all_rows]
    # The unit of all numbers of a column; empty if they have several or none.
    suffixes = [{v.suffix for v in columns[k] if isinstance(v, Number)} for k in kept_columns]
    units = [next(iter(suffix_set)) if len(suffix_set) == 1 else "" for suffix_set in suffixes]
    words = [label("head", heads[k]) for k in kept_columns]
    titles = [f"{word}, {unit}" if unit else word for word, unit in zip(words, units, strict=True)]
    return [Table(code, titles, units, _each_once(kept_cells))] if kept_cells else []


def _each_once(rows: Sequence[Sequence[Value]]) -> list[Sequence[Value]]:
    """Leave out texts at the beginning of a row that repeat the row above."""
    shortened: list[Sequence[Value]] = [*rows[:1]]
    for previous, row in pairwise(rows):
        equal = (isinstance(v, str) and v == before for v, before in zip(row, previous, strict=True))
        n_same = sum(1 for _ in takewhile(bool, equal))
        shortened.append([*[""] * n_same, *row[n_same:]])
    return shortened


def _hooks(aggregate: Aggregate) -> Rows:
    """Yield the largest hooks of each connector."""
    for entry in (a for a in aggregate.attribution if is_connector(a.config)):
        for h in [h for h in entry.hooks if round(h.us_per_step, 1) > 0][:MOST_HOOKS]:
            times = bare(h.us_per_step, "us"), bare(h.cpu_us_per_step, "us")
            yield entry.config, name(h.hook), bare(h.calls_per_step), *times


def _split(rows: Iterable[Decomposition | ObserverEffect], names: str) -> Rows:
    """Yield the taxes in the fields ``names``."""
    for row in rows:
        yield row.config, row.metric, *(number(getattr(row, n), "tax") for n in names.split())


def _processes(aggregate: Aggregate) -> Rows:
    """Yield the processes that worked in Phase A's cell at ref_safe."""
    ref_safe_per_s = reference_rate(aggregate, "ref_safe")
    for config in aggregate.config_ids:
        for cell in (cell for cell in aggregate.measured("a", config) if cell.rate_per_s == ref_safe_per_s):
            idle, loaded, memory = (
                by_process or {} for by_process in (cell.cpu.idle_share, cell.cpu.loaded_s, cell.cpu.rss_mib)
            )
            for process in sorted(p for p in {*loaded, *idle} if loaded.get(p) or idle.get(p)):
                work = bare(idle.get(process), "share"), bare(loaded.get(process))
                yield config, name(process), *work, bare(memory.get(process))


def _device(aggregate: Aggregate) -> Rows:
    """Yield the worst cell of each configuration."""
    for config in aggregate.config_ids:
        clocks = [c for cell in aggregate.measured(config=config) if (c := cell.device_clock) is not None]
        if clocks:
            late, busy = max(c.late_share for c in clocks), min(c.device_busy_share for c in clocks)
            slack = bare(min(c.slack_us["p10"] for c in clocks), "us")
            yield config, bare(late, "share"), bare(busy, "share"), slack


def _loaded(aggregate: Aggregate) -> Rows:
    """Yield taxes at Phase A's shape and those of Phase B', and why a number is missing."""
    rates = aggregate.reference_rates
    if rates is None or rates.ref_load_per_s == rates.ref_safe_per_s:
        return
    rows = [t for t in aggregate.main_taxes if t.reference == "ref_load"]
    shapes = list(dict.fromkeys([*(t.shape for t in rows), *(a.shape for a in aggregate.amplification)]))
    rows += [t for t in aggregate.taxes if t.phase == "b_prime" and t.shape not in {m.shape for m in rows}]
    taxes = {(t.config, t.shape, t.metric): t for t in rows}
    added = {(a.config, a.shape, a.metric): a for a in aggregate.amplification}
    for config, shape in product(filter(is_connector, aggregate.config_ids), shapes):
        keys = [(config, shape, m) for m in METRICS]
        tax_numbers = [number(taxes.get(key), "tax") for key in keys]
        added_numbers = [number(added.get(key), "points") for key in keys]
        reasons = [reason_text(a.reason, a.subject) for p in keys if (a := added.get(p)) and a.point is None]
        tax = next((taxes[p] for p in keys if p in taxes), None)
        rate_text = "" if tax is None else f"{tax.rate_per_s:g}/s {launches_text(tax.n_blocks)}"
        if any(tax_numbers) or reasons:
            shape_text = f"{shape[0]:,} × {shape[1]:,}"
            yield (
                config,
                shape_text,
                rate_text,
                *tax_numbers,
                *added_numbers,
                "; ".join(dict.fromkeys(reasons)),
            )


def _blocks(aggregate: Aggregate, blocks: Sequence[str]) -> Rows:
    for entry in aggregate.repeats:
        if entry.metric not in METRICS:
            continue
        rate_and_metric = f"{entry.rate_per_s:g}/s", entry.metric
        plain_again = label("head", "plain_again")
        yield *rate_and_metric, plain_again, number(entry.noise_floor, "tax"), *[None] * len(blocks)
        for tax in entry.taxes:
            block_taxes = (bare(tax.by_block.get(b), "tax") for b in blocks)
            yield *rate_and_metric, tax.config, number(tax, "tax"), *block_taxes


def _drift(aggregate: Aggregate) -> Rows:
    for entry in aggregate.host_drift:
        rate = f"{entry.rate_per_s:g}/s"
        for row in aggregate.repeats:
            if row.rate_per_s == entry.rate_per_s and row.drift is not None and row.metric in METRICS:
                change = number(row.drift.change, "tax")
                yield rate, label("host", row.metric), None, change, bare(row.drift.p_value)
        for source in entry.sources:
            unit = HOST_UNITS.get(source.unit, "plain")
            mean, change = bare(source.mean, unit), number(source.change, unit)
            yield rate, label("host", source.source), mean, change, bare(source.p_value)


def _conversations(aggregate: Aggregate) -> Rows:
    taxes = {(t.config, t.cell_id, t.metric): t for t in aggregate.taxes if t.phase == "c"}
    for config in aggregate.config_ids:
        for cell in aggregate.measured("c", config):
            sessions, rate = name(cell.cell_id.partition("_")[2]), f"{cell.rate_per_s:g}/s"
            tax_numbers = (number(taxes.get((config, cell.cell_id, m)), "tax") for m in METRICS)
            yield (
                config,
                sessions,
                rate,
                cell.n_window,
                bare(cell.prefix_cache_hit_share, "share"),
                *tax_numbers,
            )


def _slopes(aggregate: Aggregate) -> Rows:
    for entry in aggregate.growth:
        for slope in entry.slopes:
            numbers = (
                number(v, "change_us") for v in (slope.per_1000_cached_blocks, slope.per_running_request)
            )
            yield entry.config, label("growth", slope.quantity), *numbers


def _levels(aggregate: Aggregate) -> Rows:
    for entry in aggregate.growth:
        for cell in entry.cells if entry.config != PLAIN else ():
            taxes = (number(cell.p50_taxes.get(m), "tax") for m in ("ttft_p50", "tpot_p50"))
            yield entry.config, bare(cell.cached_blocks), bare(cell.running), *taxes


def _burns(aggregate: Aggregate) -> Rows:
    for row in aggregate.burns.rows if aggregate.burns is not None else ():
        numbers = bare(row.put_in_us, "us"), number(row.found, "change_us")
        held = label("held", str(row.held).lower())
        yield row.config, row.metric, f"{row.rate_per_s:g}/s", *numbers, held


def _states(aggregate: Aggregate) -> Rows:
    """Yield the configurations that are not completely measured."""
    for config, state in aggregate.configs.items():
        if state.status != "measured":
            why, install = printable(problem_text(state.reason), 300), printable(state.install or "", 300)
            yield config, label("status", state.status), why, install


def _outputs(aggregate: Aggregate) -> Rows:
    """Yield launches whose answers were compared; none if all are the same."""
    if any(o.verdict not in ("reference", "same") for o in aggregate.outputs):
        for o in aggregate.outputs:
            yield o.config, phase_text(o.phase), o.n_same, o.n_prompts, label("outputs", o.verdict)


def proofs_of(aggregate: Aggregate) -> dict[str, int]:
    """Count connectors' cells, those with the connector off, and those in which neither is proved."""
    cells = [c for c in aggregate.cells if is_connector(c.config)]
    off = sum(any(reason.code.startswith("off_") for reason in c.reasons) for c in cells)
    return {"asked": len(cells), "off": off, "unproved": sum(UNPROVED in c.flags for c in cells)}


def provenance_of(aggregate: Aggregate) -> list[tuple[str, str]]:
    """Return (code, value) of the page's footer; the rest is in ``aggregate.json``."""
    p = aggregate.provenance
    host = {"": p.host.get("cpu"), "cores": p.host.get("cores"), "MiB": p.host.get("memory_mib")}
    values = {
        "model": p.model,
        "software": ", ".join(f"{k} {v}" for k, v in p.versions.items() if v),
        "arguments": ", ".join(f"{k}={v}" for k, v in p.engine_args.items()),
        "gpu": ", ".join(p.gpu),
        "host": ", ".join(f"{v} {unit}".strip() for unit, v in host.items() if v),
        "kernel": p.host.get("kernel"),
        "arrivals": p.arrival,
        "seed": p.seed,
        "draws": p.bootstrap_draws,
        "code": ", ".join(f"{k} {v[:16]}" for k, v in p.code.items()),
        "config": p.config_hash,
        "created": p.created_utc,
    }
    return [(code, printable(str(v), 500)) for code, v in values.items() if v not in (None, "")]
