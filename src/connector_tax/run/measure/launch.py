"""Prepares a launch for its cells: a warm engine, the load generator's processes, the sampler."""

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from msgspec.structs import asdict, replace

from connector_tax import __version__
from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import RUN_FILES, VIRTUAL_GPU, CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_launches, timed_launch
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.cell import About, IdleUse, RunConfig
from connector_tax.base.documents.identity import (
    CodeVersion,
    EngineDiff,
    EngineIdentity,
    EngineSettings,
    Settings,
    differences,
    kinds_of,
    other_versions,
)
from connector_tax.base.documents.receipt import Decision, PreflightStatus
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import read_document, read_whole, write_json, write_text
from connector_tax.base.imports import closure, sha256_of_code
from connector_tax.base.plan import launch_spec
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.plan.start import cells_there, state_of
from connector_tax.base.records.cell import CellSpec, Phase, phase_word
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.secrets import masked
from connector_tax.base.units import duration_text, is_number
from connector_tax.run.engine.gpus import Cards, Slot, slots_of
from connector_tax.run.engine.identity import engine_identity, env_text
from connector_tax.run.engine.process import (
    LaunchError,
    LaunchRequest,
    RunningEngine,
    idle_use,
    running_engine,
)
from connector_tax.run.engine.settings import (
    matching_flags,
    pinned,
    resolved_settings,
    step_timing_of,
    transports_of,
)
from connector_tax.run.engine.supervised import clean_logs
from connector_tax.run.loadgen.coordinator import WorkerPool, worker_pool
from connector_tax.run.loadgen.descriptors import Core, Placement, discover, place
from connector_tax.run.measure.checks import warm_up
from connector_tax.run.measure.time_left import TimeLimit
from connector_tax.run.sampler.sampler import SAMPLE_INTERVAL_S, sampling

# Matched baselines: plain vLLM with the engine settings that a connector's launch ended up with.


def with_matched_launches(config: CampaignConfig, preflight: PreflightStatus) -> CampaignConfig:
    return replace(
        config,
        connectors=tuple(
            _launched(connector, preflight.configs.get(connector.id)) for connector in config.connectors
        ),
    )


def _launched(connector: ConnectorSpec, decision: Decision | None) -> ConnectorSpec:
    if connector.matches is None or decision is None or not decision.launch:
        return connector
    return replace(connector, extra_args=decision.launch.extra_args, env=decision.launch.env)


def matched_launch(folder: CampaignFolder, connector: ConnectorSpec) -> tuple[ConnectorSpec | None, str]:
    """Return the spec to launch and what was matched, or None and the reason for no launch."""
    assert connector.matches is not None
    plain_settings, matched_settings = settings_of(folder, "plain"), settings_of(folder, connector.matches)
    if not plain_settings or not matched_settings:
        return None, "the engine's settings are not known (no step records from preflight)"
    changes = differences(plain_settings, matched_settings)
    if not changes:
        return (
            None,
            f"{connector.matches} runs with plain's engine settings, so plain is its matched baseline",
        )
    arguments, environment, unmatched = matching_flags(changes)
    if not arguments and not environment:
        return None, f"no flag sets what {connector.matches} changes: {', '.join(unmatched)}"
    arguments = [*matching_flags(pinned(plain_settings, matched_settings))[0], *arguments]
    description = f"as {connector.matches}: {', '.join(sorted(changes))}"
    if unmatched:
        description += f"; not matched: {', '.join(unmatched)}"
    return replace(connector, extra_args=tuple(arguments), env=environment), description


def settings_of(folder: CampaignFolder, connector_id: str) -> Settings:
    path = folder.engine_settings(connector_id)
    return read_document(path, EngineSettings).settings if path.is_file() else {}


def engine_diff(config: CampaignConfig, folder: CampaignFolder) -> EngineDiff:
    """Return ``engine_diff.json``: each configuration's differences from plain; None if not seen."""
    plain = settings_of(folder, "plain")
    settings = {connector.id: settings_of(folder, connector.id) for connector in config.connectors}
    configs = {
        connector_id: differences(plain, connector_settings) if connector_settings and plain else None
        for connector_id, connector_settings in settings.items()
    }
    return EngineDiff(campaign=config.campaign, plain=plain, configs=configs)


# Progress: one line per event of a campaign, on stderr and in logs/progress.log.


@dataclass(frozen=True, slots=True)
class Progress:
    """Reports the campaign's progress; all state is on disk."""

    folder: CampaignFolder
    config: CampaignConfig
    date: str
    connector_id: str
    phase: Phase

    def say(self, event: str) -> None:
        """Print ``... phase A plain (3 of 24 runs done, about 4 h 10 min left): cell r4_4096x256 ...``."""
        n_done, left_s = self._done_and_left_s()
        n_runs = sum(len(self.config.members(phase)) for phase in self.config.phases)
        line = (
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} phase {phase_word(self.phase)} {self.connector_id} "
            f"({n_done} of {n_runs} runs done, about {duration_text(left_s)} left): {event}"
        )
        line = masked(line)
        print(line, file=sys.stderr, flush=True)
        log_path = self.folder.progress_log
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(log_path, "a", encoding="utf-8", errors="backslashreplace") as log_file:
                log_file.write(line + "\n")
        except OSError as error:
            # A log line on a full disk must not end a measurement; the next results file will.
            print(
                f"{log_path}: this line is not in it, it cannot be written ({error.strerror or error})",
                file=sys.stderr,
                flush=True,
            )

    def _done_and_left_s(self) -> tuple[int, float]:
        status = state_of(self.config, self.folder, self.date)

        def finished(phase: Phase, connector_id: str) -> Collection[str]:
            run = self.folder.run(self.date, connector_id, phase)
            try:
                return cells_there(self.config, run, status.rates)
            except OSError:
                # A run that restarts on another card removes its cells, which must not end this measurement.
                return ()

        left_s = expected_left_s(
            self.config, status.left, status.rates, status.ends_at_once, finished=finished
        )
        runs = sum(len(self.config.members(p)) for p in self.config.phases)
        return runs - sum(map(len, status.left.values())), left_s


# Identify the code that made a measurement.

# Entry points that send, stamp and sample; the rest follows from what they import and start.
LOAD_ENTRIES = (
    "connector_tax.run.loadgen.cell",
    "connector_tax.run.loadgen.worker",
    "connector_tax.run.loadgen.cell",
    "connector_tax.run.sampler.sampler",
)


@cache
def loadgen_sha256() -> str:
    """Return the SHA-256 over names and contents of all code that makes, times and samples the load."""
    return sha256_of_code(closure(*LOAD_ENTRIES))


def code_version() -> CodeVersion:
    return CodeVersion(connector_tax=__version__, loadgen_sha256=loadgen_sha256())


# Cores for each of several engines and its load generator: the same number each, none
# shared, on the card's NUMA node.

# Cores that differ by more are of two kinds, and each slot gets some of either.
ONE_KIND = 0.1


def share_of(
    cores: tuple[Core, ...], slot: int, n_slots: int, card_nodes: Sequence[int | None] = ()
) -> tuple[Core, ...]:
    """Return the cores of slot ``slot`` of ``n_slots``; all of them for a single slot.

    Args:
        card_nodes: NUMA node of each slot's first card; if one is unknown, slots are spread over the nodes.
    """
    if n_slots == 1 or not cores:
        return cores
    nodes = sorted({core.numa for core in cores})
    known_nodes = [node for node in card_nodes if node in nodes]
    node_of = (
        known_nodes
        if len(known_nodes) == n_slots
        else [nodes[k * len(nodes) // n_slots] for k in range(n_slots)]
    )
    # The same number for each slot, so that cells of different slots are comparable.
    cores_per_slot = min(sum(c.numa == node for c in cores) // node_of.count(node) for node in set(node_of))
    slots_on_node = [k for k in range(n_slots) if node_of[k] == node_of[slot]]
    node_cores = [core for core in cores if core.numa == node_of[slot]]
    index = slots_on_node.index(slot)
    if _differ(node_cores):
        fastest_first = sorted(node_cores, key=lambda core: (-core.performance, core.cpus))
        return tuple(
            sorted(fastest_first[index :: len(slots_on_node)][:cores_per_slot], key=lambda core: core.cpus)
        )
    return tuple(node_cores[index * cores_per_slot : (index + 1) * cores_per_slot])


def _differ(cores: Sequence[Core]) -> bool:
    speeds = [core.performance for core in cores]
    return max(speeds) - min(speeds) > ONE_KIND * max(speeds)


# A campaign continues with the engine it began with: the analysis leaves out cells of another one.


def refuse_another_engine(
    folder: CampaignFolder, config: CampaignConfig, run: RunFolder, engine: EngineIdentity
) -> None:
    """Refuse to continue a campaign with another engine.

    Args:
        engine: what would be launched now.

    Raises:
        ConfigError: a cell of this campaign was measured with other versions or another driver, or one of
            this phase on another card.
    """
    day = run.path.parent.name[:10]
    for other_run in folder.runs():
        cells = other_run.finished_cells()
        if not cells or not other_run.path.parent.name.startswith(f"{day}_"):
            continue
        try:
            earlier_engine = read_cell(cells[0]).engine
        except ArtifactError:
            continue  # the analysis reports it
        if mismatches := other_versions(engine, earlier_engine):
            raise ConfigError(
                f"campaign {config.campaign} was begun with another engine (now / in {other_run.path}):"
                f" {', '.join(mismatches)}. Give engine.python the interpreter, engine.container the image,"
                " runtime and mounts, and the host the driver that it was begun with; or give `campaign`"
                " another name."
            )
        cards, earlier_cards = (
            kinds_of(e.gpu) if config.engine.mixes_cards else list(e.gpu) for e in (engine, earlier_engine)
        )
        if other_run.phase == run.phase and earlier_cards != cards:
            raise ConfigError(
                f"phase {phase_word(run.phase)} was begun on {' and '.join(earlier_cards) or 'no card'}"
                f" ({other_run.path}), and would go on on {' and '.join(cards) or 'none'}. Its cells are"
                " compared with one another. Show the engine that card again (engine.gpu, engine.gpus or"
                " CUDA_VISIBLE_DEVICES), let cards of one kind be mixed (engine.mix_cards: true), or remove"
                " that phase's folders to have it measured anew."
            )


# Deaths per cell of an unfinished run, counted on disk, since each death ends a launch.


@dataclass(frozen=True, slots=True)
class Death:
    """An engine's death during a cell; ``cause`` as ``run.engine.root_cause`` words it."""

    phase: Phase
    cell_id: str
    cause: str


def deaths_file(run: RunFolder, cell: CellSpec) -> Path:
    return run.cells / f".{cell.cell_id}.deaths"


def deaths(run: RunFolder, cell: CellSpec) -> int:
    """Return how many launches died in ``cell``.

    Raises:
        ArtifactError: the file was edited.
    """
    path = deaths_file(run, cell)
    if not os.path.lexists(path):
        return 0
    text = read_whole(path).decode(errors="replace")
    if not is_number(text):
        raise ArtifactError(f"{path}: holds no number. Remove it; the cell then has two launches again.")
    return int(text)


def count_death(run: RunFolder, cell: CellSpec) -> None:
    write_text(deaths_file(run, cell), str(deaths(run, cell) + 1))


# A run: a (configuration, phase).


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the steps of one (configuration, phase) share.

    Attributes:
        slot: where its engines run.
        counters: engine counters that identify this connector, from preflight.
        deaths: of its engine while this process measured; grows.
        limit: when it must be over; None: no limit.
    """

    folder: CampaignFolder
    config: CampaignConfig
    run: RunFolder
    progress: Progress
    step_timing: bool
    slot: Slot
    deaths: list[Death] = field(default_factory=list)
    limit: TimeLimit | None = None
    counters: tuple[str, ...] = ()

    @property
    def cards(self) -> Cards:
        return self.slot.cards

    @property
    def connector_id(self) -> str:
        return self.run.connector_id


# Idle CPU is sampled this long before the first cell; a spinning helper thread shows at once.
IDLE_SAMPLE_S = {"vllm": 2.0, "virtual_gpu": 1.5, "emulator": 0.3}


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch whose engine serves and is warm.

    Attributes:
        about: plan, engine and code, for each cell's document.
    """

    engine: RunningEngine
    pool: WorkerPool
    about: About


@contextmanager
def launched(run: Run, pending: list[CellSpec]) -> Iterator[Launch]:
    """Yield a warm engine and the load generator's processes.

    Raises:
        LaunchError: the engine did not become ready.
    """
    config, connector = run.config, run.config.connector(run.connector_id)
    clean_logs(run.run.path)  # a killed launch could not
    identity = engine_identity(config.engine, run.cards)
    if len(config.engine.slots) > 1:
        identity = replace(identity, slot=run.cards.slot)
    refuse_another_engine(run.folder, config, run.run, identity)
    attempt = archive_earlier_attempt(run.run)
    if run.step_timing:
        step_timing_of(config.engine)  # an earlier version may have been installed since preflight
    about = About(
        campaign=config.campaign,
        connector=connector.id,
        phase=run.run.phase,
        launch=launch_spec(config, connector.id),
        engine=identity,
        code=code_version(),
    )
    write_json(run.run.config, RunConfig(**asdict(about), cells=tuple(pending)))
    write_text(run.run.env, env_text(config.engine, connector, identity, run.cards))
    run.progress.say(f"launching for {len(pending)} cells (attempt {attempt})")
    step_log = run.run.step_log if run.step_timing else None
    placement = _placement(run)
    request = LaunchRequest(
        engine=run.slot.engine,
        connector=connector,
        folder=run.run.path,
        step_log=step_log,
        cpus=placement.engine if placement is not None else (),
        cards=run.cards,
        place=run.slot.place,
        of=run.slot.of,
    )
    run.run.raw_metrics.parent.mkdir(parents=True, exist_ok=True)
    with (
        timed_launch(run.run.launches, attempt) as told_to_end,
        running_engine(request) as engine,
        worker_pool(config.cell.workers, placement) as pool,  # starts while the engine does
    ):
        try:
            about = replace(about, attempt=attempt, engine=_ready(run, engine, pending, identity))
            yield Launch(engine, pool, about)
        finally:
            told_to_end()


def _ready(
    run: Run, engine: RunningEngine, pending: list[CellSpec], identity: EngineIdentity
) -> EngineIdentity:
    """Wait until the engine serves, warm it up, and return ``identity`` with what its log adds.

    Raises:
        LaunchError: it did not become ready.
    """
    engine.wait_ready()
    _warm_up(run, engine, pending)
    log = engine.log_text()
    logged = transports_of(log)
    return replace(
        identity,
        transports=logged.transports,
        side_channels=logged.side_channels,
        settings=resolved_settings(engine.request.step_log, log),
    )


@contextmanager
def sampled(run: Run, engine: RunningEngine) -> Iterator[IdleUse]:
    """Run the sampler; yield the idle engine's CPU use."""
    with sampling(engine.base_url, run.run.raw_metrics, SAMPLE_INTERVAL_S, run.cards.sampled):
        yield idle_use(engine, IDLE_SAMPLE_S[run.config.engine.kind])


def _warm_up(run: Run, engine: RunningEngine, pending: list[CellSpec]) -> None:
    """Send the first request of each length outside every cell, so that no latency includes compilation.

    Raises:
        LaunchError: the engine died. Wrong answers are left to the cells, which count them.
    """
    lengths = tuple(cell.input_tokens for cell in pending if cell.sessions is None)
    warm = warm_up(engine, run.config, lengths, timeout_s=run.config.engine.ready_timeout_s)
    death = engine.death()
    if death is not None:
        raise LaunchError(f"{run.connector_id}: the engine died while it was warmed up: {death}")
    run.progress.say(f"warm-up: {warm.words}")


def _placement(run: Run) -> Placement | None:
    if not run.config.engine.pin_cpus:
        return None
    nodes = [slot.cards.first.numa if slot.cards.first else None for slot in slots_of(run.config.engine)]
    return place(share_of(discover(), run.slot.place, run.slot.of, nodes), run.config.cell.workers)


def archive_earlier_attempt(run: RunFolder) -> int:
    """Move an earlier launch's files, except cells, to their own folder; return this attempt's number."""
    numbers = [folder.name.removeprefix("attempt_") for folder in run.path.glob("attempt_*")]
    archived = max((int(n) for n in numbers if is_number(n)), default=0)
    # A folder may have been removed to make room; its launch keeps its number.
    last_attempt = max([archived, *(launch.attempt for launch in read_launches(run.launches))])
    if run.launch_sh.exists() or run.stdout.exists():
        last_attempt = max(last_attempt, archived + 1)
        archive = run.path / f"attempt_{last_attempt}"
        archive.mkdir(parents=True)
        for name in (*RUN_FILES, VIRTUAL_GPU):
            if (run.path / name).exists():
                shutil.move(run.path / name, archive / name)
    shutil.rmtree(run.step_log.parent, ignore_errors=True)
    return last_attempt + 1
