"""A launch that is ready for cells: an engine that is up and warm, the load generator's processes, the sampler."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from connector_tax.base.artifacts.launches import read_launches, timed_launch
from connector_tax.base.artifacts.layout import RUN_FILES, VIRTUAL_GPU, RunFolder
from connector_tax.base.documents.cell import About, IdleUse, RunConfig
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.files import write_json, write_text
from connector_tax.base.plan import launch_spec
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.units import is_number
from connector_tax.run.engine.identity import engine_identity, env_text
from connector_tax.run.engine.logs import clean_logs
from connector_tax.run.engine.patching import step_timing_of
from connector_tax.run.engine.process import LaunchError, LaunchRequest, RunningEngine, running_engine
from connector_tax.run.engine.settings import resolved_settings
from connector_tax.run.engine.slots import slots_of
from connector_tax.run.engine.transports import transports_of
from connector_tax.run.engine.usage import idle_use
from connector_tax.run.loadgen.placement import Placement, discover, place
from connector_tax.run.loadgen.pool import WorkerPool, worker_pool
from connector_tax.run.measure.code_version import code_version
from connector_tax.run.measure.cpu_sets import share_of
from connector_tax.run.measure.same_engine import refuse_another_engine
from connector_tax.run.measure.standing import Run
from connector_tax.run.measure.warmup import warm_up
from connector_tax.run.sampler.sampler import SAMPLE_INTERVAL_S, sampling

# Idle CPU is sampled this long before the first cell: a helper thread that spins shows at once.
IDLE_SAMPLE_S = {"vllm": 2.0, "virtual_gpu": 1.5, "emulator": 0.3}


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch whose engine serves and is warm.

    Attributes:
        about: what each of its cells says of plan, engine and code.
    """

    engine: RunningEngine
    pool: WorkerPool
    about: About


@contextmanager
def launched(run: Run, pending: list[CellSpec]) -> Iterator[Launch]:
    """An engine that is ready and warm, and the load generator's processes.

    Raises:
        LaunchError: it did not get ready.
    """
    config, connector = run.config, run.config.connector(run.connector_id)
    clean_logs(run.run.path)  # a killed launch could not
    identity = engine_identity(config.engine, run.cards)
    if len(config.engine.slots) > 1:
        identity = msgspec.structs.replace(identity, slot=run.cards.slot)
    refuse_another_engine(run.folder, config, run.run, identity)
    attempt = archive_earlier_attempt(run.run)
    if run.step_timing:
        step_timing_of(
            config.engine
        )  # an earlier version may have been let loose on this vLLM since preflight
    about = About(
        campaign=config.campaign,
        connector=connector.id,
        phase=run.run.phase,
        launch=launch_spec(config, connector.id),
        engine=identity,
        code=code_version(),
    )
    write_json(run.run.config, RunConfig(**msgspec.structs.asdict(about), cells=tuple(pending)))
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
            about = msgspec.structs.replace(
                about, attempt=attempt, engine=_ready(run, engine, pending, identity)
            )
            yield Launch(engine, pool, about)
        finally:
            told_to_end()


def _ready(
    run: Run, engine: RunningEngine, pending: list[CellSpec], identity: EngineIdentity
) -> EngineIdentity:
    """Wait until the engine serves, and warm it up; ``identity`` with all that its log says.

    Raises:
        LaunchError: it did not get ready.
    """
    engine.wait_ready()
    _warm_up(run, engine, pending)
    log = engine.log_text()
    logged = transports_of(log)
    return msgspec.structs.replace(
        identity,
        transports=logged.transports,
        side_channels=logged.side_channels,
        settings=resolved_settings(engine.request.step_log, log),
    )


@contextmanager
def sampled(run: Run, engine: RunningEngine) -> Iterator[IdleUse]:
    """The sampler at work; yields what the engine takes while nobody asks."""
    with sampling(engine.base_url, run.run.raw_metrics, SAMPLE_INTERVAL_S, run.cards.sampled):
        yield idle_use(engine, IDLE_SAMPLE_S[run.config.engine.kind])


def _warm_up(run: Run, engine: RunningEngine, pending: list[CellSpec]) -> None:
    """The first request of each length, outside every cell: what compiles then is nobody's latency.

    Raises:
        LaunchError: the engine died of it. An answer that is merely wrong is left to the cells, which count them.
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
    nodes = [s.cards.first.numa if s.cards.first else None for s in slots_of(run.config.engine)]
    return place(share_of(discover(), run.slot.place, run.slot.of, nodes), run.config.cell.workers)


def archive_earlier_attempt(run: RunFolder) -> int:
    """Move what an earlier launch of this run left beside its cells out of the way; numbers this one."""
    folders = [p.name.removeprefix("attempt_") for p in run.path.glob("attempt_*")]
    archived = max((int(n) for n in folders if is_number(n)), default=0)
    # Somebody may have removed a folder to make room; its launch keeps its number.
    last = max([archived, *(x.attempt for x in read_launches(run.launches))])
    if run.launch_sh.exists() or run.stdout.exists():
        last = max(last, archived + 1)
        keep = run.path / f"attempt_{last}"
        keep.mkdir(parents=True)
        for name in (*RUN_FILES, VIRTUAL_GPU):
            if (run.path / name).exists():
                shutil.move(run.path / name, keep / name)
    shutil.rmtree(run.step_log.parent, ignore_errors=True)
    return last + 1
