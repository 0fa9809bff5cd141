"""``cells`` of ``aggregate.json``: what is told of each, with what qualifies it and the estimates of those
that statistics use; and ``aggregate.csv``, with one flat row per cell, empty where a number is unavailable.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping

import msgspec

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Cell,
    Host,
    Latency,
    MeasuredCell,
    Metric,
    Percentiles,
    Problem,
    SaturationCriteria,
    Steps,
    Stopping,
    TaxRow,
)
from connector_tax.base.documents.cell import ClockHealth
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.statistics.looks import look_factor, looks_of
from connector_tax.base.steptime.heard import FLAG
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.stats.cells import PERCENTILES, STEP_COLUMNS, CellEstimates
from connector_tax.read.stats.host import host_flags
from connector_tax.read.stats.reference import Saturation, overload_criteria
from connector_tax.read.stats.taxes import METRICS


def flags_of(cell: CellData) -> list[str]:
    """Those of ``cell.json``, and those that follow from its samples and step records."""
    found = [*cell.document.flags, *host_flags(cell.samples.host)]
    silent = cell.steps is not None and cell.steps.unheard
    return [*found, FLAG] if silent and FLAG not in found else found


def unheard_hooks(data: CampaignData) -> list[Problem]:
    """Per configuration and cause: in how many cells its hooks were not recorded."""
    found = []
    for config in data.config.connector_ids:
        steps = [c.steps for c in data.cells() if c.config == config and c.steps is not None]
        for code, n in Counter(code for own in steps for code in own.unheard).items():
            found.append(
                Problem(
                    "hooks_unknown",
                    config,
                    numbers={"cells": n, "of": len(steps)},
                    because=Problem(code),
                )
            )
    return found


def left_out(cell: CellData) -> Cell:
    """One entry of ``cells`` in ``aggregate.json`` that no statistics use; of any other what is told of it,
    too."""
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


def measured(estimates: CellEstimates, saturation: Saturation | None, confidence: float) -> MeasuredCell:
    """One entry of ``cells`` in ``aggregate.json``."""
    cell = estimates.cell
    summary = summarise_cell(cell.spec, cell.window, cell.requests)
    dropped = summary.statuses.get("dropped", 0)
    criteria = _criteria(cell, saturation)

    def percentiles(name: Latency) -> Percentiles:
        p50, p90, p99 = (estimates.latency(name, q).quantity(confidence) for q in PERCENTILES)
        return Percentiles(p50=p50, p90=p90, p99=p99)

    return MeasuredCell(
        **msgspec.structs.asdict(left_out(cell)),
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
        ttft_ms=percentiles("ttft_ms"),
        tpot_ms=percentiles("tpot_ms"),
        e2e_ms=percentiles("e2e_ms"),
        ttft_from_send_ms=percentiles("ttft_from_send_ms"),
        saturation_criteria=criteria,
        saturated=bool(criteria.fired),
    )


def _stopping(cell: CellData, confidence: float) -> Stopping | msgspec.UnsetType:
    looks, half_width = cell.window.looks, cell.spec.stop_half_width
    if looks is None or half_width is None:
        return msgspec.UNSET
    return Stopping(
        half_width=half_width,
        planned=looks_of(cell.spec),
        wider=look_factor(cell.spec, confidence),
        looks=looks,
        reached=bool(cell.window.half_width_reached),
    )


def _criteria(cell: CellData, saturation: Saturation | None) -> SaturationCriteria:
    """The reference rates were chosen at one shape; a longer one may be too much at the same rate, and is
    judged by itself."""
    if cell.phase == "a" and saturation is not None:
        return saturation.criteria[cell.spec.rate_per_s]
    return overload_criteria(cell)


def _hit_share(cell: CellData) -> float | None:
    """Tokens found in the prefix cache, of all prompt tokens of the cell; None where either is unknown."""
    hits = cell.document.prefix_cache_hits_delta
    asked = sum(r.prompt_tokens or 0 for r in cell.requests)
    return hits / asked if isinstance(hits, int | float) and asked else None


Row = dict[str, str | int | float | bool | None]
LATENCIES: tuple[Latency, ...] = ("ttft_ms", "tpot_ms", "e2e_ms")
HOST_COLUMNS = ("steal_share", "cpu_mhz_p50", "cpu_mhz_min", "cpu_work_us_mean")
GPU_COLUMNS = ("sm_mhz_p50", "mem_mhz_p50", "temperature_c_max", "power_w_mean", "utilisation_mean")


def aggregate_csv(aggregate: Aggregate) -> str:
    """
    A tax is the one that stands for the cell's configuration, rate and shape, over how many blocks of
    launches: two rows have no two of them. Every row names the source of its numbers.
    """
    taxes = {(t.config, t.phase, t.cell_id, t.metric): t for t in aggregate.taxes}
    standing = {t.place: t for t in aggregate.main_taxes}
    rows: list[Row] = []
    averaged: list[Row] = []
    for cell in aggregate.cells:
        own: dict[Metric, TaxRow] = {}
        for metric in METRICS:
            tax = taxes.get((cell.config, cell.phase, cell.cell_id, metric))
            if tax is not None:
                own[metric] = standing.get(tax.place, tax)
        rows.append(_cell(cell) | _taxes(own))
        averaged.append(_phase_averaged(own))
    # Behind the others: those that scripts know keep their places.
    columns = [*dict.fromkeys(name for row in rows for name in row), *["source"] * bool(rows)]
    columns += dict.fromkeys(name for row in averaged for name in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    source: Row = {"source": aggregate.measured_on.text}
    writer.writerows(row | source | more for row, more in zip(rows, averaged, strict=True))
    return out.getvalue()


def _phase_averaged(taxes: Mapping[Metric, TaxRow]) -> Row:
    found = taxes["ttft_p90"].phase_averaged if "ttft_p90" in taxes else None
    if not found:
        return {}
    name = "tax_ttft_p90_phase_averaged"
    ends = {f"{name}_low": found.low, f"{name}_high": found.high}
    return {name: found.point, **ends, f"{name}_n_blocks": found.n_blocks}


def _taxes(taxes: Mapping[Metric, TaxRow]) -> Row:
    row: Row = {}
    for metric, tax in taxes.items():
        row |= {
            f"tax_{metric}": tax.point,
            f"tax_{metric}_low": tax.low,
            f"tax_{metric}_high": tax.high,
            f"tax_{metric}_verdict": tax.verdict,
            f"tax_{metric}_n_blocks": tax.n_blocks,
        }
    return row


def _cell(cell: Cell) -> Row:
    named = {name: getattr(cell, name) for name in cell.__struct_fields__ if name != "host"}
    row: Row = {k: v for k, v in named.items() if isinstance(v, str | int | float | bool) or v is None}
    row |= {"flags": ";".join(cell.flags), "reasons": ";".join(reason.code for reason in cell.reasons)}
    if not isinstance(cell, MeasuredCell):
        return row | {"saturation_fired": ""} | _host(None)
    row["saturation_fired"] = ";".join(cell.saturation_criteria.fired)
    for name in LATENCIES:
        row |= _latency(name.removesuffix("_ms"), cell.latency(name))
    if cell.steps is not None:
        row |= _steps(cell.steps)
    if cell.device_clock is not None:
        row |= _device(cell.device_clock)
    return row | _host(cell.host)


def _latency(name: str, percentiles: Percentiles) -> Row:
    row: Row = {}
    for q in percentiles.__struct_fields__:
        found = getattr(percentiles, q)
        row |= {
            f"{name}_{q}_ms": found.point,
            f"{name}_{q}_low_ms": found.low,
            f"{name}_{q}_high_ms": found.high,
        }
    return row


def _steps(steps: Steps) -> Row:
    row: Row = {}
    for name in STEP_COLUMNS:
        found, column = steps.column(name), name.removesuffix("_us")
        row |= {f"{column}_p50_us": found.p50.point, f"{column}_p90_us": found.p90.point}
    return row


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
