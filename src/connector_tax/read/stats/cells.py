"""Estimates one cell's numbers with intervals; resamples are kept for taxes.

Blocks of cells with the same requests at the same times are drawn together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np

from connector_tax.base.documents.aggregate import (
    ByKind,
    Cdf,
    Latency,
    NoSteps,
    Quantity,
    StepColumn,
    StepPercentiles,
    Steps,
    StepsOfKind,
)
from connector_tax.base.parallel import Each
from connector_tax.base.records.cell import Phase
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
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.interim import interim_factor
from connector_tax.base.statistics.resampling import CommonArrivals, Floats, Ints, draw_starts
from connector_tax.base.steptime.columns import read_step_columns
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.steps import DECODE_ONLY, KIND_NAMES, StepRecords
from connector_tax.read.stats import phases


def common_arrivals(cells: Sequence[CellData], seed: int) -> list[dict[str, CommonArrivals]]:
    """Return per cell latency -> how its blocks are drawn; empty without a fixed schedule.

    In closed loops and conversations a request leaves when another ends, so requests with the same number
    have nothing in common.
    """
    # Cells of one schedule had the same arrivals: ``plan.cells`` gives them one seed for all configurations.
    schedules = [(c.phase, c.cell_id, c.spec.arrival, str(c.spec.seed)) for c in cells]
    seqs_of_cells = [_seqs(cell) for cell in cells]
    axes: dict[tuple[str, ...], tuple[int, int]] = {}
    for schedule, seqs_by_latency in zip(schedules, seqs_of_cells, strict=True):
        for seqs in seqs_by_latency.values():
            first, last = int(seqs[0]), int(seqs[-1]) + 1
            low, high = axes.get(schedule, (first, last))
            axes[schedule] = min(low, first), max(high, last)
    return [
        {name: CommonArrivals(seed, schedule, axes[schedule], seqs) for name, seqs in seqs_by_latency.items()}
        for schedule, seqs_by_latency in zip(schedules, seqs_of_cells, strict=True)
    ]


def _seqs(cell: CellData) -> dict[str, Ints]:
    """Return latency -> ``seq`` of the window's requests that have it."""
    if cell.spec.sessions is not None or cell.spec.rate_per_s == 0:
        return {}
    chosen = in_window(cell.requests, cell.window)
    seqs_by_latency = {}
    for name, values in latencies_ms(chosen).items():
        # One-token outputs have no TPOT.
        all_have_it = len(values) == len(chosen)
        seqs = [r.seq for r in chosen if all_have_it or latencies_ms([r])[name]]
        if seqs:
            seqs_by_latency[name] = np.array(seqs, dtype=np.int64)
    return seqs_by_latency


LATENCIES: tuple[Latency, ...] = ("ttft_ms", "tpot_ms", "e2e_ms", "ttft_from_send_ms")
PERCENTILES = (50.0, 90.0, 99.0)
STEP_PERCENTILES = (50.0, 90.0)
STEP_COLUMNS: tuple[StepColumn, ...] = (
    "step_duration_us",
    "build_meta_us",
    "get_finished_us",
    "start_load_kv_us",
    "connector_total_us",
    "round_trip_us",
)
# Steps are many and their percentiles narrow; with these draws bounds repeat within about 3 % of the width.
STEP_DRAWS = 400
CDF_POINTS = 200
# With fewer requests, random arrivals near capacity give one or two busy periods: intervals of the steps of
# one kind covered the truth in 75 to 80 % of launches of 40 requests, in 89 to 92 % of those of 70 to 200
# (tests/perf/small_subsets.py).
FEWEST_AT_RANDOM = 70


Percents = dict[tuple[str, float], Estimate]


@dataclass(frozen=True, slots=True)
class StepEstimates:
    """The estimates of one cell's steps; the steps are dropped, since a campaign has millions.

    Attributes:
        document: as in ``aggregate.json``.
        columns: (column, percentile) -> estimate, microseconds; empty without step records.
        decode: median duration of decode-only steps, microseconds.
    """

    document: Steps | NoSteps
    columns: Percents
    decode: Estimate


@dataclass(frozen=True, slots=True)
class CellEstimates:
    """Estimates of one cell.

    Attributes:
        latencies: (name, percentile) -> estimate, milliseconds. ``phases.NAME`` exists only with Poisson
            arrivals.
    """

    cell: CellData
    latencies: Percents
    steps: StepEstimates

    def latency(self, name: str, q: float) -> Estimate:
        return self.latencies[name, q]

    def step(self, name: str, q: float) -> Estimate:
        document = self.steps.document
        missing = unavailable(document.reason if isinstance(document, NoSteps) else "no_steps")
        return self.steps.columns.get((name, q), missing)


# (configuration, phase, cell id) -> estimates.
Estimates = Mapping[tuple[str, Phase, str], CellEstimates]


class _Wide(TypedDict):
    """The widening of intervals by a stopping rule, and their confidence."""

    factor: float
    confidence: float


@dataclass(frozen=True, slots=True)
class _Job:
    """The minimal input for one cell's estimates, since it is sent to another process.

    Attributes:
        names: of the cell's own random stream.
        latencies: requests of the window, each of shape (n,), milliseconds.
        wide: widening by a stopping rule, and confidence.
        sent: set if phases of arrival can be averaged out.
        no_kinds: why the steps of one kind have no interval; else None.
        length: of the blocks of requests; 0 while unknown.
        common: latency -> how blocks are drawn together with the other cells of this schedule.
    """

    seed: int
    names: tuple[str, str, str]
    draws: int
    latencies: dict[str, Floats]
    steps: StepRecords | None
    wide: _Wide
    sent: phases.Sent | None
    no_kinds: str | None
    length: int = 0
    common: Mapping[str, CommonArrivals] = field(default_factory=dict)


def estimate_cells(
    cells: Sequence[CellData], seed: int, draws: int, each: Each = map, *, confidence: float
) -> Iterator[CellEstimates]:
    """Resample each cell's requests and steps, in blocks in time order; the same for any ``each``.

    Cells with the same schedule are resampled at the same arrivals.

    Args:
        confidence: of the printed intervals; the correction for few blocks depends on it.
    """
    jobs = _with_lengths(cells, [_job(cell, seed, draws, confidence) for cell in cells], each)
    jobs = [replace(job, common=c) for job, c in zip(jobs, common_arrivals(cells, seed), strict=True)]
    for cell, (latencies, steps) in zip(cells, each(_estimate, jobs), strict=True):
        if cell.window.overloaded:
            latencies = {key: unavailable("overloaded", e.n) for key, e in latencies.items()}
        yield CellEstimates(cell, latencies, steps)


def no_kinds(arrival: str, requests: int) -> str | None:
    """Return why a cell of so many requests has no interval for steps of one kind; else None."""
    if arrival not in ("poisson", "gamma") or requests >= FEWEST_AT_RANDOM:
        return None
    return "few_at_random"


def _job(cell: CellData, seed: int, draws: int, confidence: float) -> _Job:
    chosen = in_window(cell.requests, cell.window)
    columns: dict[str, Floats] = {
        k: np.asarray(v, dtype=np.float64) for k, v in latencies_ms(chosen).items() if k in LATENCIES
    }
    wide = _Wide(factor=interim_factor(cell.spec, confidence), confidence=confidence)
    sent = phases.sent(cell.spec, cell.window, cell.requests)
    why_no_kinds = no_kinds(cell.spec.arrival, _n(columns))
    return _Job(seed, cell.key, draws, columns, cell.steps, wide, sent, why_no_kinds)


def _with_lengths(cells: Sequence[CellData], jobs: list[_Job], each: Each) -> list[_Job]:
    """Choose block lengths together for cells of one rate and shape, which queue alike in all configurations.

    Cells behind a growing queue form a group of their own, and have no percentiles.
    """
    own_lengths = list(each(_own_length, [job.latencies for job in jobs]))
    loads = [_load(cell) for cell in cells]
    siblings: dict[tuple[Any, ...], list[int]] = {}
    for load, length in zip(loads, own_lengths, strict=True):
        siblings.setdefault(load, []).append(length)
    return [
        replace(job, length=pooled_length(length, siblings[load], _n(job.latencies)))
        for load, job, length in zip(loads, jobs, own_lengths, strict=True)
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


def _estimate(job: _Job) -> tuple[Percents, StepEstimates]:
    rng = stream(job.seed, "bootstrap", *job.names)
    steps = _steps(job.steps, rng, job.wide, job.no_kinds)
    latencies = _resampled(job.latencies, PERCENTILES, job.draws, rng, job.wide, job.length, job.common)
    return latencies | _phase_averaged(job), steps


def _phase_averaged(job: _Job) -> Percents:
    if job.sent is None:
        return {}
    averaged = (
        "no_steps"
        if job.steps is None
        else phases.averaged(job.sent, read_step_columns(job.steps.source).steps)
    )
    rng = stream(job.seed, "phases", *job.names)
    draw = job.common.get("ttft_ms", draw_starts)
    n = job.latencies["ttft_ms"].size
    estimates = phases.estimate(
        averaged, n, (90.0,), job.draws, rng, length=job.length, draw=draw, **job.wide
    )
    return {(phases.NAME, q): estimate for q, estimate in estimates.items()}


def _resampled(
    columns: dict[str, Floats],
    qs: tuple[float, ...],
    draws: int,
    rng: np.random.Generator,
    wide: _Wide,
    length: int,
    common: Mapping[str, CommonArrivals],
) -> Percents:
    """Resample columns of the same rows jointly, columns with fewer rows (one-token TPOT) alone."""
    n = _n(columns)
    full_columns = {k: v for k, v in columns.items() if v.size == n}
    estimates: Percents = {}
    for group in (full_columns, *({k: v} for k, v in columns.items() if v.size < n)):
        draw = common.get(next(iter(group), ""), draw_starts)
        estimates |= estimate_jointly(group, qs, draws, rng, length=length, draw=draw, **wide)
    return estimates


def percentiles(estimates: Mapping[float, Estimate], confidence: float) -> dict[str, Quantity]:
    """Return percentile name (``p50``, ``p90``, ...) -> quantity of ``aggregate.json``."""
    return {f"p{q:g}": estimate.quantity(confidence) for q, estimate in estimates.items()}


def _steps(
    records: StepRecords | None, rng: np.random.Generator, wide: _Wide, why_no_kinds: str | None
) -> StepEstimates:
    table = None if records is None else records.load()
    if table is None or table.n == 0:
        missing = "no_steps" if table is None else "no_step_in_window"
        return StepEstimates(NoSteps(available=False, reason=missing), {}, unavailable(missing))
    confidence = wide["confidence"]
    kinds: dict[str, StepsOfKind] = {}
    decode = unavailable("no_decode_step")
    for kind, name in enumerate(KIND_NAMES):
        chosen = table.step_duration_us[table.kind == kind]
        length = step_block_length(chosen.size)
        kind_percentiles = estimate_percentiles(
            chosen, STEP_PERCENTILES, STEP_DRAWS, rng, length=length, **wide
        )
        if why_no_kinds is not None:
            kind_percentiles = {q: unavailable(why_no_kinds, e.n) for q, e in kind_percentiles.items()}
        decode = kind_percentiles[50.0] if kind == DECODE_ONLY else decode
        kinds[name] = StepsOfKind(n=int(chosen.size), **percentiles(kind_percentiles, confidence))
    times_us: dict[str, Floats] = {name: getattr(table, name) for name in STEP_COLUMNS}
    known = {name: values for name, own in times_us.items() if (values := own[~np.isnan(own)]).size}
    missing_estimate = unavailable("hooks_unknown" if table.hooks_missing else "no_time")
    columns: Percents = {(name, q): missing_estimate for name in STEP_COLUMNS for q in STEP_PERCENTILES}
    columns |= _resampled(known, STEP_PERCENTILES, STEP_DRAWS, rng, wide, step_block_length(table.n), {})
    by_name = {name: {q: columns[name, q] for q in STEP_PERCENTILES} for name in STEP_COLUMNS}
    document = Steps(
        available=True,
        n_steps=table.n,
        n_empty=table.n_empty,
        n_unjoined=table.n_unjoined,
        torn=table.torn,
        **{name: StepPercentiles(**percentiles(own, confidence)) for name, own in by_name.items()},
        # By kind, since the median of a mixture depends on the mixture.
        by_kind=ByKind(**kinds),
        cdf=Cdf(
            step_duration_us=tuple(
                np.quantile(table.step_duration_us, np.linspace(0, 1, CDF_POINTS)).tolist()
            )
        ),
    )
    return StepEstimates(document, columns, decode)
