"""The cells of a run that are not there yet, measured against an engine that is up."""

import msgspec

from connector_tax.base.artifacts.cells import read_cell, reusable
from connector_tax.base.documents.cell import About, IdleUse
from connector_tax.base.plan import spec_hash, until_overload
from connector_tax.base.plan.duration import requests_per_s
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.steptime import recording
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.loadgen.pool import WorkerPool
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.failure import blame_the_host
from connector_tax.run.measure.launch import Death, Run, count_death, deaths, loadgen_sha256

# An engine that dies twice in the same cell will die a third time; once may be someone's kill -9.
DEATHS_PER_CELL = 2


def pending_cells(run: Run, cells: tuple[CellSpec, ...]) -> list[CellSpec]:
    """Cells without a finished folder of exactly their specification; says what is used again."""
    pending = []
    for cell in cells:
        if not is_there(run, cell):
            pending.append(cell)
        elif read_cell(run.run.cell(cell.cell_id)).code.loadgen_sha256 != loadgen_sha256():
            run.progress.say(
                f"cell {cell.cell_id} was measured by another version of the load generator; kept. "
                f"Remove {run.run.cell(cell.cell_id).path} to have it measured again"
            )
    if len(pending) < len(cells):
        run.progress.say(f"{len(cells) - len(pending)} of {len(cells)} cells are finished already")
    return pending


def is_there(run: Run, cell: CellSpec) -> bool:
    """Whether a finished cell of exactly this specification lies in the run's folder, whatever its verdict."""
    return reusable(run.run.cell(cell.cell_id), spec_hash(run.config, run.connector_id, cell))


def planned(run: Run, cells: tuple[CellSpec, ...]) -> tuple[CellSpec, ...]:
    """Without those of Phase A above the rate at which the sweep ends, as far as that is known by now."""
    if run.run.phase != "a":
        return cells
    return until_overload(run.config, cells, lambda cell: is_there(run, cell) and _was_overloaded(run, cell))


def _was_overloaded(run: Run, cell: CellSpec) -> bool:
    return read_cell(run.run.cell(cell.cell_id)).window.overloaded


def measure_pending(
    run: Run,
    engine: RunningEngine,
    pool: WorkerPool,
    cells: tuple[CellSpec, ...],
    pending: list[CellSpec],
    about: About,
    idle: IdleUse,
) -> list[CellSpec]:
    """Cells in order; returns those still missing when the engine died, nothing otherwise.

    Raises:
        OutOfTime: the next cell would not be finished within the run's limit.
    """
    for index, cell in enumerate(pending):
        if cell not in planned(run, cells):
            run.progress.say(f"cell {cell.cell_id} is left out: a lower rate was too much already")
            continue
        if run.limit is not None:
            run.limit.check_cell(cell, requests_per_s(run.config, cell), first=index == 0)
        run.progress.say(f"cell {cell.cell_id} ({index + 1} of {len(pending)})")
        folder = run.run.cell(cell.cell_id)
        own_hash = spec_hash(run.config, run.connector_id, cell)
        with recording(
            run.run.step_log if run.step_timing else None,
            wanted=cell.recorded is not False,
            settle_s=2 * engine.step_flush_s,
        ) as step_log:
            death = measure_one_cell(
                cell,
                folder,
                Bench(
                    engine=engine,
                    pool=pool,
                    raw_metrics=run.run.raw_metrics,
                    step_log=step_log,
                    about=msgspec.structs.replace(about, spec_hash=own_hash),
                    idle=idle,
                    counters=run.counters,
                ),
                last_try=deaths(run.run, cell) + 1 >= DEATHS_PER_CELL,
            )
        if death is not None:
            run.progress.say(f"engine died in cell {cell.cell_id}: {death}")
            blame_the_host(death, run.connector_id)
            count_death(run.run, cell)
            run.deaths.append(Death(run.run.phase, cell.cell_id, death))
            return pending[index + 1 :] if reusable(folder, own_hash) else pending[index:]
    return []
