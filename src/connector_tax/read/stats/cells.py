"""One cell to its numbers with intervals; the resamples are kept, so that taxes can be made of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypedDict

import numpy as np

from connector_tax.base.documents.reading import as_json
from connector_tax.base.parallel import Each
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import (
    Estimate,
    block_length,
    estimate_jointly,
    estimate_percentiles,
    pooled_length,
    step_block_length,
    unavailable,
)
from connector_tax.base.statistics.cell import in_window, latencies_ms, summarise_cell
from connector_tax.base.statistics.looks import look_factor, looks_of
from connector_tax.base.statistics.overload import UNAVAILABLE
from connector_tax.base.statistics.pairing import CommonArrivals
from connector_tax.base.statistics.resampling import Floats, draw_starts
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.steps import KIND_NAMES, StepTable
from connector_tax.read.ingest.tables import StepRecords
from connector_tax.read.stats.flags import flags_of
from connector_tax.read.stats.host import host_json
from connector_tax.read.stats.saturation import Saturation, overload_criteria
from connector_tax.read.stats.schedules import common_arrivals

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms", "ttft_from_send_ms")
PERCENTILES = (50.0, 90.0, 99.0)
STEP_PERCENTILES = (50.0, 90.0)
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
# Fewer requests behind random arrivals near capacity make one or two busy periods: intervals of the steps of one kind held the truth in 75 to 80 % of
# launches of 40 requests, in 89 to 92 % of those of 70 to 200 (tests/perf/small_subsets.py).
FEWEST_AT_RANDOM = 70


Estimates = dict[tuple[str, float], Estimate]


@dataclass(frozen=True, slots=True)
class StepEstimates:
    """What is kept of one cell's steps; the steps themselves are let go, since a campaign has millions.

    Attributes:
        columns: (column, percentile) -> estimate, microseconds; empty without step records.
        by_kind: (kind of step, percentile) -> step duration, microseconds.
        about: what ``aggregate.json`` says of them beside the estimates.
        missing: why there are none.
    """

    columns: Estimates
    by_kind: Estimates
    about: dict[str, Any]
    missing: str | None


@dataclass(frozen=True, slots=True)
class CellEstimates:
    """Estimates of one cell.

    Attributes:
        latencies: (name, percentile) -> estimate, milliseconds.
    """

    cell: CellData
    latencies: Estimates
    steps: StepEstimates

    def latency(self, name: str, q: float) -> Estimate:
        return self.latencies[name, q]

    def step(self, name: str, q: float) -> Estimate:
        return self.steps.columns.get((name, q)) or unavailable(self.steps.missing or "no step records")


@dataclass(frozen=True, slots=True)
class _Job:
    """What the estimates of one cell need, and no more: it travels to another process.

    Attributes:
        names: of the cell's own random stream.
        latencies: requests of the window, each of shape (n,), milliseconds.
        length: of their blocks; 0 where it is not known yet.
        factor: by how much a stopping rule makes intervals wider.
        confidence: of the intervals.
        common: latency -> how blocks are drawn together with the other cells of this schedule.
    """

    seed: int
    names: tuple[str, str, str]
    draws: int
    latencies: dict[str, Floats]
    steps: StepRecords | None
    factor: float
    confidence: float
    length: int = 0
    common: Mapping[str, CommonArrivals] = field(default_factory=dict)


def estimate_cells(
    cells: Sequence[CellData], seed: int, draws: int, each: Each = map, *, confidence: float
) -> Iterator[CellEstimates]:
    """Resample each cell's requests and steps, in blocks in time order; the same whatever ``each`` is.

    Requests of cells with the same schedule are resampled at the same arrivals.

    Args:
        confidence: of the intervals that are to be printed: few blocks spread too little, by how much depends on it.
    """
    jobs = _with_lengths(cells, [_job(cell, seed, draws, confidence) for cell in cells], each)
    jobs = [replace(job, common=c) for job, c in zip(jobs, common_arrivals(cells, seed), strict=True)]
    for cell, job, (latencies, steps) in zip(cells, jobs, each(_estimate, jobs), strict=True):
        if cell.window.overloaded:
            latencies = {key: unavailable(UNAVAILABLE, e.n) for key, e in latencies.items()}
        if (why := no_kinds(cell.spec.arrival, _n(job.latencies))) is not None:
            steps = replace(steps, by_kind={key: unavailable(why, e.n) for key, e in steps.by_kind.items()})
        yield CellEstimates(cell, latencies, steps)


def no_kinds(arrival: str, requests: int) -> str | None:
    """Why the steps of one kind have no interval in a cell of so many requests; None where they may have one."""
    if arrival not in ("poisson", "gamma") or requests >= FEWEST_AT_RANDOM:
        return None
    return f"{requests} requests at random arrivals; the steps of one kind need {FEWEST_AT_RANDOM}"


def _job(cell: CellData, seed: int, draws: int, confidence: float) -> _Job:
    chosen = in_window(cell.requests, cell.window)
    columns = {k: np.asarray(v, dtype=np.float64) for k, v in latencies_ms(chosen).items() if k in LATENCIES}
    names = (cell.config, cell.phase, cell.cell_id)
    factor = look_factor(cell.spec, confidence)
    return _Job(seed, names, draws, columns, cell.steps, factor, confidence)


def _with_lengths(cells: Sequence[CellData], jobs: list[_Job], each: Each) -> list[_Job]:
    """Cells of one rate and shape queue alike, whatever the configuration: their block lengths are told together.

    Those behind a growing queue do not, and have no percentiles.
    """
    own = list(each(_own_length, [job.latencies for job in jobs]))
    siblings: dict[tuple[Any, ...], list[int]] = {}
    for cell, length in zip(cells, own, strict=True):
        siblings.setdefault(_load(cell), []).append(length)
    return [
        replace(job, length=pooled_length(length, siblings[_load(cell)], _n(job.latencies)))
        for cell, job, length in zip(cells, jobs, own, strict=True)
    ]


def _own_length(latencies: dict[str, Floats]) -> int:
    n = _n(latencies)
    return block_length([c for c in latencies.values() if c.size == n])


def _n(latencies: dict[str, Floats]) -> int:
    return max((c.size for c in latencies.values()), default=0)


def _load(cell: CellData) -> tuple[Any, ...]:
    spec = cell.spec
    file = spec.sessions or spec.prompts
    shape = (spec.input_tokens, spec.output_tokens)
    return (spec.arrival, spec.rate_per_s, spec.concurrency, *shape, file, cell.window.overloaded)


def _estimate(job: _Job) -> tuple[Estimates, StepEstimates]:
    rng = stream(job.seed, "bootstrap", *job.names)
    wide = _Wide(factor=job.factor, confidence=job.confidence)
    steps = _steps(job.steps, rng, wide)
    return _resampled(job.latencies, PERCENTILES, job.draws, rng, wide, job.length, job.common), steps


class _Wide(TypedDict):
    """By how much a stopping rule makes intervals wider, and their confidence."""

    factor: float
    confidence: float


def _resampled(
    columns: dict[str, Floats],
    qs: tuple[float, ...],
    draws: int,
    rng: np.random.Generator,
    wide: _Wide,
    length: int | None = None,
    common: Mapping[str, CommonArrivals] | None = None,
) -> dict[tuple[str, float], Estimate]:
    """Columns of the same rows jointly; one that leaves rows out (TPOT of one-token outputs) by itself."""
    n, draw_of = _n(columns), common or {}
    same = {k: v for k, v in columns.items() if v.size == n}
    draw = draw_of.get(next(iter(same), ""), draw_starts)
    found = estimate_jointly(same, qs, draws, rng, length=length, draw=draw, **wide)
    for name, values in columns.items():
        if values.size < n:
            draw = draw_of.get(name, draw_starts)
            own = estimate_percentiles(values, qs, draws, rng, length=length, draw=draw, **wide)
            found |= {(name, q): estimate for q, estimate in own.items()}
    return found


def _steps(records: StepRecords | None, rng: np.random.Generator, wide: _Wide) -> StepEstimates:
    if records is None:
        return StepEstimates({}, {}, {}, "this cell has no step records")
    table = records.load(hooks=False)
    if table.n == 0:
        return StepEstimates({}, {}, {}, "no step with a token was recorded in this cell's window")
    columns: dict[str, Floats] = {name: getattr(table, name) for name in STEP_COLUMNS}
    known = {name: values[~np.isnan(values)] for name, values in columns.items()}
    length = step_block_length(table.n)
    by_kind: Estimates = {}
    for kind, name in enumerate(KIND_NAMES):
        chosen = table.step_duration_us[table.kind == kind]
        own = step_block_length(chosen.size)
        found = estimate_percentiles(chosen, STEP_PERCENTILES, STEP_DRAWS, rng, length=own, **wide)
        for q, estimate in found.items():
            by_kind[name, q] = estimate
    told = {name: values for name, values in known.items() if values.size}
    nothing = unavailable(table.unheard or "no step has a time of it")
    missing = {(name, q): nothing for name in known if name not in told for q in STEP_PERCENTILES}
    return StepEstimates(
        _resampled(told, STEP_PERCENTILES, STEP_DRAWS, rng, wide, length) | missing,
        by_kind,
        _about(table),
        missing=None,
    )


def _about(table: StepTable) -> dict[str, Any]:
    cdf = np.quantile(table.step_duration_us, np.linspace(0, 1, CDF_POINTS)).tolist()
    return {
        "n_steps": table.n,
        "n_empty": table.n_empty,
        "n_unjoined": table.n_unjoined,
        "torn": table.torn,
        "n_by_kind": [int((table.kind == kind).sum()) for kind in range(len(KIND_NAMES))],
        "cdf": {"step_duration_us": cdf},
    }


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
        "reasons": [*document["reasons"], *cell.left_out],
        "flags": flags_of(cell),
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
        "host": host_json(cell.samples.host),
        "prefix_cache_hit_share": _hit_share(cell),
        "cpu": as_json(document.cpu),
        "health": as_json(document.health),
        "step": _step_json(estimates, confidence),
    }
    if cell.window.looks is not None:
        entry["stopping"] = {
            "half_width": cell.spec.stop_half_width,
            "planned": list(looks_of(cell.spec)),
            "wider": look_factor(cell.spec, confidence),
            "looks": [asdict(look) for look in cell.window.looks],
            "reached": cell.window.half_width_reached,
        }
    for name in LATENCIES:
        entry[name] = {f"p{q:g}": estimates.latency(name, q).to_json(confidence) for q in PERCENTILES}
    if cell.phase == "a" and saturation is not None:
        entry["saturation_criteria"] = saturation.criteria[cell.spec.rate_per_s]
        entry["saturated"] = saturation.saturated(cell.spec.rate_per_s)
    else:
        # The reference rates were chosen at one shape; a longer one may be too much at the same rate. A run in Phase A of
        # what the campaign no longer lists is not judged against its half rate either.
        unknown = {"ttft_growth": None} if cell.phase == "a" else {}
        entry["saturation_criteria"] = overload_criteria(cell) | unknown
        entry["saturated"] = any(entry["saturation_criteria"].values())
    return entry


def _hit_share(cell: CellData) -> float | None:
    """Tokens found in the prefix cache, of all prompt tokens of the cell; None where either is unknown."""
    hits = cell.document.get("prefix_cache_hits_delta")
    asked = sum(r.prompt_tokens or 0 for r in cell.requests)
    return hits / asked if isinstance(hits, int | float) and asked else None


def _step_json(estimates: CellEstimates, confidence: float) -> dict[str, Any]:
    steps, about = estimates.steps, estimates.steps.about
    if steps.missing is not None:
        return {"available": False, "reason": steps.missing}
    return {
        "available": True,
        **{name: about[name] for name in ("n_steps", "n_empty", "n_unjoined", "torn")},
        **{
            name: {f"p{q:g}": estimates.step(name, q).to_json(confidence) for q in STEP_PERCENTILES}
            for name in STEP_COLUMNS
        },
        # Apart, since the median of a mixture depends on the mixture.
        "by_kind": {
            name: {
                "n": n,
                **{f"p{q:g}": steps.by_kind[name, q].to_json(confidence) for q in STEP_PERCENTILES},
            }
            for name, n in zip(KIND_NAMES, about["n_by_kind"], strict=True)
        },
        "cdf": about["cdf"],
    }
