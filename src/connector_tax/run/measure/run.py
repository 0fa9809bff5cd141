"""Measures one (configuration, phase): launches an engine, measures the missing cells, writes a receipt.

Finished cells survive any end, since each is a folder renamed into place. A run with all cells launches
nothing. A configuration that does not launch, or whose engine dies in every cell, gets a ``failed`` receipt
with the reason; see ``failure.py``.
"""

import shutil
from pathlib import Path

import msgspec
from msgspec import UNSET

from connector_tax.base.artifacts.cells import read_cell, reusable
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt, write_failure, write_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.cell import About, IdleUse, Output, OutputsFile, SummaryFile
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.receipt import PreflightStatus
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_document, write_json
from connector_tax.base.plan import (
    cells_of,
    config_of,
    outputs_hash,
    read_campaign_file,
    spec_hash,
    until_overload,
)
from connector_tax.base.plan.duration import requests_per_s
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.steptime.share import recording
from connector_tax.run.engine.process import LaunchError, RunningEngine
from connector_tax.run.engine.supervised import clean_logs
from connector_tax.run.loadgen.cell import collect_outputs
from connector_tax.run.loadgen.coordinator import WorkerPool
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.failure import (
    PLAINS,
    ConfigurationFailed,
    blame_the_host,
    death_of,
    earlier_failure,
    how_to_try_again,
    plain_failed,
)
from connector_tax.run.measure.launch import (
    Death,
    Progress,
    Run,
    count_death,
    deaths,
    deaths_file,
    launched,
    loadgen_sha256,
    sampled,
    with_matched_launches,
)
from connector_tax.run.measure.locks import on_a_card
from connector_tax.run.measure.time_left import TimeLimit

# Accuracy pass: a fixed set of prompts per launch, whose answers are compared with plain's.


def outputs_collected(run: Run) -> bool:
    """Return whether the accuracy pass is done or not wanted."""
    # Two launches per configuration show what repeats; those of Phases A and B are used.
    if run.config.accuracy.prompts == 0 or run.run.phase not in ("a", "b"):
        return True
    expected_hash = outputs_hash(run.config, run.connector_id)
    return run.run.outputs.exists() and read_document(run.run.outputs, OutputsFile).spec_hash == expected_hash


def _death(engine: RunningEngine, outputs: list[Output]) -> str | None:
    """Return the root cause if an answer is missing because the engine died; None while it lives."""
    return engine.death_behind_silence() if any("error" in output for output in outputs) else None


def collect_run_outputs(run: Run, engine: RunningEngine, *, last_try: bool) -> None:
    """Run the accuracy pass and write the answers.

    Args:
        last_try: write them even if the engine died; otherwise another launch is asked.
    """
    if outputs_collected(run):
        return
    accuracy, cell = run.config.accuracy, run.config.cell
    run.progress.say(f"accuracy pass: {accuracy.prompts} prompts")
    outputs = collect_outputs(
        engine.base_url,
        engine.model,
        seed=run.config.seed,
        prompts=accuracy.prompts,
        input_tokens=accuracy.input_tokens,
        output_tokens=accuracy.output_tokens,
        token_ids=(cell.token_id_low, cell.token_id_high),
        headers=engine.headers,
    )
    death = _death(engine, outputs)
    if death is not None and not last_try:
        run.progress.say(f"the engine died in the accuracy pass, another launch is asked: {death}")
        return
    document = OutputsFile(
        campaign=run.config.campaign,
        connector=run.connector_id,
        spec_hash=outputs_hash(run.config, run.connector_id),
        outputs=outputs,
    )
    write_json(run.run.outputs, document)


# Measure a run's missing cells on a running engine.

# A single death may be someone's kill -9; an engine that dies twice in a cell would die again.
DEATHS_PER_CELL = 2


def pending_cells(run: Run, cells: tuple[CellSpec, ...]) -> list[CellSpec]:
    """Return the cells without a finished folder of their exact specification; log which are reused."""
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
    return reusable(run.run.cell(cell.cell_id), spec_hash(run.config, run.connector_id, cell))


def planned(run: Run, cells: tuple[CellSpec, ...]) -> tuple[CellSpec, ...]:
    """Return ``cells`` without Phase A's cells above the rate that was overloaded, as far as known."""
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
    """Measure cells in order; return those still missing if the engine died, else none.

    Raises:
        OutOfTime: the next cell would not finish within the run's limit.
    """
    for index, cell in enumerate(pending):
        if cell not in planned(run, cells):
            run.progress.say(f"cell {cell.cell_id} is left out: a lower rate was too much already")
            continue
        if run.limit is not None:
            run.limit.check_cell(cell, requests_per_s(run.config, cell), first=index == 0)
        run.progress.say(f"cell {cell.cell_id} ({index + 1} of {len(pending)})")
        folder = run.run.cell(cell.cell_id)
        cell_hash = spec_hash(run.config, run.connector_id, cell)
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
                    about=msgspec.structs.replace(about, spec_hash=cell_hash),
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
            return pending[index + 1 :] if reusable(folder, cell_hash) else pending[index:]
    return []


LAUNCH_TRIES = 2
# Every other measurement depends on this one.
BASELINE = ("plain", "a")
# A run is given up after this many cells if its engine died in all of them. Rates and shapes ascend, so an
# engine that dies in the first two dies in all, at two launches each.
DEAD_CELLS = 2


def measure_run(
    campaign_file: Path,
    connector_id: str,
    phase: Phase,
    *,
    limit: TimeLimit | None = None,
) -> tuple[Death, ...]:
    """Measure one (configuration, phase) and write its ``receipt.json``.

    Args:
        limit: when it must be over; cells that do not fit are left for a later call.

    Returns:
        Every death of the engine in a cell, even if the cell was measured later.

    Raises:
        EngineError: plain vLLM cannot be measured, the host failed, or another measurement holds the GPU.
        ArtifactError: a file cannot be read or written.
        OutOfTime: not all cells fit within ``limit``; finished ones are kept.
    """
    document = read_campaign_file(campaign_file)
    config = config_of(document)
    folder = CampaignFolder(campaign_file.parent)
    run_folder = folder.run(document.date, connector_id, phase)
    progress = Progress(folder, config, document.date, connector_id, phase)

    preflight = read_document(folder.preflight_status, PreflightStatus)
    config = with_matched_launches(config, preflight)
    decision = preflight.configs.get("plain" if connector_id == PLAIN_AGAIN else connector_id)
    if decision is None:
        raise ArtifactError(
            f"{folder.preflight_status}: says nothing of {connector_id}. Remove it to have it made again."
        )
    if decision.decision != "include":
        progress.say(f"skipped: {decision.reason}")
        write_receipt(run_folder, campaign=config.campaign, status="skipped", reason=decision.reason)
        return ()

    failed_before = earlier_failure(folder, document.date, connector_id, phase)
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

    with on_a_card(folder, config, run_folder, progress.say, limit) as slot:
        run = Run(
            *(folder, config, run_folder, progress, preflight.step_timing_available, slot),
            limit=limit,
            counters=() if decision.counters is UNSET else tuple(decision.counters),
        )
        _begin_anew(run, cells)
        try:
            _measure(run, cells)
        except ConfigurationFailed as failure:
            _fail(run, cells, str(failure))
        else:
            finish(run, planned(run, cells))
    return tuple(run.deaths)


def _measure(run: Run, cells: tuple[CellSpec, ...]) -> None:
    """Launch until every cell is there and the accuracy pass is done.

    Raises:
        ConfigurationFailed: the engine does not launch, or dies in every cell.
        HostFailed: the same, with the host to blame.
        OutOfTime: the missing cells do not fit within the run's limit.
    """
    pending = pending_cells(run, planned(run, cells))
    failed_launches = unanswered = 0
    while pending or not outputs_collected(run):
        if run.limit is not None and pending:
            run.limit.check_launch(pending[0], requests_per_s(run.config, pending[0]))
        try:
            pending = _one_launch(run, cells, pending, last_try=unanswered + 1 >= LAUNCH_TRIES)
            unanswered += not pending
        except LaunchError as error:
            cause = str(error).splitlines()[0]
            blame_the_host(cause, run.connector_id)
            # Once may be bad luck or someone's kill -9: preflight saw this engine start.
            failed_launches += 1
            # Cells may have finished before the port was taken.
            pending = pending_cells(run, planned(run, cells))
            # An earlier call may have had no time for another try.
            tries = max(failed_launches, write_failure(run.run.launches, cause))
            if tries >= LAUNCH_TRIES:
                raise ConfigurationFailed(
                    f"did not launch in {tries} tries in a row: {cause.removeprefix(f'{run.connector_id}: ')}"
                ) from error
            run.progress.say(f"launch failed, trying once more: {error}")
        else:
            failed_launches = 0
            _give_up_if_it_always_dies(run, cells)


def _give_up_if_it_always_dies(run: Run, cells: tuple[CellSpec, ...]) -> None:
    """Fail the configuration if its engine died in every cell tried.

    Raises:
        ConfigurationFailed: it did, in ``DEAD_CELLS`` cells or in every cell of a shorter run.
    """
    deaths = _deaths_in_finished(run, cells)
    causes = [cause for cause in deaths if cause is not None]
    if len(causes) == len(deaths) and len(causes) >= min(DEAD_CELLS, len(cells)):
        cells_text = f"each of the {len(causes)} cells" if len(causes) > 1 else "the one cell"
        raise ConfigurationFailed(
            f"its engine died in {cells_text} that it was asked for, {DEATHS_PER_CELL} times"
            f" in each: {causes[-1]}"
        )


def _deaths_in_finished(run: Run, cells: tuple[CellSpec, ...]) -> list[str | None]:
    """Return for each finished cell of the plan the root cause of the engine's death in it, or None."""
    return [death_of(read_cell(run.run.cell(cell.cell_id))) for cell in cells if is_there(run, cell)]


def _begin_anew(run: Run, cells: tuple[CellSpec, ...]) -> None:
    """Delete the cells of a failed run, all of which killed the engine, so that it starts again.

    Plain's Phase A is also deleted if it has no valid cell. A run with counts of deaths has not failed yet.
    """
    finished_cells = [c for c in cells if is_there(run, c)]
    documents = [read_cell(run.run.cell(c.cell_id)) for c in finished_cells]
    baseline = (run.connector_id, run.run.phase) == BASELINE
    failed = not any(deaths_file(run.run, c).exists() for c in finished_cells)
    if failed and not any(
        document.verdict == "valid" if baseline else death_of(document) is None for document in documents
    ):
        for cell in finished_cells:
            shutil.rmtree(run.run.cell(cell.cell_id).path)


def require_baseline(campaign_file: Path, connector_id: str, phase: Phase) -> None:
    """Refuse to continue if plain's Phase A has no valid cell; its receipt is removed for another try.

    Raises:
        EngineError: it has none, with the reason.
    """
    if (connector_id, phase) != BASELINE:
        return
    folder = CampaignFolder(campaign_file.parent)
    run = folder.run(read_campaign_file(campaign_file).date, connector_id, phase)
    receipt = read_receipt(run)
    if receipt.status == "measured" and not any(cell.verdict == "valid" for cell in receipt.cells):
        run.receipt.unlink()
        cause = next((f"{c.cell_id}: {r}" for c in receipt.cells for r in c.reasons or ()), "it has no cells")
        raise plain_failed(connector_id, phase, f"none of its {len(receipt.cells)} cells is valid; {cause}")


def _cells(
    folder: CampaignFolder, config: CampaignConfig, connector_id: str, phase: Phase
) -> tuple[CellSpec, ...]:
    if phase == "a":
        return cells_of(config, connector_id, phase)
    file = read_document(folder.reference_rates, ReferenceRatesFile)
    if phase == "b_prime" and not file.b_prime_needed:
        return ()
    return cells_of(config, connector_id, phase, file.rates)


def _why_not_needed(folder: CampaignFolder, config: CampaignConfig, connector_id: str) -> str:
    if connector_id == PLAIN_AGAIN:
        return "Phase A's shape is not among Phase B's, so this is no block"
    if connector_id not in config.phase_b_prime.configs:
        return "not among phase_b_prime.configs"
    rates = read_document(folder.reference_rates, ReferenceRatesFile)
    if rates.ref_load_per_s == rates.ref_safe_per_s:
        return f"ref_load equals ref_safe ({rates.ref_load_per_s:g} req/s)"
    return (
        f"plain holds no shape of Phase B' at ref_load ({rates.ref_load_per_s:g} req/s) or at twice Phase B's"
        " rate"
    )


def _one_launch(
    run: Run, cells: tuple[CellSpec, ...], pending: list[CellSpec], *, last_try: bool
) -> list[CellSpec]:
    """Launch once and measure until done or until the engine dies; return the missing cells.

    Args:
        last_try: for the accuracy pass; see ``collect_run_outputs``.
    """
    deaths = len(run.deaths)
    with launched(run, pending) as launch:
        engine, pool, about = launch.engine, launch.pool, launch.about
        with sampled(run, engine) as idle:
            missing = measure_pending(run, engine, pool, cells, pending, about, idle)
        # An engine that died in its last cell, or hangs, answers nothing; the next launch gets the last try.
        if not missing and (not pending or (len(run.deaths) == deaths and engine.death() is None)):
            collect_run_outputs(run, engine, last_try=last_try)
        return missing


def _fail(run: Run, cells: tuple[CellSpec, ...], reason: str) -> None:
    """End a run that cannot be finished: write a receipt with the reason and the finished cells.

    Raises:
        EngineError: it is plain; its run stays open, so that a later start tries again.
    """
    if run.connector_id in PLAINS:
        _remove_leftovers(run)
        raise plain_failed(run.connector_id, run.run.phase, reason)
    finish(run, tuple(cell for cell in cells if is_there(run, cell)), failure=reason)
    run.progress.say(f"failed: {reason}. {how_to_try_again(run.run.receipt)}")


def _remove_leftovers(run: Run) -> None:
    for leftover in run.run.cells.glob(".*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    shutil.rmtree(run.run.step_log.parent, ignore_errors=True)


def finish(run: Run, cells: tuple[CellSpec, ...], failure: str | None = None) -> None:
    """Write the run's files beside the finished ``cells``, the receipt last."""
    # A launch killed while it ended its engine left its log unmasked, and no later
    # launch may have been needed.
    clean_logs(run.run.path)
    documents = [read_cell(run.run.cell(cell.cell_id)) for cell in cells]
    write_json(
        run.run.summary,
        SummaryFile(cells={document.cell_id: document.summary for document in documents if document.summary}),
    )
    _remove_leftovers(run)
    recorded = [document for document in documents if document.spec.recorded is not False]
    write_receipt(
        run.run,
        campaign=run.config.campaign,
        status="measured" if failure is None else "failed",
        reason=failure,
        cell_ids=[cell.cell_id for cell in cells],
        step_timing_available=bool(documents)
        and all("engine_step_" in " ".join(document.files) for document in recorded),
        engine=documents[-1].engine if documents else None,
    )
    if failure is None:
        valid = sum(document.verdict == "valid" for document in documents)
        run.progress.say(f"done: {valid} of {len(cells)} cells valid")
