"""The page's folded tables, by the section that they belong to: rows of names and numbers; a table without rows is not there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import PLAIN, Aggregate, Metric, TaxBase
from connector_tax.base.opening import printable
from connector_tax.base.records.cell import phase_word
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.labels import label
from connector_tax.read.report.numbers import Number, Unit, bare, number

# What may stand in a cell: text, a number, a count, or nothing.
Value = Number | str | int | None
METRICS: tuple[Metric, ...] = ("ttft_p90", "tpot_p90")
HOST_UNITS: dict[str, Unit] = {"ratio": "share"}


@dataclass(frozen=True, slots=True)
class Table:
    """``code`` names its title and what is said above it; ``heads`` are words."""

    code: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Value]]


def name(text: str) -> str:
    """Return one printable line of a label that somebody wrote into a file."""
    return " ".join(printable(text, 48).split()) or "?"


def tables_of(aggregate: Aggregate) -> dict[str, list[Table]]:
    """Return section -> its tables."""
    found = {
        "causes": [
            _table("decomposition", ("connector", "metric", "total", "flags", "framework", "implementation"), _parts(aggregate)),
            _table("observer", ("connector", "metric", "effect", "recorded", "unrecorded"), _observer(aggregate)),
            _table("processes", ("connector", "process", "idle", "loaded", "memory"), _processes(aggregate)),
            _table("device", ("connector", "late", "busy", "slack"), _device(aggregate)),
        ],
        "load": [
            _table("ref_load", ("connector", "ttft_p90", "tpot_p90", "added_ttft", "added_tpot"), _loaded(aggregate)),
            _blocks(aggregate),
            _table("host_drift", ("what", "mean", "change", "p"), _drift(aggregate)),
            _table("conversations", ("connector", "sessions", "rate", "turns", "hits", "ttft_tax", "tpot_tax"), _conversations(aggregate)),
            _table("growth", ("connector", "of_a_step", "per_blocks", "per_running"), _slopes(aggregate)),
            _table("growth_cells", ("connector", "cached", "running", "ttft_p50", "tpot_p50"), _levels(aggregate)),
            _table("burns", ("connector", "metric", "rate", "put_in", "found", "held"), _burns(aggregate)),
        ],
        "cells": [
            _table("configs", ("connector", "status", "why", "install"), _states(aggregate)),
            _table("outputs", ("connector", "phase", "same", "prompts", "verdict"), _outputs(aggregate)),
        ],
    }  # fmt: skip
    return {section: [t for t in own if t.rows] for section, own in found.items()}


def _table(code: str, heads: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
    return Table(code, [label("head", h) for h in heads], list(rows))


def _parts(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    for row in aggregate.decomposition:
        if row.parts:
            parts = (row.total, row.flags, row.framework, row.implementation)
            yield (
                name(aggregate.label_of(row.config)),
                label("metric", row.metric),
                *(number(p, "tax") for p in parts),
            )


def _observer(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    for row in aggregate.observer_effect:
        numbers = (number(v, "tax") for v in (row.effect, row.tax, row.tax_unrecorded))
        yield name(aggregate.label_of(row.config)), label("metric", row.metric), *numbers


def _processes(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    """Of Phase A's cell at ref_safe."""
    rates = aggregate.reference_rates
    for config in aggregate.config_ids:
        for cell in aggregate.measured("a", config):
            if rates is None or cell.rate_per_s != rates.ref_safe_per_s:
                continue
            cpu = cell.cpu_use
            for process in sorted({*cpu.loaded_s, *cpu.idle_share, *cpu.rss_mib}):
                yield (
                    name(aggregate.label_of(config)),
                    name(process),
                    bare(cpu.idle_share.get(process), "share"),
                    bare(cpu.loaded_s.get(process), "plain"),
                    bare(cpu.rss_mib.get(process), "plain"),
                )


def _device(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    """The worst cell of each configuration."""
    for config in aggregate.config_ids:
        clocks = [c for cell in aggregate.measured(config=config) if (c := cell.device_clock) is not None]
        if clocks:
            yield (
                name(aggregate.label_of(config)),
                bare(max(c.late_share for c in clocks), "share"),
                bare(min(c.device_busy_share for c in clocks), "share"),
                bare(min(c.slack_us.p10 for c in clocks), "us"),
            )


def _loaded(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    rates = aggregate.reference_rates
    if rates is None or rates.ref_load_per_s == rates.ref_safe_per_s:
        return
    taxes: dict[tuple[str, Metric], TaxBase] = {
        (t.config, t.metric): t for t in aggregate.chosen_taxes if t.reference == "ref_load"
    }
    shape = next((t.shape for t in aggregate.chosen_taxes), None)
    added = {(a.config, a.metric): a for a in aggregate.amplification if a.shape in (shape, (None, None))}
    for config in aggregate.config_ids:
        own = [number(taxes.get((config, m)), "tax") for m in METRICS]
        more = [number(added.get((config, m)), "points") for m in METRICS]
        if is_connector(config) and any(own):
            yield name(aggregate.label_of(config)), *own, *more


def _blocks(aggregate: Aggregate) -> Table:
    entries = [r for r in aggregate.repeats if r.metric in METRICS]
    blocks = list(dict.fromkeys(b for r in entries for t in r.taxes for b in t.by_block))
    heads = [label("head", h) for h in ("connector", "metric", "reference", "tax")]
    rows: list[Sequence[Value]] = []
    for entry in entries:
        where = label("metric", entry.metric), f"{entry.rate_per_s:g}/s"
        rows.append(
            (label("head", "plain_again"), *where, number(entry.noise_floor, "tax"), *[None] * len(blocks))
        )
        for tax in entry.taxes:
            own = (bare(tax.by_block.get(b), "tax") for b in blocks)
            rows.append((name(aggregate.label_of(tax.config)), *where, number(tax, "tax"), *own))
    return Table("blocks", [*heads, *(phase_word(b) for b in blocks)], rows)


def _drift(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    for entry in aggregate.host_drift:
        for row in aggregate.repeats:
            if row.rate_per_s == entry.rate_per_s and row.drift is not None and row.metric in METRICS:
                change = number(row.drift.change, "tax")
                yield label("host", row.metric), None, change, bare(row.drift.p_value)
        for source in entry.sources:
            unit = HOST_UNITS.get(source.unit, "plain")
            mean, change = bare(source.mean, unit), number(source.change, unit)
            yield label("host", source.source), mean, change, bare(source.p_value)


def _conversations(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    taxes = {(t.config, t.cell_id, t.metric): t for t in aggregate.taxes if t.phase == "c"}
    for config in aggregate.config_ids:
        for cell in aggregate.measured("c", config):
            yield (
                name(aggregate.label_of(config)),
                name(cell.cell_id.partition("_")[2]),
                f"{cell.rate_per_s:g}/s",
                cell.n_window,
                bare(cell.prefix_cache_hit_share, "share"),
                *(number(taxes.get((config, cell.cell_id, m)), "tax") for m in METRICS),
            )


def _slopes(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    for entry in aggregate.growth:
        for slope in entry.slopes:
            both = (slope.per_1000_cached_blocks, slope.per_running_request)
            yield (
                name(aggregate.label_of(entry.config)),
                label("growth", slope.quantity),
                *(number(v, "change_us") for v in both),
            )


def _levels(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    for entry in aggregate.growth:
        for cell in entry.cells if entry.config != PLAIN else ():
            taxes = (number(cell.p50_taxes.get(m), "tax") for m in ("ttft_p50", "tpot_p50"))
            label_of = name(aggregate.label_of(entry.config))
            yield label_of, bare(cell.cached_blocks), bare(cell.running), *taxes


def _burns(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    for row in aggregate.burns.rows if aggregate.burns is not None else ():
        yield (
            name(aggregate.label_of(row.config)),
            label("metric", row.metric),
            f"{row.rate_per_s:g}/s",
            bare(row.put_in_us, "us"),
            number(row.found, "change_us"),
            label("held", str(row.held).lower()),
        )


def _states(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    """Of the configurations of which something is missing."""
    for state in aggregate.configs.values():
        if state.status != "measured":
            reason, install = (printable(t or "", 300) for t in (state.bare_reason, state.install))
            yield name(state.label), label("status", state.status), reason, install


def _outputs(aggregate: Aggregate) -> Iterator[Sequence[Value]]:
    """Nothing where all say the same."""
    if all(o.verdict in ("reference", "same") for o in aggregate.outputs):
        return
    for o in aggregate.outputs:
        phase, word = phase_word(o.phase), label("outputs", o.verdict)
        yield name(aggregate.label_of(o.config)), phase, o.n_same, o.n_prompts, word


def provenance_of(aggregate: Aggregate) -> list[tuple[str, str]]:
    """Return (code, value) of what the page's foot tells; the rest is in ``aggregate.json``."""
    p = aggregate.provenance
    host = p.host
    values = {
        "model": p.model,
        "software": ", ".join(f"{k} {v}" for k, v in p.versions.items() if v),
        "arguments": ", ".join(f"{k}={v}" for k, v in p.engine_args.items()),
        "gpu": ", ".join(p.gpu),
        "host": ", ".join(
            str(v)
            for v in (
                host.get("cpu"),
                f"{host['cores']} cores" if host.get("cores") else None,
                f"{host['memory_mib']} MiB" if host.get("memory_mib") else None,
                f"Linux {host['kernel']}" if host.get("kernel") else None,
            )
            if v
        ),
        "arrivals": p.arrival,
        "seed": p.seed,
        "draws": p.bootstrap_draws,
        "code": ", ".join(f"{k} {v[:16]}" for k, v in p.code.items()),
        "config": p.config_hash,
        "created": p.created_utc,
    }
    return [(code, printable(str(v), 500)) for code, v in values.items() if v not in (None, "")]
