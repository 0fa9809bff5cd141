"""One cell against a running engine: load, metrics samples, step records, verdict, one rename."""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import psutil
from msgspec import UNSET

from connector_tax.base.artifacts.cells import open_cell, publish_cell
from connector_tax.base.artifacts.layout import DEVICE_CLOCK, CellFolder
from connector_tax.base.clock import asleep_ns, read_clock_pair
from connector_tax.base.connector_off import EXTERNAL_QUERIES
from connector_tax.base.documents.cell import About, CellDocument, ClockPair, CpuUse, IdleUse, StepTotals
from connector_tax.base.documents.health import ClockHealth
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.target import bearing, target_of
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.steptime import (
    NO_RECORD,
    StepCount,
    clock_health,
    count_steps,
    cut,
    cut_clock,
    stand_ins,
)
from connector_tax.base.units import NS_PER_S, s_to_ns
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.engine.usage import cpu_seconds, host_busy_seconds, rss_mib
from connector_tax.run.loadgen.cell import CellOutcome, measure_cell
from connector_tax.run.loadgen.coordinator import WorkerLost
from connector_tax.run.loadgen.pool import WorkerPool
from connector_tax.run.measure.engine_log import error_since, log_sizes
from connector_tax.run.measure.failure import is_of_the_host
from connector_tax.run.measure.hanging import hangs
from connector_tax.run.measure.priming import cache_flags, prime_cache
from connector_tax.run.measure.queue import QueueTail, wait_idle
from connector_tax.run.measure.verdict import judge, refused
from connector_tax.run.sampler.sampler import SAMPLE_INTERVAL_S, scrape_patiently

# Of an engine that does not answer at all there is a line every two to three seconds, when the question times out; fewer leaves a sampler that is gone.
MIN_SAMPLES_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A launched engine and all that its cells are measured with.

    Attributes:
        pool: the load generator's processes, used again for every cell of a launch.
        raw_metrics: where the sampler of this launch writes ``/metrics``.
        step_log: AGENTIC_STEP_LOG_PATH of the launch; None where step timing is off.
        about: what ``cell.json`` holds about plan, engine and code.
        idle: what the engine took before the first cell; see ``run.engine.usage``.
        counters: those of the engine that this connector moves.
    """

    engine: RunningEngine
    pool: WorkerPool
    raw_metrics: Path
    step_log: Path | None
    about: About
    idle: IdleUse
    counters: tuple[str, ...] = ()

    @property
    def has_clock(self) -> bool:
        return self.engine.request.engine.virtual_gpu is not None


def measure_one_cell(spec: CellSpec, folder: CellFolder, bench: Bench, *, last_try: bool) -> str | None:
    """Measure ``spec`` and publish it at ``folder``.

    Args:
        last_try: publish the cell as invalid if the engine dies in it, instead of leaving it open.

    Returns:
        None, or the root cause if the engine died. The cell is then unpublished unless ``last_try``; it is in any case where
        the host is to blame.

    Raises:
        LaunchError: the engine does not have its port to itself; the cell is unpublished.
    """
    engine, connector = bench.engine, bench.engine.request.connector
    engine.check_port()
    temporary = open_cell(folder)
    cache = None if spec.cached_tokens is None else prime_cache(spec, engine, lambda: _counters(engine) or {})
    before, logged = _counters(engine), log_sizes(engine)
    spent = _Spent.by_now(engine)
    clock, asleep = read_clock_pair(), asleep_ns()
    try:
        outcome = _loaded(spec, bench)
    except WorkerLost as lost:
        print(f"{lost} It is replaced, and the cell begins again.", file=sys.stderr, flush=True)
        outcome = _loaded(spec, bench)
    if outcome.window.overloaded:
        # What was given up must be gone before the next cell begins.
        wait_idle(engine.base_url)
    after = _counters(engine)
    engine.check_port()
    death = engine.death() or hangs(engine, spec, outcome.requests) or engine.death()
    if death is not None and (not last_try or is_of_the_host(death)):
        return death
    cpu = spent.since(bench, outcome.session.client_cpu_s, died=death is not None)
    window, records = outcome.window, _records(bench, outcome.window, temporary)
    health = msgspec.structs.replace(
        outcome.health, device_clock=records.device or UNSET, stand_ins=records.stand_ins or UNSET
    )
    hits, external_hits, iterations = (
        _delta(before, after, name)
        for name in ("prefix_cache_hits", "external_prefix_cache_hits", "iterations")
    )
    steps, has_connector = records.steps, connector.kv_transfer_config is not None
    verdict = judge(
        window,
        health,
        prefix_cache_hits_delta=hits,
        external_hits_delta=external_hits,
        has_connector=has_connector,
        hits_wanted=spec.sessions is not None,
        hits_faked=connector.ttft_is_no_tax is not None,
        metrics_read=before is not None and after is not None,
        refused=None if death else refused(outcome.requests, error_since(engine, logged)),
        steps_agree=steps is None or iterations is None or steps.agrees_with(iterations),
        others_share=None if cpu.others_share is UNSET else cpu.others_share,
        samples_missing=records.samples_missing,
        clock_fault=records.clock_fault,
        suspended_s=(asleep_ns() - asleep) / NS_PER_S,
        engine_death=death,
    )
    publish_cell(
        folder,
        outcome.requests,
        CellDocument(
            **msgspec.structs.asdict(bench.about),
            cell_id=spec.cell_id,
            spec=spec,
            window=window,
            clock=ClockPair(monotonic_ns=clock.monotonic_ns, utc_ns=clock.utc_ns),
            health=health,
            verdict=verdict.word,
            reasons=verdict.reasons,
            flags=(*verdict.flags, *(() if cache is None else cache_flags(cache))),
            cache=UNSET if cache is None else cache,
            prefix_cache_hits_delta=hits,
            external_prefix_cache_hits_delta=external_hits,
            counters_delta=_risen(before, after, bench.counters) if has_connector else UNSET,
            steps=None if steps is None else StepTotals(**asdict(steps), iterations=iterations),
            cpu=cpu,
            summary=summarise_cell(spec, window, outcome.requests),
        ),
    )
    return death


def _loaded(spec: CellSpec, bench: Bench) -> CellOutcome:
    engine = bench.engine
    return measure_cell(
        spec,
        target_of(engine.base_url, engine.model, headers=bearing(engine.headers.get("Authorization"))),
        pool=bench.pool,
        should_abort=engine.death,
        queue=QueueTail(bench.raw_metrics),
    )


@dataclass(frozen=True, slots=True)
class _Spent:
    """CPU seconds that the engine's processes, and the whole host, had spent at a moment."""

    engine_s: dict[str, float]
    host_s: float
    at_s: float

    @classmethod
    def by_now(cls, engine: RunningEngine) -> "_Spent":
        return cls(cpu_seconds(engine), host_busy_seconds(), time.monotonic())

    def since(self, bench: Bench, client_cpu_s: float, *, died: bool) -> CpuUse:
        """What was spent between then and now; of an engine that died nothing is known."""
        engine_s = {} if died else cpu_seconds(bench.engine)
        elapsed_s = time.monotonic() - self.at_s
        loaded_s = {k: v - self.engine_s[k] for k, v in engine_s.items() if k in self.engine_s}
        # What is left is the sampler, the kernel's own threads, and whatever else runs here.
        others_s = host_busy_seconds() - self.host_s - sum(loaded_s.values()) - client_cpu_s
        return CpuUse(
            **msgspec.structs.asdict(bench.idle),
            loaded_s=loaded_s,
            others_share=None if died else others_s / elapsed_s / (psutil.cpu_count() or 1),
            elapsed_s=elapsed_s,
            rss_mib={} if died else rss_mib(bench.engine),
        )


@dataclass(frozen=True, slots=True)
class _Records:
    """What engine and clock wrote of a cell.

    Attributes:
        steps: None where step timing is off.
        samples_missing: whether the sampler was not there for most of the cell.
        device: of a virtual GPU; None where there is none, or where it left no record.
        clock_fault: why the cell is not one of this device.
    """

    steps: StepCount | None
    samples_missing: bool
    device: ClockHealth | None
    clock_fault: str | None
    stand_ins: tuple[str, ...]


def _records(bench: Bench, window: CellWindow, cell: CellFolder) -> _Records:
    """Cut the cell's part out of the launch's files."""
    samples = cut([bench.raw_metrics], window.t0_ns, window.drained_ns, cell.metrics)
    wanted = (window.drained_ns - window.t0_ns) / s_to_ns(SAMPLE_INTERVAL_S)
    samples_missing = bench.raw_metrics.exists() and samples < MIN_SAMPLES_SHARE * wanted - 1
    if bench.step_log is not None or bench.has_clock:
        # The engine's recorder, and a virtual GPU's clock, flush at intervals; wait until the last rows of the cell are out.
        time.sleep(bench.engine.step_flush_s * 1.5)
    steps = None
    if bench.step_log is not None:
        raw = sorted(bench.step_log.parent.glob(f"{bench.step_log.stem}.*.jsonl"))
        cut(raw, window.t0_ns, window.drained_ns, cell.engine_step)
        steps = count_steps(cell.engine_step)
    put_in = tuple(stand_ins(bench.engine.request.folder / DEVICE_CLOCK))
    if not bench.has_clock:
        return _Records(steps, samples_missing, None, None, put_in)
    device = _device_clock(bench.engine, window, cell)
    return _Records(steps, samples_missing, device, NO_RECORD if device is None else device.fault, put_in)


def _device_clock(engine: RunningEngine, window: CellWindow, cell: CellFolder) -> ClockHealth | None:
    """The clock's rows from T0 to the last request's end stay with the cell; its health is that of the window."""
    cut_clock(engine.request.folder / DEVICE_CLOCK, window.t0_ns, window.drained_ns, cell.device_clock)
    return clock_health(cell.device_clock, window.window_start_ns, window.t_stop_ns)


def _delta(before: dict[str, float] | None, after: dict[str, float] | None, name: str) -> float | None:
    if before is None or after is None or name not in before or name not in after:
        return None
    return after[name] - before[name]


def _risen(
    before: dict[str, float] | None, after: dict[str, float] | None, known: tuple[str, ...]
) -> dict[str, float]:
    """By how much the connector's counters rose. One that is gone since preflight did not rise."""
    if not before or not after:
        return {}
    names = sorted({*known, EXTERNAL_QUERIES} & {*known, *after})
    return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}


def _counters(engine: RunningEngine) -> dict[str, float] | None:
    """What the engine exports under canonical names, and its other counters; nothing once it has died, None where it lives and does not answer."""
    try:
        return scrape_patiently(engine.base_url, gone=lambda: engine.death() is not None, all_counters=True)
    except OSError:
        return None if engine.death_behind_silence() is None else {}
