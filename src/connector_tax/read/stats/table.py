"""``aggregate.csv``: one row per cell, flat; empty where a number is unavailable."""

import csv
import io
from collections.abc import Mapping

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Cell,
    Host,
    Latency,
    MeasuredCell,
    Metric,
    Percentiles,
    Steps,
    TaxRow,
)
from connector_tax.base.documents.cell import ClockHealth
from connector_tax.read.stats.cells import STEP_COLUMNS
from connector_tax.read.stats.taxes import METRICS

Row = dict[str, str | int | float | bool | None]
LATENCIES: tuple[Latency, ...] = ("ttft_ms", "tpot_ms", "e2e_ms")
HOST_COLUMNS = ("steal_share", "cpu_mhz_p50", "cpu_mhz_min", "cpu_work_us_mean")
GPU_COLUMNS = ("sm_mhz_p50", "mem_mhz_p50", "temperature_c_max", "power_w_mean", "utilisation_mean")


def aggregate_csv(aggregate: Aggregate) -> str:
    """
    A tax is the one that stands for the cell's configuration, rate and shape, over how many blocks of launches: two rows
    have no two of them. Every row names the source of its numbers.
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
