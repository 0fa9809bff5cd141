"""Measures one cell on a running engine: load, metrics samples, step records, verdict, one rename."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil
from msgspec import UNSET

from connector_tax.base import direct
from connector_tax.base.artifacts.cells import open_cell, publish_cell
from connector_tax.base.artifacts.layout import DEVICE_CLOCK, LOGS, CellFolder
from connector_tax.base.connector_off import EXTERNAL_QUERIES
from connector_tax.base.documents.cell import (
    About,
    CellDocument,
    ClockHealth,
    ClockPair,
    CpuUse,
    IdleUse,
    StepTotals,
)
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.host import Sample
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import bearing, target_of
from connector_tax.base.secrets import masked
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.steptime.share import (
    NO_RECORD,
    StepCount,
    clock_health,
    count_steps,
    cut,
    cut_clock,
    stand_ins,
)
from connector_tax.base.timer import asleep_ns, read_clock_pair
from connector_tax.base.units import NS_PER_S, s_to_ns
from connector_tax.run.engine.process import (
    LOG_TAIL_BYTES,
    RunningEngine,
    cpu_seconds,
    host_busy_seconds,
    rss_mib,
)
from connector_tax.run.engine.root_cause import error_in
from connector_tax.run.loadgen.cell import CellOutcome, measure_cell
from connector_tax.run.loadgen.coordinator import WorkerLost, WorkerPool
from connector_tax.run.measure.checks import cache_flags, prime_cache
from connector_tax.run.measure.failure import is_of_the_host, judge, refused
from connector_tax.run.sampler.sampler import SAMPLE_INTERVAL_S, scrape_once, scrape_patiently

# Errors that a living engine logged during a cell: the reason behind its HTTP 500s.


def log_sizes(engine: RunningEngine) -> dict[Path, int]:
    return {path: os.path.getsize(path) for path in _logs(engine)}


def error_since(engine: RunningEngine, sizes: dict[Path, int]) -> str | None:
    """Return the root cause among lines logged after ``sizes``; None if no line mentions an error."""
    new_text = "\n".join(line for path in _logs(engine) for line in _new_lines(path, sizes.get(path, 0)))
    return error_in(masked(new_text))


def _logs(engine: RunningEngine) -> list[Path]:
    log_paths = [engine.request.folder / name for name in LOGS]
    return [path for path in log_paths if path.exists()]


def _new_lines(path: Path, start: int) -> list[str]:
    with open(path, "rb") as handle:
        handle.seek(max(start, os.path.getsize(path) - LOG_TAIL_BYTES))
        return handle.read().decode(errors="replace").splitlines()


# Hangs: tell an engine that lives and answers nobody from an overloaded one.

# A step takes milliseconds, and up to about ten seconds with a new shape.
HUNG_AFTER_S = 60.0
PROMPT_TOKENS = 8
# Also seen behind a growing queue, where the client gives up requests in flight.
UNANSWERED = ("timeout", "aborted")


def hangs(engine: RunningEngine, spec: CellSpec, requests: list[RequestRecord]) -> str | None:
    """Return why an engine that left requests unanswered counts as dead; None if it answers one now.

    No other client may send requests meanwhile.
    """
    if not any(request.status in UNANSWERED for request in requests):
        return None
    rng = stream(time.monotonic_ns(), "hanging")
    prompt = rng.integers(spec.token_id_low, spec.token_id_high, PROMPT_TOKENS, dtype=np.int64).tolist()
    body = {"model": engine.model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    try:
        with direct.Client(
            base_url=engine.base_url, headers=engine.headers, timeout_s=HUNG_AFTER_S
        ) as client:
            client.post("/v1/completions", json=body)
    except httpx.TimeoutException:
        return (
            f"it hangs: it gave no token within {HUNG_AFTER_S:g} s though nobody else asked;"
            f" {engine.job_failures()}"
        )
    except httpx.HTTPError:
        return None  # refused or reset: an answer, or a death that is checked elsewhere
    return None


# The engine's queue during a cell, and after a cell that was ended behind it.

# vLLM drops a request within a step or two after its client is gone; 256 of them within seconds.
IDLE_WITHIN_S = 60.0
IDLE_POLL_S = 0.5


class QueueTail:
    """Yields the samples that the sampler has written since the last call.

    Each is (monotonic ns, requests waiting in the engine). An unfinished line is read once it is whole;
    failed or torn samples are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Skip samples of the launch's earlier cells.
        self._offset = path.stat().st_size if path.exists() else 0

    def __call__(self) -> Iterator[tuple[int, float]]:
        if not self._path.exists():
            return
        with open(self._path, "rb") as handle:
            handle.seek(self._offset)
            lines = handle.read()
        complete_lines = lines[: lines.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        for line in complete_lines.splitlines():
            try:
                sample = msgspec.json.decode(line, type=Sample)
            except ValueError:  # the sampler was killed, or the disk full, within this line
                continue
            n_waiting = (sample.values or {}).get("num_requests_waiting") if sample.ok else None
            if n_waiting is not None:
                yield sample.t_ns, n_waiting


def wait_idle(base_url: str) -> bool:
    """Wait until the engine has no requests; return False on time-out or without an answer."""
    deadline = time.monotonic() + IDLE_WITHIN_S
    while time.monotonic() < deadline:
        try:
            values = scrape_once(base_url)
        except OSError:
            time.sleep(IDLE_POLL_S)  # slow behind the queue, or dead, which the cell reports
            continue
        if not values.get("num_requests_running") and not values.get("num_requests_waiting"):
            return True
        time.sleep(IDLE_POLL_S)
    return False


# If the engine does not answer, requests time out and the sampler writes a line every two to three seconds.
# Fewer samples mean that the sampler is gone.
MIN_SAMPLES_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A launched engine and everything that measures its cells.

    Attributes:
        pool: the load generator's processes, shared by all cells of a launch.
        raw_metrics: file with the sampler's ``/metrics`` samples.
        step_log: AGENTIC_STEP_LOG_PATH of the launch; None if step timing is off.
        about: plan, engine and code, for ``cell.json``.
        idle: the engine's CPU use before the first cell; see ``run.engine.process``.
        counters: the engine's counters that this connector raises.
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
        last_try: publish the cell as invalid if the engine dies in it.

    Returns:
        None, or the root cause if the engine died. The cell is then unpublished unless ``last_try``, and
        always if the host is to blame.

    Raises:
        LaunchError: the engine shares its port; the cell is unpublished.
    """
    engine, connector = bench.engine, bench.engine.request.connector
    engine.check_port()
    temporary = open_cell(folder)
    cache = None if spec.cached_tokens is None else prime_cache(spec, engine, lambda: _counters(engine) or {})
    counters_before, log_sizes_before = _counters(engine), log_sizes(engine)
    cpu_before = _Spent.by_now(engine)
    clock, asleep_before_ns = read_clock_pair(), asleep_ns()
    try:
        outcome = _run_load(spec, bench)
    except WorkerLost as error:
        print(f"{error} It is replaced, and the cell begins again.", file=sys.stderr, flush=True)
        outcome = _run_load(spec, bench)
    if outcome.window.overloaded:
        # Abandoned requests must be gone before the next cell.
        wait_idle(engine.base_url)
    counters_after = _counters(engine)
    engine.check_port()
    death = engine.death() or hangs(engine, spec, outcome.requests) or engine.death()
    if death is not None and (not last_try or is_of_the_host(death)):
        return death
    cpu = cpu_before.since(bench, outcome.session.client_cpu_s, died=death is not None)
    window, records = outcome.window, _records(bench, outcome.window, temporary)
    health = msgspec.structs.replace(
        outcome.health, device_clock=records.device or UNSET, stand_ins=records.stand_ins or UNSET
    )
    hits, external_hits, iterations = (
        _delta(counters_before, counters_after, counter)
        for counter in ("prefix_cache_hits", "external_prefix_cache_hits", "iterations")
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
        metrics_read=counters_before is not None and counters_after is not None,
        refused=None if death else refused(outcome.requests, error_since(engine, log_sizes_before)),
        steps_agree=steps is None or iterations is None or steps.agrees_with(iterations),
        others_share=None if cpu.others_share is UNSET else cpu.others_share,
        samples_missing=records.samples_missing,
        clock_fault=records.clock_fault,
        suspended_s=(asleep_ns() - asleep_before_ns) / NS_PER_S,
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
            counters_delta=_risen(counters_before, counters_after, bench.counters)
            if has_connector
            else UNSET,
            steps=None if steps is None else StepTotals(**asdict(steps), iterations=iterations),
            cpu=cpu,
            summary=summarise_cell(spec, window, outcome.requests),
        ),
    )
    return death


def _run_load(spec: CellSpec, bench: Bench) -> CellOutcome:
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
    """CPU seconds spent by the engine's processes and by the host at one moment."""

    engine_s: dict[str, float]
    host_s: float
    at_s: float

    @classmethod
    def by_now(cls, engine: RunningEngine) -> "_Spent":
        return cls(cpu_seconds(engine), host_busy_seconds(), time.monotonic())

    def since(self, bench: Bench, client_cpu_s: float, *, died: bool) -> CpuUse:
        """Return the use since then; nothing is known of a dead engine."""
        engine_s = {} if died else cpu_seconds(bench.engine)
        elapsed_s = time.monotonic() - self.at_s
        loaded_s = {
            role: used_s - self.engine_s[role] for role, used_s in engine_s.items() if role in self.engine_s
        }
        # The rest is the sampler, the kernel's threads, and other programs.
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
    """The engine's and the clock's records of a cell.

    Attributes:
        steps: None if step timing is off.
        samples_missing: whether the sampler was missing for most of the cell.
        device: health of a virtual GPU's clock; None without one, or without records.
        clock_fault: why the clock makes the cell invalid.
    """

    steps: StepCount | None
    samples_missing: bool
    device: ClockHealth | None
    clock_fault: str | None
    stand_ins: tuple[str, ...]


def _records(bench: Bench, window: CellWindow, cell: CellFolder) -> _Records:
    """Cut the cell's part out of the launch's files."""
    samples = cut([bench.raw_metrics], window.t0_ns, window.drained_ns, cell.metrics)
    expected_samples = (window.drained_ns - window.t0_ns) / s_to_ns(SAMPLE_INTERVAL_S)
    samples_missing = bench.raw_metrics.exists() and samples < MIN_SAMPLES_SHARE * expected_samples - 1
    if bench.step_log is not None or bench.has_clock:
        # The step recorder and a virtual GPU's clock flush at intervals; wait for the cell's last rows.
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
    cut_clock(engine.request.folder / DEVICE_CLOCK, window.t0_ns, window.drained_ns, cell.device_clock)
    return clock_health(cell.device_clock, window.window_start_ns, window.t_stop_ns)


def _delta(before: dict[str, float] | None, after: dict[str, float] | None, name: str) -> float | None:
    if before is None or after is None or name not in before or name not in after:
        return None
    return after[name] - before[name]


def _risen(
    before: dict[str, float] | None, after: dict[str, float] | None, preflight_counters: tuple[str, ...]
) -> dict[str, float]:
    """Return the connector's counter increases; a counter that vanished since preflight did not rise."""
    if not before or not after:
        return {}
    names = sorted({*preflight_counters, EXTERNAL_QUERIES} & {*preflight_counters, *after})
    return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}


def _counters(engine: RunningEngine) -> dict[str, float] | None:
    """Return all counters under canonical names; empty if the engine is dead, None if it is silent."""
    try:
        return scrape_patiently(engine.base_url, gone=lambda: engine.death() is not None, all_counters=True)
    except OSError:
        return None if engine.death_behind_silence() is None else {}
