"""Makes ``cells`` of ``aggregate.json``, with flags and estimates; and ``aggregate.csv``, one flat row per
cell, empty where a number is unavailable.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping

import msgspec

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Cell,
    Ends,
    Host,
    MeasuredCell,
    Metric,
    Percentiles,
    Problem,
    Stopping,
    TaxRow,
)
from connector_tax.base.documents.cell import ClockHealth
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.statistics.interim import interim_analyses, interim_factor
from connector_tax.base.steptime.hooks_recorded import FLAG
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.stats.cells import LATENCIES, PERCENTILES, STEP_COLUMNS, CellEstimates, percentiles
from connector_tax.read.stats.host import host_flags
from connector_tax.read.stats.reference import Saturation, overload_criteria
from connector_tax.read.stats.taxes import METRICS


def flags_of(cell: CellData) -> list[str]:
    """Return the flags of ``cell.json``, and those that follow from samples and step records."""
    flags = [*cell.document.flags, *host_flags(cell.samples.host)]
    without_hooks = cell.steps is not None and cell.steps.hooks_missing
    return [*flags, FLAG] if without_hooks and FLAG not in flags else flags


def missing_hooks(data: CampaignData) -> list[Problem]:
    """Report per configuration and cause the number of cells without hook times."""
    problems = []
    for config in data.config.connector_ids:
        steps = [c.steps for c in data.cells() if c.config == config and c.steps is not None]
        for code, n in Counter(code for step_records in steps for code in step_records.hooks_missing).items():
            problems.append(
                Problem(
                    "hooks_unknown", config, numbers={"cells": n, "of": len(steps)}, because=Problem(code)
                )
            )
    return problems


def cell_row(cell: CellData) -> Cell:
    """Return the entry of a cell that statistics exclude; all other entries have its fields, too."""
    return Cell(
        config=cell.config,
        phase=cell.phase,
        cell_id=cell.cell_id,
        rate_per_s=cell.spec.rate_per_s,
        input_tokens=cell.spec.input_tokens,
        output_tokens=cell.spec.output_tokens,
        usable=cell.usable,
        verdict=cell.document.verdict,
        reasons=cell.reasons,
        flags=tuple(flags_of(cell)),
    )


def measured_row(
    estimates: CellEstimates, saturation: Mapping[str, Saturation], confidence: float
) -> MeasuredCell:
    """Return the entry of a cell that statistics use."""
    cell = estimates.cell
    summary = summarise_cell(cell.spec, cell.window, cell.requests)
    dropped = summary.statuses.get("dropped", 0)
    # Reference rates were chosen at one shape; a longer one may saturate at the same rate, and is judged
    # itself.
    in_phase_a = saturation.get(cell.config) if cell.phase == "a" else None
    criteria = overload_criteria(cell) if in_phase_a is None else in_phase_a.criteria[cell.spec.rate_per_s]
    ttft, tpot, e2e, ttft_from_send = (
        Percentiles(**percentiles({q: estimates.latency(name, q) for q in PERCENTILES}, confidence))
        for name in LATENCIES
    )
    return MeasuredCell(
        **msgspec.structs.asdict(cell_row(cell)),
        n_window=summary.n_window,
        n_ok=summary.n_ok,
        n_dropped=dropped,
        n_failed=summary.n_window - summary.n_ok - dropped,
        statuses=summary.statuses,
        window_s=summary.window_s,
        requested_throughput_per_s=summary.requested_throughput_per_s,
        effective_throughput_per_s=summary.effective_throughput_per_s,
        throughput_ratio=summary.throughput_ratio,
        waiting_p50=cell.samples.waiting_p50,
        n_waiting=cell.samples.n_waiting,
        running_p50=cell.samples.running_p50,
        n_metrics_missed=cell.samples.n_missed,
        host=cell.samples.host,
        prefix_cache_hit_share=_hit_share(cell),
        cpu=cell.document.cpu,
        health=cell.document.health,
        step=estimates.steps.document,
        stopping=_stopping(cell, confidence),
        ttft_ms=ttft,
        tpot_ms=tpot,
        e2e_ms=e2e,
        ttft_from_send_ms=ttft_from_send,
        saturation_criteria=criteria,
        saturated=bool(criteria.fired),
    )


def _stopping(cell: CellData, confidence: float) -> Stopping | msgspec.UnsetType:
    looks, half_width = cell.window.looks, cell.spec.stop_half_width
    if looks is None or half_width is None:
        return msgspec.UNSET
    return Stopping(
        half_width=half_width,
        planned=interim_analyses(cell.spec),
        wider=interim_factor(cell.spec, confidence),
        looks=looks,
        reached=bool(cell.window.half_width_reached),
    )


def _hit_share(cell: CellData) -> float | None:
    """Return the share of prompt tokens found in the prefix cache; None if unknown."""
    hits = cell.document.prefix_cache_hits_delta
    prompt_tokens = sum(r.prompt_tokens or 0 for r in cell.requests)
    return hits / prompt_tokens if isinstance(hits, int | float) and prompt_tokens else None


Row = dict[str, str | int | float | bool | None]
HOST_COLUMNS = ("steal_share", "cpu_mhz_p50", "cpu_mhz_min", "cpu_work_us_mean")
GPU_COLUMNS = ("sm_mhz_p50", "mem_mhz_p50", "temperature_c_max", "power_w_mean", "utilisation_mean")


def aggregate_csv(aggregate: Aggregate) -> str:
    """Return a row per cell, with the source of its numbers.

    A tax is the main one for the configuration, rate and shape, so that no two rows contradict each other.
    """
    taxes = {(t.config, t.phase, t.cell_id, t.metric): t for t in aggregate.taxes}
    main = {t.place: t for t in aggregate.main_taxes}
    rows: list[Row] = []
    averaged_rows: list[Row] = []
    for cell in aggregate.cells:
        cell_taxes = {
            metric: main.get(tax.place, tax)
            for metric in METRICS
            if (tax := taxes.get((cell.config, cell.phase, cell.cell_id, metric))) is not None
        }
        rows.append(_cell(cell) | _taxes(cell_taxes))
        averaged_rows.append(_phase_averaged(cell_taxes))
    # New columns come last, so that scripts find the old ones in place.
    columns = [*dict.fromkeys(name for row in rows for name in row), *["source"] * bool(rows)]
    columns += dict.fromkeys(name for row in averaged_rows for name in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    source: Row = {"source": aggregate.measured_on.text}
    writer.writerows(
        row | source | averaged_row for row, averaged_row in zip(rows, averaged_rows, strict=True)
    )
    return out.getvalue()


def _phase_averaged(taxes: Mapping[Metric, TaxRow]) -> Row:
    averaged = taxes["ttft_p90"].phase_averaged if "ttft_p90" in taxes else None
    if not averaged:
        return {}
    name = "tax_ttft_p90_phase_averaged"
    return _interval(name, averaged) | {f"{name}_n_blocks": averaged.n_blocks}


def _taxes(taxes: Mapping[Metric, TaxRow]) -> Row:
    row: Row = {}
    for metric, tax in taxes.items():
        name = f"tax_{metric}"
        row |= _interval(name, tax) | {f"{name}_verdict": tax.verdict, f"{name}_n_blocks": tax.n_blocks}
    return row


def _interval(name: str, interval: Ends, unit: str = "") -> Row:
    ends = {f"{name}_low{unit}": interval.low, f"{name}_high{unit}": interval.high}
    return {f"{name}{unit}": interval.point, **ends}


def _cell(cell: Cell) -> Row:
    fields = {name: getattr(cell, name) for name in cell.__struct_fields__ if name != "host"}
    row: Row = {k: v for k, v in fields.items() if isinstance(v, str | int | float | bool) or v is None}
    row |= {"flags": ";".join(cell.flags), "reasons": ";".join(reason.code for reason in cell.reasons)}
    if not isinstance(cell, MeasuredCell):
        return row | {"saturation_fired": ""} | _host(None)
    row["saturation_fired"] = ";".join(cell.saturation_criteria.fired)
    for latency in LATENCIES[:3]:
        latency_percentiles = cell.latency(latency)
        for q in latency_percentiles.__struct_fields__:
            row |= _interval(f"{latency.removesuffix('_ms')}_{q}", getattr(latency_percentiles, q), "_ms")
    if (steps := cell.steps) is not None:
        for name in STEP_COLUMNS:
            times, column = steps.column(name), name.removesuffix("_us")
            row |= {f"{column}_p50_us": times.p50.point, f"{column}_p90_us": times.p90.point}
    if cell.device_clock is not None:
        row |= _device(cell.device_clock)
    return row | _host(cell.host)


def _device(clock: ClockHealth) -> Row:
    return {
        "device_late_share": clock.late_share,
        "device_busy_share": clock.device_busy_share,
        "device_lateness_p50_us": clock.lateness_us["p50"],
        "device_lateness_p99_us": clock.lateness_us["p99"],
        "device_slack_p10_us": clock.slack_us["p10"],
        "device_slack_p50_us": clock.slack_us["p50"],
    }


def _host(host: Host | None) -> Row:
    gpu = None if host is None else host.gpu
    return {f"host_{name}": getattr(host, name, None) for name in HOST_COLUMNS} | {
        f"gpu_{name}": getattr(gpu, name, None) for name in GPU_COLUMNS
    }
