"""``cells`` of ``aggregate.json``: what is told of each, with what qualifies it and the estimates of those that statistics use."""

from collections import Counter

import msgspec

from connector_tax.base.documents.aggregate import (
    Cell,
    Latency,
    MeasuredCell,
    Percentiles,
    Problem,
    SaturationCriteria,
    Stopping,
)
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.statistics.looks import look_factor, looks_of
from connector_tax.base.steptime.heard import FLAG
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.stats.cells import PERCENTILES, CellEstimates
from connector_tax.read.stats.host import host_flags
from connector_tax.read.stats.saturation import Saturation, overload_criteria


def flags_of(cell: CellData) -> list[str]:
    """Those of ``cell.json``, and those that follow from its samples and step records."""
    found = [*cell.document.flags, *host_flags(cell.samples.host)]
    silent = cell.steps is not None and cell.steps.unheard
    return [*found, FLAG] if silent and FLAG not in found else found


def unheard_hooks(data: CampaignData) -> list[Problem]:
    """Per configuration and cause: in how many cells its hooks were not recorded."""
    found = []
    for connector in data.document.config["connectors"]:
        steps = [c.steps for c in data.cells() if c.config == connector["id"] and c.steps is not None]
        for code, n in Counter(code for own in steps for code in own.unheard).items():
            found.append(
                Problem(
                    "hooks_unknown",
                    connector["id"],
                    numbers={"cells": n, "of": len(steps)},
                    because=Problem(code),
                )
            )
    return found


def left_out(cell: CellData) -> Cell:
    """One entry of ``cells`` in ``aggregate.json`` that no statistics use; of any other what is told of it, too."""
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
    """The reference rates were chosen at one shape; a longer one may be too much at the same rate, and is judged by itself."""
    if cell.phase == "a" and saturation is not None:
        return SaturationCriteria(**saturation.criteria[cell.spec.rate_per_s])
    return SaturationCriteria(**overload_criteria(cell), ttft_growth=msgspec.UNSET)


def _hit_share(cell: CellData) -> float | None:
    """Tokens found in the prefix cache, of all prompt tokens of the cell; None where either is unknown."""
    hits = cell.document.prefix_cache_hits_delta
    asked = sum(r.prompt_tokens or 0 for r in cell.requests)
    return hits / asked if isinstance(hits, int | float) and asked else None
