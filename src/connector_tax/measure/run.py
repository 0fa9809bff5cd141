"""One (configuration, phase): launch a fresh engine, measure the cells still missing, write a receipt.

Whatever ends it, finished cells stay: they are folders renamed into place one by one. A run whose
cells are all there launches nothing. A configuration that will not launch, or whose engine dies in every cell, ends as a
receipt too, ``failed`` with the reason; see ``failure.py``.
"""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from connector_tax.artifacts.cells import read_cell, reusable
from connector_tax.artifacts.layout import RUN_FILES, VIRTUAL_GPU, CampaignFolder, RunFolder
from connector_tax.artifacts.receipts import write_receipt
from connector_tax.config import CampaignConfig
from connector_tax.config.secrets import with_originals
from connector_tax.engine.gpus import cards_of
from connector_tax.engine.leftovers import end_all_leftovers
from connector_tax.engine.process import LaunchError, RunningEngine
from connector_tax.files import read_json, write_json
from connector_tax.loadgen.pool import WorkerPool
from connector_tax.measure.accuracy import collect_run_outputs, outputs_collected
from connector_tax.measure.cell import measure_one_cell
from connector_tax.measure.code_version import loadgen_sha256
from connector_tax.measure.deaths import Death, count_death, deaths, deaths_file
from connector_tax.measure.failure import (
    PLAINS,
    ConfigurationFailed,
    blame_the_host,
    earlier_failure,
    how_to_try_again,
    plain_failed,
)
from connector_tax.measure.launch import archive_earlier_attempt, launched, sampled
from connector_tax.measure.locks import measuring_alone
from connector_tax.measure.matched import with_matched_launches
from connector_tax.measure.progress import Progress
from connector_tax.measure.standing import Run
from connector_tax.measure.verdict import death_of
from connector_tax.plan import (
    cells_of,
    config_of,
    read_campaign_file,
    spec_hash,
    until_overload,
)
from connector_tax.records.cell import CellSpec, Phase
from connector_tax.records.connector import PLAIN_AGAIN
from connector_tax.records.rates import ReferenceRates
from connector_tax.steptime import recording

# An engine that dies twice in the same cell will die a third time; once may be someone's kill -9.
DEATHS_PER_CELL = 2
LAUNCH_TRIES = 2
# Cells in which it dies before a run that finished none is given up: rates and shapes go from the lightest up, so whoever dies
# in the first two dies in all, and each costs two launches.
DEAD_CELLS = 2


def measure_run(
    campaign_file: Path, connector_id: str, phase: Phase, *, then: Phase | None = None
) -> tuple[Death, ...]:
    """Bring ``receipt.json`` of one (configuration, phase) into being.

    Args:
        then: a phase whose cells the same launch measures after its own. They lie in that phase's folder; its receipt is written
            when it is measured itself, which launches for what is missing by then.

    Returns:
        Every death of its engine in a cell, those after which the cell was measured after all among them.

    Raises:
        EngineError: plain vLLM cannot be measured, the host failed, or another measurement holds the GPU.
        ArtifactError: something on disk cannot be read or written.
    """
    document = read_campaign_file(campaign_file)
    config = config_of(with_originals(document, os.environ))
    folder = CampaignFolder(campaign_file.parent)
    folder.refuse_links()
    run_folder = folder.run(document["date"], connector_id, phase)
    progress = Progress(folder, config, document["date"], connector_id, phase)

    preflight = read_json(folder.preflight_status)
    config = with_matched_launches(config, preflight)
    decision = preflight["configs"]["plain" if connector_id == PLAIN_AGAIN else connector_id]
    if decision["decision"] != "include":
        progress.say(f"skipped: {decision['reason']}")
        write_receipt(run_folder, campaign=config.campaign, status="skipped", reason=decision["reason"])
        return ()

    failed_before = earlier_failure(folder, document["date"], connector_id, phase)
    if failed_before is not None:
        progress.say(f"not launched: {failed_before}")
        write_receipt(run_folder, campaign=config.campaign, status="skipped", reason=failed_before)
        return ()

    cells = _cells(folder, config, connector_id, phase)
    if not cells:
        reason = _why_not_needed(folder, config, connector_id)
        progress.say(f"not needed: {reason}")
        write_receipt(run_folder, campaign=config.campaign, status="not_needed", reason=reason)
        return ()

    cards = cards_of(config.engine)
    if cards.note:
        progress.say(cards.note)
    run = Run(folder, config, run_folder, progress, bool(preflight["step_timing_available"]), cards)
    guest = None
    if then is not None:
        its_folder = folder.run(document["date"], connector_id, then)
        guest = Guest(replace(run, run=its_folder), _cells(folder, config, connector_id, then))
    with measuring_alone(folder.root, config.campaign, cards, config.engine.port):
        end_all_leftovers(folder.root, grace_s=config.engine.stop_grace_s)
        _begin_anew(run, cells)
        try:
            _measure(run, cells, guest)
        except ConfigurationFailed as failure:
            _fail(run, cells, str(failure))
        else:
            finish(run, _planned(run, cells))
    return tuple(run.deaths)


@dataclass(frozen=True, slots=True)
class Guest:
    """Cells of another phase that a launch measures after its own.

    Attributes:
        run: in that phase's folder; deaths are those of the host's run.
    """

    run: Run
    cells: tuple[CellSpec, ...]


def _measure(run: Run, cells: tuple[CellSpec, ...], guest: Guest | None) -> None:
    """Launch until every cell is there and the accuracy pass is done.

    An engine that has died is launched again without the guest: what is missing of it is measured with its own phase.

    Raises:
        ConfigurationFailed: it will not launch, or dies in every cell.
        HostFailed: so it does, and the host is to blame.
    """
    pending = _pending(run, _planned(run, cells))
    failed_launches = 0
    while pending or not outputs_collected(run):
        try:
            pending = _one_launch(run, cells, pending, guest)
        except LaunchError as error:
            cause = str(error).splitlines()[0]
            blame_the_host(cause, run.connector_id)
            # Once may be bad luck, or someone's kill -9; preflight has seen this engine start. Or the guest's prompts, with which a launch is
            # warmed up as well.
            failed_launches += 1
            guest = None
            # Cells may have been finished before the port was taken from the engine.
            pending = _pending(run, _planned(run, cells))
            if failed_launches == LAUNCH_TRIES:
                raise ConfigurationFailed(
                    f"did not launch in {LAUNCH_TRIES} tries in a row: {cause.removeprefix(f'{run.connector_id}: ')}"
                ) from error
            run.progress.say(f"launch failed, trying once more: {error}")
        else:
            failed_launches = 0
            guest = None if run.deaths else guest
            _give_up_if_it_always_dies(run, cells)


def _give_up_if_it_always_dies(run: Run, cells: tuple[CellSpec, ...]) -> None:
    """
    Raises:
        ConfigurationFailed: no cell of the run was survived, and as many were tried as are needed to say so.
    """
    deaths = _deaths_in_finished(run, cells)
    causes = [d for d in deaths if d is not None]
    if len(causes) == len(deaths) and len(causes) >= min(DEAD_CELLS, len(cells)):
        many = f"each of the {len(causes)} cells" if len(causes) > 1 else "the one cell"
        raise ConfigurationFailed(
            f"its engine died in {many} that it was asked for, {DEATHS_PER_CELL} times in each: {causes[-1]}"
        )


def _deaths_in_finished(run: Run, cells: tuple[CellSpec, ...]) -> list[str | None]:
    """Of each cell of the plan that is there: the root cause of the engine's death in it, None if it lived."""
    return [death_of(read_cell(run.run.cell(c.cell_id))) for c in cells if _is_there(run, c)]


def _is_there(run: Run, cell: CellSpec) -> bool:
    return reusable(run.run.cell(cell.cell_id), spec_hash(run.config, run.connector_id, cell))


def _planned(run: Run, cells: tuple[CellSpec, ...]) -> tuple[CellSpec, ...]:
    """Without those of Phase A above the rate at which the sweep ends, as far as that is known by now."""
    if run.run.phase != "a":
        return cells
    return until_overload(run.config, cells, lambda cell: _is_there(run, cell) and _was_overloaded(run, cell))


def _was_overloaded(run: Run, cell: CellSpec) -> bool:
    return bool(read_cell(run.run.cell(cell.cell_id))["window"].get("overloaded"))


def _begin_anew(run: Run, cells: tuple[CellSpec, ...]) -> None:
    """A run without one cell that its engine survived starts from nothing: it failed, or was on its way there."""
    there = [c for c in cells if _is_there(run, c)]
    if all(death is not None for death in _deaths_in_finished(run, cells)):
        for cell in there:
            shutil.rmtree(run.run.cell(cell.cell_id).path)
            deaths_file(run.run, cell).unlink(missing_ok=True)


def _cells(
    folder: CampaignFolder, config: CampaignConfig, connector_id: str, phase: Phase
) -> tuple[CellSpec, ...]:
    if phase == "a":
        return cells_of(config, connector_id, phase)
    rates = read_json(folder.reference_rates)
    if phase == "b_prime" and not rates["b_prime_needed"]:
        return ()
    return cells_of(config, connector_id, phase, ReferenceRates.of_document(rates))


def _why_not_needed(folder: CampaignFolder, config: CampaignConfig, connector_id: str) -> str:
    if connector_id == PLAIN_AGAIN:
        return "Phase A's shape is not among Phase B's, so this is no block"
    if connector_id not in config.phase_b_prime.configs:
        return "not among phase_b_prime.configs"
    rate = read_json(folder.reference_rates)["ref_load_per_s"]
    return f"ref_load equals ref_safe ({rate:g} req/s)"


def _pending(run: Run, cells: tuple[CellSpec, ...]) -> list[CellSpec]:
    """Cells without a finished folder of exactly their specification; says what is used again."""
    pending = []
    for cell in cells:
        if not _is_there(run, cell):
            pending.append(cell)
        elif read_cell(run.run.cell(cell.cell_id))["code"]["loadgen_sha256"] != loadgen_sha256():
            run.progress.say(
                f"cell {cell.cell_id} was measured by another version of the load generator; kept. "
                f"Remove {run.run.cell(cell.cell_id).path} to have it measured again"
            )
    if len(pending) < len(cells):
        run.progress.say(f"{len(cells) - len(pending)} of {len(cells)} cells are finished already")
    return pending


def _one_launch(
    run: Run, cells: tuple[CellSpec, ...], pending: list[CellSpec], guest: Guest | None
) -> list[CellSpec]:
    """Launch once and measure until done or until the engine dies; returns what is still missing."""
    last = _pending(guest.run, guest.cells) if guest is not None else []
    with launched(run, [*pending, *last]) as (engine, pool, about):
        with sampled(run, engine) as idle:
            missing = _measure_pending(run, engine, pool, cells, pending, about, idle, log=run.run)
            if guest is not None and last and not missing:
                _measure_guest(run, guest, last, engine, pool, about, idle)
        # A launch whose engine died in its last cell answers nothing; the next one is asked, and is the last.
        if not missing and (not pending or engine.death() is None):
            collect_run_outputs(run, engine)
        return missing


def _measure_guest(
    run: Run,
    guest: Guest,
    pending: list[CellSpec],
    engine: RunningEngine,
    pool: WorkerPool,
    about: dict[str, Any],
    idle: dict[str, Any],
) -> None:
    """The guest's cells, in a launch of their own number; a death before the first of them is one in it."""
    death = engine.death()
    if death is not None:
        run.deaths.append(Death(guest.run.run.phase, pending[0].cell_id, death))
        return
    guest.run.run.path.mkdir(parents=True, exist_ok=True)
    attempt = archive_earlier_attempt(guest.run.run)
    its_own = {**about, "phase": guest.run.run.phase, "attempt": attempt}
    # Before its cells, so that none stands without them whatever ends the launch; and again with all of the log.
    _copy_launch_files(run.run, guest.run.run)
    _measure_pending(guest.run, engine, pool, guest.cells, pending, its_own, idle, log=run.run)
    _copy_launch_files(run.run, guest.run.run)


def _copy_launch_files(source: RunFolder, target: RunFolder) -> None:
    """What belongs to a launch lies beside its cells; of one that served two phases, in both folders."""
    for name in (*RUN_FILES, VIRTUAL_GPU):
        if (source.path / name).is_file():
            shutil.copy2(source.path / name, target.path / name)


def _measure_pending(
    run: Run,
    engine: RunningEngine,
    pool: WorkerPool,
    cells: tuple[CellSpec, ...],
    pending: list[CellSpec],
    about: dict[str, Any],
    idle: dict[str, Any],
    *,
    log: RunFolder,
) -> list[CellSpec]:
    """Cells in order; returns those still missing when the engine died, nothing otherwise.

    Args:
        log: of the run that launched the engine, where its step records and samples go.
    """
    for index, cell in enumerate(pending):
        if cell not in _planned(run, cells):
            run.progress.say(f"cell {cell.cell_id} is left out: a lower rate was too much already")
            continue
        run.progress.say(f"cell {cell.cell_id} ({index + 1} of {len(pending)})")
        folder = run.run.cell(cell.cell_id)
        own_hash = spec_hash(run.config, run.connector_id, cell)
        with recording(
            log.step_log if run.step_timing else None,
            wanted=cell.recorded is not False,
            settle_s=2 * engine.step_flush_s,
        ) as step_log:
            death = measure_one_cell(
                cell,
                folder,
                engine=engine,
                pool=pool,
                raw_metrics=log.raw_metrics,
                step_log=step_log,
                document={**about, "spec_hash": own_hash},
                idle=idle,
                last_try=deaths(run.run, cell) + 1 >= DEATHS_PER_CELL,
            )
        if death is not None:
            run.progress.say(f"engine died in cell {cell.cell_id}: {death}")
            blame_the_host(death, run.connector_id)
            count_death(run.run, cell)
            run.deaths.append(Death(run.run.phase, cell.cell_id, death))
            return pending[index + 1 :] if reusable(folder, own_hash) else pending[index:]
    return []


def _fail(run: Run, cells: tuple[CellSpec, ...], reason: str) -> None:
    """The end of a run that cannot be finished: a receipt with the reason and the cells there are; of plain, an error.

    Raises:
        EngineError: it is plain; its run stays open, so that a later start tries again.
    """
    if run.connector_id in PLAINS:
        _remove_leftovers(run)
        raise plain_failed(run.connector_id, run.run.phase, reason)
    finish(run, tuple(c for c in cells if _is_there(run, c)), failure=reason)
    run.progress.say(f"failed: {reason}. {how_to_try_again(run.run.receipt)}")


def _remove_leftovers(run: Run) -> None:
    for leftover in run.run.cells.glob(".*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    shutil.rmtree(run.run.step_log.parent, ignore_errors=True)


def finish(run: Run, cells: tuple[CellSpec, ...], failure: str | None = None) -> None:
    """Write what stands beside the finished ``cells``, the receipt last."""
    documents: list[dict[str, Any]] = [read_cell(run.run.cell(c.cell_id)) for c in cells]
    write_json(run.run.summary, {"cells": {d["cell_id"]: d["summary"] for d in documents}})
    _remove_leftovers(run)
    recorded = [d for d in documents if d["spec"].get("recorded") is not False]
    write_receipt(
        run.run,
        campaign=run.config.campaign,
        status="measured" if failure is None else "failed",
        reason=failure,
        cell_ids=[c.cell_id for c in cells],
        step_timing_available=bool(documents)
        and all("engine_step_" in " ".join(d["files"]) for d in recorded),
        engine=documents[-1]["engine"] if documents else None,
    )
    if failure is None:
        valid = sum(d["verdict"] == "valid" for d in documents)
        run.progress.say(f"done: {valid} of {len(cells)} cells valid")
