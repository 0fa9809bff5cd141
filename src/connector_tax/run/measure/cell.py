"""One cell against a running engine: load, metrics samples, step records, verdict, one rename."""

import time
from dataclasses import asdict
from pathlib import Path

import msgspec
import psutil
from msgspec import UNSET

from connector_tax.base.artifacts.cells import open_cell, publish_cell
from connector_tax.base.artifacts.layout import DEVICE_CLOCK, CellFolder
from connector_tax.base.clock import read_clock_pair
from connector_tax.base.documents.cell import About, CellDocument, ClockPair, CpuUse, IdleUse, StepTotals
from connector_tax.base.documents.health import ClockHealth, Health
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.target import bearing, target_of
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.steptime import (
    NO_RECORD,
    clock_health,
    count_steps,
    cut,
    cut_clock,
    stand_ins,
    unheard_in,
)
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.engine.supervisor import KILL_WAIT_S
from connector_tax.run.engine.usage import cpu_seconds, host_busy_seconds, rss_mib
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.pool import WorkerPool
from connector_tax.run.measure.engine_log import error_since, log_sizes
from connector_tax.run.measure.failure import is_of_the_host
from connector_tax.run.measure.priming import cache_flags, prime_cache
from connector_tax.run.measure.queue import QueueTail, wait_idle
from connector_tax.run.measure.verdict import judge, refused
from connector_tax.run.sampler.sampler import scrape_patiently


def measure_one_cell(
    spec: CellSpec,
    folder: CellFolder,
    *,
    engine: RunningEngine,
    pool: WorkerPool,
    raw_metrics: Path,
    step_log: Path | None,
    document: About,
    idle: IdleUse,
    last_try: bool,
) -> str | None:
    """Measure ``spec`` and publish it at ``folder``.

    Args:
        pool: the load generator's processes, used again for every cell of a launch.
        raw_metrics: where the sampler of this launch writes ``/metrics``.
        step_log: AGENTIC_STEP_LOG_PATH of the launch; None where step timing is off.
        document: what ``cell.json`` holds about plan, engine and code.
        idle: what the engine took before the first cell; see ``run.engine.usage``.
        last_try: publish the cell as invalid if the engine dies in it, instead of leaving it open.

    Returns:
        None, or the root cause if the engine died. The cell is then unpublished unless ``last_try``; it is in any case where
        the host is to blame.

    Raises:
        LaunchError: the engine does not have its port to itself; the cell is unpublished.
    """
    engine.check_port()
    temporary = open_cell(folder)
    cache = None if spec.cached_tokens is None else prime_cache(spec, engine, lambda: _counters(engine) or {})
    before, logged = _counters(engine), log_sizes(engine)
    cpu_before, busy_before_s, start = cpu_seconds(engine), host_busy_seconds(), time.monotonic()
    clock = read_clock_pair()
    outcome = measure_cell(
        spec,
        target_of(engine.base_url, engine.model, headers=bearing(engine.headers.get("Authorization"))),
        pool=pool,
        should_abort=engine.death,
        queue=QueueTail(raw_metrics),
    )
    if outcome.window.overloaded:
        # What was given up must be gone before the next cell begins.
        wait_idle(engine.base_url)
    after = _counters(engine)
    engine.check_port()
    death = engine.death()
    if death is not None and (not last_try or is_of_the_host(death)):
        return death
    cpu_after, elapsed_s = {} if death else cpu_seconds(engine), time.monotonic() - start
    loaded_s = {k: v - cpu_before[k] for k, v in cpu_after.items() if k in cpu_before}
    # What is left is the sampler, the kernel's own threads, and whatever else runs here.
    others_s = host_busy_seconds() - busy_before_s - sum(loaded_s.values()) - outcome.health["client_cpu_s"]
    others_share = None if death else others_s / elapsed_s / (psutil.cpu_count() or 1)
    window = outcome.window
    cut([raw_metrics], window.t0_ns, window.drained_ns, temporary.metrics)
    has_clock = engine.request.engine.virtual_gpu is not None
    if step_log is not None or has_clock:
        # The engine's recorder, and a virtual GPU's clock, flush at intervals; wait until the last rows of the cell are out.
        time.sleep(engine.step_flush_s * 1.5)
    if step_log is not None:
        raw = sorted(step_log.parent.glob(f"{step_log.stem}.*.jsonl"))
        cut(raw, window.t0_ns, window.drained_ns, temporary.engine_step)
    device = _device_clock(engine, window, temporary) if has_clock else None
    put_in = tuple(stand_ins(engine.request.folder / DEVICE_CLOCK))
    health = msgspec.structs.replace(
        msgspec.convert(outcome.health, Health), device_clock=device or UNSET, stand_ins=put_in or UNSET
    )
    hits, external_hits, iterations = (
        _delta(before, after, name)
        for name in ("prefix_cache_hits", "external_prefix_cache_hits", "iterations")
    )
    connector = engine.request.connector
    steps = count_steps(temporary.engine_step) if step_log is not None else None
    has_connector = connector.kv_transfer_config is not None
    unheard = unheard_in(temporary.engine_step, steps) if has_connector and steps is not None else None
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
        hooks_heard=unheard is None,
        others_share=others_share,
        clock_fault=(NO_RECORD if device is None else device.fault) if has_clock else None,
        engine_death=death,
    )
    publish_cell(
        folder,
        outcome.requests,
        CellDocument(
            **msgspec.structs.asdict(document),
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
            steps=None if steps is None else StepTotals(**asdict(steps), iterations=iterations),
            cpu=CpuUse(
                **msgspec.structs.asdict(idle),
                loaded_s=loaded_s,
                others_share=others_share,
                elapsed_s=elapsed_s,
                rss_mib={} if death else rss_mib(engine),
            ),
            summary=summarise_cell(spec, window, outcome.requests),
        ),
    )
    return death


def _device_clock(engine: RunningEngine, window: CellWindow, cell: CellFolder) -> ClockHealth | None:
    """The clock's rows from T0 to the last request's end stay with the cell; its health is that of the window."""
    cut_clock(engine.request.folder / DEVICE_CLOCK, window.t0_ns, window.drained_ns, cell.device_clock)
    return clock_health(cell.device_clock, window.window_start_ns, window.t_stop_ns)


def _delta(before: dict[str, float] | None, after: dict[str, float] | None, name: str) -> float | None:
    if before is None or after is None or name not in before or name not in after:
        return None
    return after[name] - before[name]


def _counters(engine: RunningEngine) -> dict[str, float] | None:
    """What the engine exports under canonical names; nothing once it has died, None where it lives and does not answer."""
    try:
        return scrape_patiently(engine.base_url, gone=lambda: engine.death() is not None)
    except OSError:
        # A dead engine refuses connections before its supervisor has ended what is left of it.
        died = engine.death(within_s=engine.request.engine.stop_grace_s + KILL_WAIT_S) is not None
        return {} if died else None
