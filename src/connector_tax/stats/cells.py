"""One cell to its numbers with intervals; the resamples are kept, so that taxes can be made of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from connector_tax.ingest import CellData
from connector_tax.ingest.steps import KIND_NAMES, StepTable
from connector_tax.seeds import stream
from connector_tax.stats.bootstrap import Estimate, Floats, block_counts, estimate_percentiles, unavailable
from connector_tax.stats.saturation import Saturation
from connector_tax.summary.cell import in_window, latencies_ms, summarise_cell

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms", "ttft_from_send_ms")
PERCENTILES = (50.0, 90.0, 99.0)
STEP_COLUMNS = (
    "step_duration_us",
    "build_meta_us",
    "get_finished_us",
    "start_load_kv_us",
    "connector_total_us",
    "round_trip_us",
)
# Steps are many and their percentiles narrow; these draws repeat a bound within about 3 % of the width.
STEP_DRAWS = 400
CDF_POINTS = 200


@dataclass(frozen=True, slots=True)
class CellEstimates:
    """Estimates of one cell.

    Attributes:
        latencies: (name, percentile) -> estimate, milliseconds.
        steps: (column, percentile) -> estimate, microseconds; empty without step records.
        steps_missing: why there are none.
    """

    cell: CellData
    latencies: dict[tuple[str, float], Estimate]
    steps: dict[tuple[str, float], Estimate]
    steps_missing: str | None

    def latency(self, name: str, q: float) -> Estimate:
        return self.latencies[name, q]

    def step(self, name: str, q: float) -> Estimate:
        return self.steps.get((name, q)) or unavailable(self.steps_missing or "no step records")


def estimate_cell(cell: CellData, seed: int, draws: int) -> CellEstimates:
    """Resample one cell's requests and steps, each in blocks in time order."""
    rng = stream(seed, "bootstrap", cell.config, cell.phase, cell.cell_id)
    chosen = in_window(cell.requests, cell.window)
    found: dict[tuple[str, float], Estimate] = {}
    counts = block_counts(len(chosen), draws, rng) if chosen else None
    for name, values in latencies_ms(chosen).items():
        if name not in LATENCIES:
            continue
        array = np.asarray(values, dtype=np.float64)
        # One draw of counts for all latencies of the same requests; TPOT may leave some out.
        own = counts if counts is not None and array.size == len(chosen) else None
        for q, estimate in estimate_percentiles(array, PERCENTILES, draws, rng, own).items():
            found[name, q] = estimate
    steps, missing = _steps(cell, rng)
    return CellEstimates(cell, found, steps, missing)


def _steps(cell: CellData, rng: np.random.Generator) -> tuple[dict[tuple[str, float], Estimate], str | None]:
    table = cell.steps
    if table is None:
        return {}, "this cell has no step records"
    if table.n == 0:
        return {}, "no step with a token was recorded in this cell"
    counts = block_counts(table.n, STEP_DRAWS, rng) if table.n * STEP_DRAWS <= 20_000_000 else None
    found = {}
    for name in STEP_COLUMNS:
        values: Floats = getattr(table, name)
        whole = not np.isnan(values).any()
        kept = values if whole else values[~np.isnan(values)]
        for q, estimate in estimate_percentiles(
            kept, (50.0, 90.0), STEP_DRAWS, rng, counts if whole else None
        ).items():
            found[name, q] = estimate
    return found, None


def cell_json(estimates: CellEstimates, saturation: Saturation | None, confidence: float) -> dict[str, Any]:
    """One entry of ``cells`` in ``aggregate.json``."""
    cell = estimates.cell
    document = cell.document
    summary = summarise_cell(cell.spec, cell.window, cell.requests)
    statuses: dict[str, int] = summary["statuses"]
    entry: dict[str, Any] = {
        "config": cell.config,
        "phase": cell.phase,
        "cell_id": cell.cell_id,
        "rate_per_s": cell.spec.rate_per_s,
        "input_tokens": cell.spec.input_tokens,
        "output_tokens": cell.spec.output_tokens,
        "usable": cell.usable,
        "verdict": document["verdict"],
        "reasons": document["reasons"],
        "flags": document["flags"],
        "n_window": summary["n_window"],
        "n_ok": summary["n_ok"],
        "n_dropped": statuses.get("dropped", 0),
        "n_failed": summary["n_window"] - summary["n_ok"] - statuses.get("dropped", 0),
        "statuses": statuses,
        "window_s": summary["window_s"],
        "requested_throughput_per_s": summary["requested_throughput_per_s"],
        "effective_throughput_per_s": summary["effective_throughput_per_s"],
        "throughput_ratio": summary["throughput_ratio"],
        "waiting_p50": cell.samples.waiting_p50,
        "running_p50": cell.samples.running_p50,
        "n_metrics_missed": cell.samples.n_missed,
        "cpu": document["cpu"],
        "health": document["health"],
        "step": _step_json(estimates, confidence),
    }
    for name in LATENCIES:
        entry[name] = {f"p{q:g}": estimates.latency(name, q).to_json(confidence) for q in PERCENTILES}
    if cell.phase == "a" and saturation is not None and cell.usable:
        entry["saturation_criteria"] = saturation.criteria[cell.spec.rate_per_s]
        entry["saturated"] = saturation.saturated(cell.spec.rate_per_s)
    return entry


def _step_json(estimates: CellEstimates, confidence: float) -> dict[str, Any]:
    table = estimates.cell.steps
    if estimates.steps_missing is not None or table is None:
        return {"available": False, "reason": estimates.steps_missing}
    return {
        "available": True,
        "n_steps": table.n,
        "n_empty": table.n_empty,
        "n_unjoined": table.n_unjoined,
        "torn": table.torn,
        **{
            name: {f"p{q:g}": estimates.step(name, q).to_json(confidence) for q in (50.0, 90.0)}
            for name in STEP_COLUMNS
        },
        "by_kind": _by_kind(table),
        "cdf": {
            "step_duration_us": np.quantile(table.step_duration_us, np.linspace(0, 1, CDF_POINTS)).tolist()
        },
    }


def _by_kind(table: StepTable) -> dict[str, Any]:
    """Decode-only, mixed and prefill-only steps apart; medians of a mixture depend on the mixture."""
    out = {}
    for kind, name in enumerate(KIND_NAMES):
        chosen = table.step_duration_us[table.kind == kind]
        out[name] = {
            "n": int(chosen.size),
            "step_duration_p50_us": float(np.median(chosen)) if chosen.size else None,
        }
    return out
