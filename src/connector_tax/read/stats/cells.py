"""One cell to its numbers with intervals; the resamples are kept, so that taxes can be made of them.

Cells that were sent the same requests at the same times have their blocks drawn together.
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
from connector_tax.base.statistics.looks import look_factor
from connector_tax.base.statistics.pairing import CommonArrivals
from connector_tax.base.statistics.resampling import Floats, Ints, draw_starts
from connector_tax.base.steptime.columns import read_step_columns
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.steps import DECODE_ONLY, KIND_NAMES, StepRecords
from connector_tax.read.stats import phases

Seqs = dict[str, Ints]


def common_arrivals(cells: Sequence[CellData], seed: int) -> list[dict[str, CommonArrivals]]:
    """Of each cell: latency -> how its blocks are drawn; nothing where no schedule was fixed beforehand.

    In a closed loop and in a conversation a request leaves when another has ended, so request k of two cells
    has no more in common than any other.
    """
    seqs = [_seqs(cell) for cell in cells]
    ranges: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for cell, by_name in zip(cells, seqs, strict=True):
        ranges.setdefault(_schedule(cell), []).extend((int(s[0]), int(s[-1]) + 1) for s in by_name.values())
    axes = {
        names: (min(first for first, _ in found), max(last for _, last in found))
        for names, found in ranges.items()
        if found
    }
    return [
        {name: CommonArrivals(seed, _schedule(cell), axes[_schedule(cell)], s) for name, s in by_name.items()}
        for cell, by_name in zip(cells, seqs, strict=True)
    ]


def _schedule(cell: CellData) -> tuple[str, ...]:
    """Cells with the same names had the same arrivals: ``plan.cells`` gives them one seed, whatever the
    configuration."""
    return (cell.phase, cell.cell_id, cell.spec.arrival, str(cell.spec.seed))


def _seqs(cell: CellData) -> Seqs:
    """Latency -> ``seq`` of the requests in the window that have it."""
    if cell.spec.sessions is not None or cell.spec.rate_per_s == 0:
        return {}
    chosen = in_window(cell.requests, cell.window)
    everyone = np.array([r.seq for r in chosen], dtype=np.int64)
    found = {}
    for name, values in latencies_ms(chosen).items():
        # One-token outputs have no TPOT.
        whole = len(values) == len(chosen)
        seqs = (
            everyone
            if whole
            else np.array([r.seq for r in chosen if latencies_ms([r])[name]], dtype=np.int64)
        )
        if seqs.size:
            found[name] = seqs
    return found


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
# Steps are many and their percentiles narrow; these draws repeat a bound within about 3 % of the width.
STEP_DRAWS = 400
CDF_POINTS = 200
# Fewer requests behind random arrivals near capacity make one or two busy periods: intervals of the steps of
# one kind held the truth in 75 to 80 % of launches of 40 requests, in 89 to 92 % of those of 70 to 200
# (tests/perf/small_subsets.py).
FEWEST_AT_RANDOM = 70


Percents = dict[tuple[str, float], Estimate]


@dataclass(frozen=True, slots=True)
class StepEstimates:
    """What is kept of one cell's steps; the steps themselves are let go, since a campaign has millions.

    Attributes:
        document: as ``aggregate.json`` has them.
        columns: (column, percentile) -> estimate, microseconds; empty without step records.
        decode: the median duration of steps that only decode, microseconds.
    """

    document: Steps | NoSteps
    columns: Percents
    decode: Estimate

    @property
    def missing(self) -> str:
        """Why there are none; empty where there are."""
        return self.document.reason if isinstance(self.document, NoSteps) else ""


@dataclass(frozen=True, slots=True)
class CellEstimates:
    """Estimates of one cell.

    Attributes:
        latencies: (name, percentile) -> estimate, milliseconds. ``phases.NAME`` is there only behind Poisson
            arrivals.
    """

    cell: CellData
    latencies: Percents
    steps: StepEstimates

    def latency(self, name: str, q: float) -> Estimate:
        return self.latencies[name, q]

    def step(self, name: str, q: float) -> Estimate:
        return self.steps.columns.get((name, q)) or unavailable(self.steps.missing or "no_steps")


# (configuration, phase, cell id) -> what was found of it.
Estimates = Mapping[tuple[str, Phase, str], CellEstimates]


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
        sent: where phases of arrival may be averaged out.
        no_kinds: why the steps of one kind have no interval; None where they may have one.
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
    sent: phases.Sent | None = None
    no_kinds: str | None = None


def estimate_cells(
    cells: Sequence[CellData], seed: int, draws: int, each: Each = map, *, confidence: float
) -> Iterator[CellEstimates]:
    """Resample each cell's requests and steps, in blocks in time order; the same whatever ``each`` is.

    Requests of cells with the same schedule are resampled at the same arrivals.

    Args:
        confidence: of the intervals that are to be printed: few blocks spread too little, by how much depends
            on it.
    """
    jobs = _with_lengths(cells, [_job(cell, seed, draws, confidence) for cell in cells], each)
    jobs = [replace(job, common=c) for job, c in zip(jobs, common_arrivals(cells, seed), strict=True)]
    for cell, (latencies, steps) in zip(cells, each(_estimate, jobs), strict=True):
        if cell.window.overloaded:
            latencies = {key: unavailable("overloaded", e.n) for key, e in latencies.items()}
        yield CellEstimates(cell, latencies, steps)


def no_kinds(arrival: str, requests: int) -> str | None:
    """Why the steps of one kind have no interval in a cell of so many requests; None where they may have
    one."""
    if arrival not in ("poisson", "gamma") or requests >= FEWEST_AT_RANDOM:
        return None
    return "few_at_random"


def _job(cell: CellData, seed: int, draws: int, confidence: float) -> _Job:
    chosen = in_window(cell.requests, cell.window)
    columns: dict[str, Floats] = {
        k: np.asarray(v, dtype=np.float64) for k, v in latencies_ms(chosen).items() if k in LATENCIES
    }
    factor = look_factor(cell.spec, confidence)
    sent = phases.sent(cell.spec, cell.window, cell.requests)
    why = no_kinds(cell.spec.arrival, _n(columns))
    return _Job(seed, cell.key, draws, columns, cell.steps, factor, confidence, sent=sent, no_kinds=why)


def _with_lengths(cells: Sequence[CellData], jobs: list[_Job], each: Each) -> list[_Job]:
    """Cells of one rate and shape queue alike, whatever the configuration: their block lengths are told
    together.

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


def _estimate(job: _Job) -> tuple[Percents, StepEstimates]:
    rng = stream(job.seed, "bootstrap", *job.names)
    wide = _Wide(factor=job.factor, confidence=job.confidence)
    steps = _steps(job.steps, rng, wide, job.no_kinds)
    latencies = _resampled(job.latencies, PERCENTILES, job.draws, rng, wide, job.length, job.common)
    return latencies | _phase_averaged(job, wide), steps


def _phase_averaged(job: _Job, wide: "_Wide") -> Percents:
    if job.sent is None:
        return {}
    found = (
        "no_steps"
        if job.steps is None
        else phases.averaged(job.sent, read_step_columns(job.steps.source).steps)
    )
    rng = stream(job.seed, "phases", *job.names)
    draw = job.common.get("ttft_ms", draw_starts)
    n = job.latencies["ttft_ms"].size
    each = phases.estimate(found, n, (90.0,), job.draws, rng, length=job.length, draw=draw, **wide)
    return {(phases.NAME, q): estimate for q, estimate in each.items()}


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


def _steps(
    records: StepRecords | None, rng: np.random.Generator, wide: _Wide, why_no_kinds: str | None
) -> StepEstimates:
    table = None if records is None else records.load()
    if table is None or table.n == 0:
        missing = "no_steps" if table is None else "no_step_in_window"
        return StepEstimates(NoSteps(available=False, reason=missing), {}, unavailable(missing))
    every: dict[str, Floats] = {name: getattr(table, name) for name in STEP_COLUMNS}
    known = {name: own[~np.isnan(own)] for name, own in every.items()}
    kinds: dict[str, StepsOfKind] = {}
    decode = unavailable("no_decode_step")
    for kind, name in enumerate(KIND_NAMES):
        chosen = table.step_duration_us[table.kind == kind]
        length = step_block_length(chosen.size)
        found = estimate_percentiles(chosen, STEP_PERCENTILES, STEP_DRAWS, rng, length=length, **wide)
        if why_no_kinds is not None:
            found = {q: unavailable(why_no_kinds, e.n) for q, e in found.items()}
        decode = found[50.0] if kind == DECODE_ONLY else decode
        p50, p90 = (found[q].quantity(wide["confidence"]) for q in STEP_PERCENTILES)
        kinds[name] = StepsOfKind(n=int(chosen.size), p50=p50, p90=p90)
    told = {name: values for name, values in known.items() if values.size}
    nothing = unavailable("hooks_unknown" if table.unheard else "no_time")
    columns: Percents = {(name, q): nothing for name in STEP_COLUMNS for q in STEP_PERCENTILES}
    columns |= _resampled(told, STEP_PERCENTILES, STEP_DRAWS, rng, wide, step_block_length(table.n))
    numbers = {place: estimate.quantity(wide["confidence"]) for place, estimate in columns.items()}
    document = Steps(
        available=True,
        n_steps=table.n,
        n_empty=table.n_empty,
        n_unjoined=table.n_unjoined,
        torn=table.torn,
        **{n: StepPercentiles(p50=numbers[n, 50.0], p90=numbers[n, 90.0]) for n in STEP_COLUMNS},
        # Apart, since the median of a mixture depends on the mixture.
        by_kind=ByKind(**kinds),
        cdf=Cdf(
            step_duration_us=tuple(
                np.quantile(table.step_duration_us, np.linspace(0, 1, CDF_POINTS)).tolist()
            )
        ),
    )
    return StepEstimates(document, columns, decode)
