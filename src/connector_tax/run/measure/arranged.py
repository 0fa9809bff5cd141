"""One launch, one cell after the other, and around each of them something that is changed from outside the engine.

Every cell lies in a campaign of its own, so that whatever reads campaigns reads them. Launches differ by more than what is changed here does;
within one the cells with nothing changed say what they differ by.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.documents.cell import Arranged, ArrangedThread
from connector_tax.base.plan import cells_of, spec_hash
from connector_tax.base.prctl import killed_with_parent
from connector_tax.base.records.cell import CellSpec
from connector_tax.run.engine.leftovers import end_all_leftovers
from connector_tax.run.engine.process import LaunchError, RunningEngine
from connector_tax.run.engine.threads import (
    Alike,
    Census,
    Thread,
    alone_on_a_core,
    census,
    helpers,
    kept,
    on_all_cpus,
    only_on_free_cores,
    threads_of,
)
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.launch import launched, sampled
from connector_tax.run.measure.locks import measuring_alone
from connector_tax.run.measure.run import finish
from connector_tax.run.measure.standing import Run, open_run

UNTOUCHED, UNPINNED, ENGINE_ALONE = "untouched", "unpinned", "engine_alone"
HELPERS_IDLE, BUSY_BESIDE = "helpers_idle", "busy_beside"


class NotPossible(Exception):
    """This change cannot be made here; says why."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One cell of the launch.

    Attributes:
        campaign_file: of a campaign with one cell in Phase A.
        change: what holds during it, a key of ``CHANGES``.
    """

    campaign_file: Path
    change: str


# (engine, plain's threads) -> what holds during the body, for ``cell.json``.
Change = Callable[[RunningEngine, Census], AbstractContextManager[Arranged]]


@contextmanager
def _untouched(engine: RunningEngine, plain: Census) -> Iterator[Arranged]:
    yield Arranged(change=UNTOUCHED)


@contextmanager
def _helpers_idle(engine: RunningEngine, plain: Census) -> Iterator[Arranged]:
    """It is not undone; see ``run.engine.threads``. So nothing comes after it in a launch."""
    if not plain:
        raise NotPossible("plain's threads are not known, and so nobody's are told from them")
    found = helpers(threads_of(engine), plain)
    if not found:
        raise NotPossible("its engine has no busy thread that plain's has not")
    if os.sched_getscheduler(0) == os.SCHED_IDLE:
        raise NotPossible(
            "the check itself runs in the class SCHED_IDLE, and every thread of the engine with it"
        )
    yield Arranged(change=HELPERS_IDLE, threads=tuple(_of(t) for t in only_on_free_cores(found)))


@contextmanager
def _unpinned(engine: RunningEngine, plain: Census) -> Iterator[Arranged]:
    threads = threads_of(engine)
    found = kept(threads)
    if not found:
        raise NotPossible("every thread of the engine may use all its CPUs anyway")
    with on_all_cpus(threads):
        yield Arranged(change=UNPINNED, threads=tuple(_of(t, cpus) for t, cpus in found.items()))


@contextmanager
def _engine_alone(engine: RunningEngine, plain: Census) -> Iterator[Arranged]:
    main = next((t for t in threads_of(engine) if t.process == "engine_core" and t.is_main), None)
    if main is None:
        raise NotPossible("the engine has no process of its own for its core")
    with ExitStack() as stack:
        try:
            core = stack.enter_context(alone_on_a_core(main))
        except ValueError as error:
            raise NotPossible(str(error)) from error
        yield Arranged(change=ENGINE_ALONE, threads=(_of(main, core),))


@contextmanager
def _busy_beside(engine: RunningEngine, plain: Census) -> Iterator[Arranged]:
    """As a helper thread that polls does, and in nobody's interpreter but its own."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=killed_with_parent) as busy:
        try:
            yield Arranged(change=BUSY_BESIDE, pid=busy.pid)
        finally:
            busy.kill()


CHANGES: dict[str, Change] = {
    UNTOUCHED: _untouched,
    UNPINNED: _unpinned,
    HELPERS_IDLE: _helpers_idle,
    ENGINE_ALONE: _engine_alone,
    BUSY_BESIDE: _busy_beside,
}


def measure_arranged(arrangements: Sequence[Arrangement], connector_id: str, plain: Census) -> Census:
    """Bring the receipts of all ``arrangements`` into being, by one launch in their order.

    A change that is not possible here, a launch that fails and an engine that dies end as receipts with the reason.

    Args:
        plain: the threads of plain's engine; empty for plain itself.

    Returns:
        The threads of this engine, as many of each name as there were behind any cell.

    Raises:
        EngineError: another measurement runs.
    """
    runs = [open_run(a.campaign_file, connector_id, "a") for a in arrangements]
    first = runs[0]
    cells = {run.folder.root: cells_of(run.config, connector_id, "a")[0] for run in runs}
    threads: Census = {}
    missing = dict.fromkeys(cells, "not measured: the launch ended before it")
    with measuring_alone(first.folder.root, first.config.campaign, first.cards, first.slot.engine.port):
        end_all_leftovers(first.folder.root, grace_s=first.config.engine.stop_grace_s)
        try:
            with (
                launched(first, list(cells.values())) as launch,
                sampled(first, launch.engine) as idle,
            ):
                engine = launch.engine
                for run, arrangement in zip(runs, arrangements, strict=True):
                    cell = cells[run.folder.root]
                    try:
                        with CHANGES[arrangement.change](engine, plain) as changed:
                            death = measure_one_cell(
                                cell,
                                run.run.cell(cell.cell_id),
                                Bench(
                                    engine=engine,
                                    pool=launch.pool,
                                    raw_metrics=first.run.raw_metrics,
                                    step_log=first.run.step_log if first.step_timing else None,
                                    about=msgspec.structs.replace(
                                        launch.about,
                                        campaign=run.config.campaign,
                                        spec_hash=spec_hash(run.config, connector_id, cell),
                                        arrangement=changed,
                                    ),
                                    idle=idle,
                                ),
                                last_try=True,
                            )
                    except NotPossible as reason:
                        missing[run.folder.root] = str(reason)
                        continue
                    if death is not None:
                        missing[run.folder.root] = f"the engine died: {death}"
                        break
                    missing.pop(run.folder.root)
                    threads = _most(threads, census(threads_of(engine)))
        except LaunchError as error:
            missing = {k: str(error).splitlines()[0] for k in missing}
        for run in reversed(runs):  # the first holds the records of the launch
            _end(run, cells[run.folder.root], missing.get(run.folder.root))
    return threads


def _most(some: Census, others: Census) -> Census:
    nothing = Alike(0, 0.0)
    pairs = {key: (some.get(key, nothing), others.get(key, nothing)) for key in {*some, *others}}
    return {
        key: Alike(max(a.number, b.number), max(a.longest_s, b.longest_s)) for key, (a, b) in pairs.items()
    }


def _end(run: Run, cell: CellSpec, reason: str | None) -> None:
    if reason is None:
        finish(run, (cell,))
    else:
        run.progress.say(f"not measured: {reason}")
        write_receipt(run.run, campaign=run.config.campaign, status="not_needed", reason=reason)


def _of(thread: Thread, cpus: Iterable[int] | None = None) -> ArrangedThread:
    return ArrangedThread(
        process=thread.process, thread=thread.name, cpus=UNSET if cpus is None else tuple(sorted(cpus))
    )
