"""Simulates a whole campaign in virtual time, several runs in parallel."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from connector_tax.base.artifacts.cells import open_cell, publish_cell, read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config import CampaignConfig, EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.cell import (
    About,
    CellDocument,
    ClockPair,
    CpuUse,
    Health,
    RunConfig,
    SummaryFile,
)
from connector_tax.base.documents.identity import CodeVersion, EngineDiff, EngineIdentity, Settings
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.receipt import Decision, PreflightStatus
from connector_tax.base.errors import AnalysisError
from connector_tax.base.files import append_lines, read_document, write_json, write_text
from connector_tax.base.parallel import begin_in_pool
from connector_tax.base.plan import (
    campaign_document,
    cells_of,
    launch_spec,
    run_order,
    spec_hash,
    until_overload,
)
from connector_tax.base.plan.duration import (
    GAP_S,
    LAUNCH_S,
    RELEASE_S,
    answers_s,
    asked_in_preflight_s,
    expected_run_s,
)
from connector_tax.base.plan.estimate import Expected, batched_tokens, estimated_rates, model_file
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.host import EngineCosts, Sample
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.seeds import derive_seed
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.steptime.writer import header_line
from connector_tax.base.units import NS_PER_S, s_to_ns
from connector_tax.base.vllm_model.costs import ConnectorCosts, load_cost_model
from connector_tax.base.vllm_model.model import EngineModel, idle_request_s
from connector_tax.run.emulator.steplog import Modelled
from connector_tax.run.engine.virtual_gpu import kv_blocks, step_costs
from connector_tax.run.rehearsal.cell import SimulatedCell, simulate_cell

# Write a simulated run's files in the form of a measured one, so the analysis treats both alike.

IDENTITY = EngineIdentity(
    kind="emulator",
    versions={"emulator": True, "virtual_time": True},
    packages=(),
    gpu=(),
    host={"virtual": True},
)
CODE = CodeVersion(connector_tax="rehearsal", loadgen_sha256="virtual-time")


def write_preflight(
    folder: CampaignFolder, config: CampaignConfig, plain: tuple[EngineCosts, ConnectorCosts]
) -> None:
    """Write a preflight that includes every configuration, with plain's modelled prompt times.

    Args:
        plain: the costs of plain.
    """
    costs = plain[0]
    batched = batched_tokens(config)
    lengths = sorted(
        {*config.phase_b_input_tokens, config.phase_a_shape.input_tokens}
        | {shape.input_tokens for shape in config.phase_b_prime.shapes}
    )
    prompt_s = {
        str(n): idle_request_s(*plain, prompt=n, max_tokens=1, max_num_batched_tokens=batched)
        for n in lengths
    }
    included = Decision("include", launch=UNSET, prompt_s=UNSET, token_s=UNSET)
    plain_too = Decision("include", launch=UNSET, prompt_s=prompt_s, token_s=UNSET)
    status = PreflightStatus(
        step_timing_available=True,
        engine=IDENTITY.versions,
        configs={c.id: plain_too if c.id == "plain" else included for c in config.connectors},
    )
    write_json(folder.preflight_status, status)
    diff = EngineDiff(
        campaign=config.campaign,
        plain=_settings(costs, batched),
        configs={c.id: {} for c in config.connectors},  # no connector of the model changes a setting
    )
    write_json(folder.engine_diff, diff)
    for connector in config.connectors:
        write_text(folder.preflight / f"verify_{connector.id}.log", "virtual time: nothing was launched\n")


def _settings(costs: EngineCosts, batched: int) -> Settings:
    """Return the settings that such an engine would report, under vLLM's names."""
    return {
        "scheduler_config.max_num_seqs": costs.max_num_seqs,
        "scheduler_config.max_num_batched_tokens": batched,
        "cache_config.num_gpu_blocks": costs.kv_blocks,
        "cache_config.block_size": costs.block_size,
    }


def write_not_needed(run: RunFolder, campaign: str, reason: str) -> None:
    write_receipt(run, campaign=campaign, status="not_needed", reason=reason)


def write_run(
    run: RunFolder,
    config: CampaignConfig,
    costs: tuple[EngineCosts, ConnectorCosts],
    cells: Iterator[tuple[CellSpec, SimulatedCell]],
) -> None:
    """Write cells as they come, then the files beside them and the receipt."""
    about = About(
        campaign=config.campaign,
        connector=run.connector_id,
        phase=run.phase,
        launch=launch_spec(config, run.connector_id),
        engine=IDENTITY,
        code=CODE,
    )
    written_specs = []
    for spec, cell in cells:
        _write_cell(run, config, costs, spec, cell, about)
        written_specs.append(spec)
    write_json(run.config, RunConfig(**asdict(about), cells=tuple(written_specs)))
    write_text(run.launch_sh, "#!/usr/bin/env bash\n# Rehearsed in virtual time; nothing was launched.\n")
    write_text(run.stdout, "rehearsed in virtual time\n")
    write_text(run.stderr, "")
    write_text(run.env, "# identity\n" + json.dumps(msgspec.to_builtins(IDENTITY), indent=2) + "\n")
    documents = [read_cell(run.cell(s.cell_id)) for s in written_specs]
    write_json(
        run.summary,
        SummaryFile(cells={document.cell_id: document.summary for document in documents if document.summary}),
    )
    write_receipt(
        run,
        campaign=config.campaign,
        status="measured",
        cell_ids=[s.cell_id for s in written_specs],
        step_timing_available=True,
        engine=IDENTITY,
    )


def _write_cell(
    run: RunFolder,
    config: CampaignConfig,
    costs: tuple[EngineCosts, ConnectorCosts],
    spec: CellSpec,
    cell: SimulatedCell,
    about: About,
) -> None:
    folder = run.cell(spec.cell_id)
    temporary = open_cell(folder)
    append_lines(temporary.metrics, _metrics_lines(cell))
    append_lines(
        temporary.engine_step, _step_lines(cell, costs, config.connector(run.connector_id).kv_transfer_config)
    )
    publish_cell(
        folder,
        cell.requests,
        CellDocument(
            **asdict(replace(about, attempt=1, spec_hash=spec_hash(config, run.connector_id, spec))),
            cell_id=spec.cell_id,
            spec=spec,
            window=cell.window,
            clock=ClockPair(monotonic_ns=cell.window.t0_ns, utc_ns=cell.window.t0_ns),
            health=Health(virtual=True, client_limited=False),
            verdict="valid",
            reasons=(),
            flags=cell.window.flags,
            prefix_cache_hits_delta=0.0,
            cpu=CpuUse(loaded_s={}, elapsed_s=0.0, idle_share={}, spinning=(), rss_mib={}),
            summary=summarise_cell(spec, cell.window, cell.requests),
        ),
    )


def _metrics_lines(cell: SimulatedCell) -> Iterator[str]:
    for t_ns, running, waiting in cell.samples:
        values = {"num_requests_running": running, "num_requests_waiting": waiting, "prefix_cache_hits": 0.0}
        yield Sample(t_ns=t_ns, ok=True, values=values).line


def _step_lines(
    cell: SimulatedCell, costs: tuple[EngineCosts, ConnectorCosts], kv_transfer_config: Foreign | None
) -> Iterator[str]:
    engine, connector = costs
    for process in ("scheduler", "worker") if kv_transfer_config else ("scheduler",):
        yield header_line(
            process=process, pid=1, monotonic_ns=0, utc_ns=0, engine_version="embedded-engine"
        ).rstrip("\n")
    modelled = Modelled(1, engine, (connector,) if kv_transfer_config else ())
    previous_t_ns = None
    for index, (t_ns, step) in enumerate(cell.steps):
        for row in modelled.rows(index, t_ns, previous_t_ns, step):
            yield row.line.rstrip("\n")
        previous_t_ns = t_ns


def clocked_costs(engine: EngineConfig, base: EngineCosts) -> EngineCosts:
    """Return the costs of a virtual GPU's steps, which have no jitter.

    Args:
        base: the host's costs.

    Raises:
        ConfigError: the step time cannot be computed for this model; carries the remedy.
    """
    costs = step_costs(engine)
    assert costs is not None
    return replace(
        base,
        **asdict(costs),
        jitter_cv=0.0,
        kv_blocks=kv_blocks(engine, base.block_size) or base.kv_blocks,
        max_num_seqs=int(engine.args.get("max_num_seqs") or base.max_num_seqs),
    )


DATE = "2000-01-01"
GAP_NS = s_to_ns(GAP_S)


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The time of one phase on the real engine, with launches and releases.

    Attributes:
        phase: ``preflight`` counts as one.
        asked_s: per launched configuration: cells, drains, accuracy pass, and preflight's requests.
        launch_s: per launch, with its release.
        overloaded_s: part of it in cells that ended behind a growing queue.
    """

    phase: Phase
    asked_s: Mapping[str, float]
    launch_s: float
    overloaded_s: float = 0.0

    @property
    def runs(self) -> int:
        return len(self.asked_s)

    @property
    def cells_s(self) -> float:
        return sum(self.asked_s.values())

    @property
    def overhead_s(self) -> float:
        return self.runs * self.launch_s

    @property
    def total_s(self) -> float:
        return self.cells_s + self.overhead_s

    @property
    def run_s(self) -> dict[str, float]:
        return {connector_id: s + self.launch_s for connector_id, s in self.asked_s.items()}


def preflight_s(times: Sequence[PhaseTime]) -> float:
    """Return preflight's time; it launches configurations in sequence, and everything else waits for it."""
    return sum(t.total_s for t in times if t.phase == "preflight")


def measuring_s(times: Sequence[PhaseTime]) -> dict[Phase, dict[str, float]]:
    return {t.phase: t.run_s for t in times if t.phase != "preflight"}


def rehearse(
    config: CampaignConfig, results: Path, *, seed: int = 0, processes: int | None = None
) -> tuple[Path, list[PhaseTime]]:
    """Simulate every run of ``config`` and write its artifacts under ``<campaign>-rehearsed``.

    Args:
        seed: changes the step jitter, not the schedules.
        processes: runs simulated in parallel; 1 stays in this process, None is one per core.

    Returns:
        The campaign's folder, and each phase's real time.
    """
    real_kind = config.engine.kind
    folder = CampaignFolder(results / f"{config.campaign}-rehearsed")
    shutil.rmtree(folder.root, ignore_errors=True)
    costs_file, costs = model_file(config), config.engine.costs
    if config.engine.virtual_gpu is not None:
        costs = clocked_costs(config.engine, load_cost_model(costs_file)[0])
    engine = replace(
        config.engine, kind="emulator", model_file=str(costs_file), costs=costs, virtual_gpu=None
    )
    virtual = replace(config, campaign=folder.root.name, engine=engine)
    write_json(folder.campaign_file, campaign_document(virtual, date=DATE, created_utc=f"{DATE}T00:00:00Z"))
    expected = Expected.of(virtual)
    write_preflight(folder, virtual, expected.costs_of("plain"))
    times = [_preflight_time(virtual, expected, real_kind)]
    start_ns = 0
    with _executor(processes) as pool:
        for phase in config.phases:
            if phase in ("c", "d"):
                times.append(_planned_only(virtual, folder, phase, real_kind))
                continue
            # Runs are simulated in parallel, but their clocks are consecutive.
            slots = run_order(virtual, phase)
            slot_ns = s_to_ns(
                max(
                    expected_run_s(virtual, connector_id, phase, _rates(virtual, folder), most=True)
                    for connector_id in slots
                )
            )
            jobs = [
                pool.submit(
                    _rehearse_run, virtual, folder, connector_id, phase, seed, start_ns + index * slot_ns
                )
                for index, connector_id in enumerate(slots)
            ]
            start_ns += len(slots) * slot_ns
            run_times = {connector_id: job.result() for connector_id, job in zip(slots, jobs, strict=True)}
            measured_times = {
                connector_id: run_time for connector_id, run_time in run_times.items() if run_time.cells_s > 0
            }
            times.append(
                PhaseTime(
                    phase,
                    {connector_id: run_time.cells_s for connector_id, run_time in measured_times.items()},
                    LAUNCH_S[real_kind] + RELEASE_S[real_kind],
                    sum(run_time.overloaded_s for run_time in measured_times.values()),
                )
            )
            if phase == "a":
                _run_script("select_reference_rates.py", folder)
    return folder.root, times


def _executor(processes: int | None) -> Executor:
    if processes == 1:
        return ThreadPoolExecutor(1)
    # Spawn, not fork: the parent may hold threads of numpy's libraries.
    return ProcessPoolExecutor(
        processes or os.cpu_count(), multiprocessing.get_context("spawn"), initializer=begin_in_pool
    )


def _rates(config: CampaignConfig, folder: CampaignFolder) -> ReferenceRates:
    """Return the real rates once Phase A is rehearsed, else guesses."""
    if not folder.reference_rates.exists():
        return estimated_rates(config, None)
    return read_document(folder.reference_rates, ReferenceRatesFile).rates


def _preflight_time(config: CampaignConfig, expected: Expected, kind: str) -> PhaseTime:
    return PhaseTime("preflight", asked_in_preflight_s(config, expected), LAUNCH_S[kind] + RELEASE_S[kind])


@dataclass(frozen=True, slots=True)
class _RunTime:
    """Virtual seconds of one run."""

    cells_s: float
    overloaded_s: float


def _rehearse_run(
    config: CampaignConfig,
    folder: CampaignFolder,
    connector_id: str,
    phase: Phase,
    seed: int,
    start_ns: int,
) -> _RunTime:
    """Simulate one (configuration, phase); return its time without launch and release."""
    run = folder.run(DATE, connector_id, phase)
    file = read_document(folder.reference_rates, ReferenceRatesFile) if phase != "a" else None
    cells = cells_of(config, connector_id, phase, None if file is None else file.rates)
    if not cells or (phase == "b_prime" and file is not None and not file.b_prime_needed):
        write_not_needed(run, config.campaign, "no cells in this phase")
        return _RunTime(0.0, 0.0)
    expected = Expected.of(config)
    costs = expected.costs_of(connector_id)
    model = EngineModel(
        *costs,
        max_num_batched_tokens=batched_tokens(config),
        seed=derive_seed(seed, "engine", connector_id, phase),
    )
    now_ns = start_ns
    overloaded: dict[str, float] = {}

    def simulated() -> Iterator[tuple[CellSpec, SimulatedCell]]:
        nonlocal now_ns
        for spec in cells:
            if phase == "a" and spec not in until_overload(config, cells, lambda c: c.cell_id in overloaded):
                continue
            cell = simulate_cell(spec, model, now_ns)
            now_ns = cell.window.drained_ns + GAP_NS
            if cell.window.overloaded:
                overloaded[spec.cell_id] = (cell.window.drained_ns - cell.window.t0_ns) / NS_PER_S
            yield spec, cell

    write_run(run, config, costs, simulated())
    answers = answers_s(config, connector_id, phase, expected)
    return _RunTime((now_ns - start_ns) / NS_PER_S + answers, sum(overloaded.values()))


def _planned_only(config: CampaignConfig, folder: CampaignFolder, phase: Phase, kind: str) -> PhaseTime:
    """Return the planned time of conversations and closed loops, and record that they are not simulated."""
    rates = read_document(folder.reference_rates, ReferenceRatesFile).rates
    launch_overhead_s = LAUNCH_S[config.engine.kind] + RELEASE_S[config.engine.kind]
    asked_s = {}
    for connector_id in config.connector_ids:
        asked_s[connector_id] = expected_run_s(config, connector_id, phase, rates) - launch_overhead_s
        run = folder.run(DATE, connector_id, phase)
        write_not_needed(run, config.campaign, "neither conversations nor closed loops are simulated")
    return PhaseTime(phase, asked_s, LAUNCH_S[kind] + RELEASE_S[kind])


def analyse(root: Path) -> None:
    _run_script("analyze.py", CampaignFolder(root))


def _run_script(script: str, folder: CampaignFolder) -> None:
    """Run a script of the reading wing as a separate program, as the workflow does."""
    command = [sys.executable, str(PROJECT_ROOT / "scripts" / script), "--root", str(folder.root)]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        raise AnalysisError(f"{script} on the rehearsed campaign: {process.stderr.strip()}")
