"""What a campaign lacks of what was planned, how far each configuration got, and the seven success criteria
of the published experiment.

Time is that of preflight, and of each launch from its beginning until the engine was gone. What lay between
launches is not in it: a night, an interruption, a machine that was away.
"""

from collections.abc import Iterable

from connector_tax.base.artifacts.layout import RUN_FILES
from connector_tax.base.documents.aggregate import (
    ConfigState,
    ConfigStatus,
    CriterionOutcome,
    CriterionWord,
    Hypothesis,
    HypothesisId,
    Outcome,
    Problem,
    ProblemCode,
)
from connector_tax.base.files import is_regular
from connector_tax.base.plan import cells_of, until_overload
from connector_tax.base.records.cell import Shape, is_repeat, phase_place
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.outcomes import NOT_TESTABLE, REFUTED, SUPPORTED, UNDETERMINED
from connector_tax.base.units import NS_PER_S
from connector_tax.read.ingest import CampaignData, CellData, RunData
from connector_tax.read.stats.hypotheses import MAIN, NOOP, STACK, STACKED, is_nixl
from connector_tax.read.stats.launches import MIN_BLOCKS, Launches, complete_blocks, plain_failed
from connector_tax.read.stats.taxes import LostCell


def lost_cells(data: CampaignData) -> list[LostCell]:
    """In the order of the plan."""
    config = data.config
    rates = None if data.reference_rates is None else data.reference_rates.rates
    found = []
    for run in data.runs:
        connector, phase = run.folder.connector_id, run.folder.phase
        ended_otherwise = run.status == "not_needed" or (
            run.status == "skipped" and connector in data.skipped
        )
        if ended_otherwise or connector not in (*config.connector_ids, PLAIN_AGAIN):
            continue
        planned = () if phase != "a" and rates is None else cells_of(config, connector, phase, rates)
        if phase == "a":
            ended = {c.cell_id for c in run.cells if c.window.overloaded}
            planned = until_overload(config, planned, lambda cell, ended=ended: cell.cell_id in ended)  # type: ignore[misc]
        for spec in planned:
            why = _why_lost(data, run, spec.cell_id)
            if why is not None:
                found.append(LostCell(connector, phase, spec, *why))
    return found


def _why_lost(data: CampaignData, run: RunData, cell_id: str) -> tuple[str, bool] | None:
    """The code, and whether a problem names it already; None of a cell that counts."""
    cell = next((c for c in run.cells if c.cell_id == cell_id), None)
    if cell is not None:
        return None if cell.usable else ("cell_lost", True)
    where = _relative(data, run) + f"/cells/{cell_id}"
    if any(p.subject == where for p in data.problems):
        return "cell_lost", True
    if run.status in ("failed", "skipped"):
        return "phase_failed" if run.status == "failed" else "run_skipped", True
    return "cell_missing", False


def _why_ended(run: RunData) -> Problem:
    """Of a run that ended without being measured; names the phase in which it failed."""
    code: ProblemCode = "phase_failed" if run.status == "failed" else "run_skipped"
    return Problem(code, run.folder.phase, detail=run.reason)


def failed_runs(data: CampaignData) -> list[Problem]:
    """Each with its root cause; runs that were left out because of it are not named again."""
    return [
        Problem("run_failed", _relative(data, run), detail=run.reason)
        for run in data.runs
        if run.status == "failed"
    ]


def missing_cells(data: CampaignData, lost: list[LostCell]) -> list[Problem]:
    """One per run, of the cells that nothing else names."""
    found = []
    for run in data.runs:
        own = tuple(
            c.spec.cell_id
            for c in lost
            if (c.config, c.phase) == (run.folder.connector_id, run.folder.phase) and not c.named
        )
        if own:
            found.append(Problem("cells_missing", _relative(data, run), own))
    return found


def missing_repeats(data: CampaignData, absent: dict[str, Problem], launches: Launches) -> list[Problem]:
    """Blocks that were asked for and lack a launch; what is skipped everywhere is no loss of a block.

    Of requests that failed in one, ``failed_blocks`` says what follows.

    Args:
        launches: those of the blocks at ref_safe.
    """
    blocks = [phase for phase, members in data.document.order.items() if PLAIN_AGAIN in members]
    wanted = {PLAIN_AGAIN, *data.config.connector_ids} - set(absent)
    shape = data.config.phase_a_shape
    safe = None if data.reference_rates is None else data.reference_rates.ref_safe_per_s
    lacking = {
        block: wanted - {c.config for c in data.cells() if _is_of_block(c, block, shape, safe)}
        for block in blocks
    }
    # Phases A and B have planned cells, of which each that is missing is named already, and a configuration
    # without a run is said to be missing. Plain's second launch is none.
    gone = {b for b in blocks if not is_repeat(b) and _has_no_run(data, PLAIN_AGAIN, b)}
    found = [
        Problem("no_cell_in_block", f"phase_{block}", tuple(sorted(ids)))
        for block, members in lacking.items()
        if (ids := members if is_repeat(block) else members & {PLAIN_AGAIN} if block in gone else set())
    ]
    whole = complete_blocks(launches)
    if blocks and len(whole) < MIN_BLOCKS and not plain_failed(launches):
        found.append(
            Problem(
                "few_blocks",
                "plain",
                numbers={"complete": len(whole), "of": len(blocks), "needed": MIN_BLOCKS},
            )
        )
    return found


def _has_no_run(data: CampaignData, config: str, phase: str) -> bool:
    """Of a phase that began."""
    runs = {run.folder.connector_id for run in data.runs if run.folder.phase == phase}
    return bool(runs) and config not in runs


def _is_of_block(cell: CellData, block: str, shape: Shape, rate_per_s: float | None) -> bool:
    there = cell.phase == block and cell.usable and cell.spec.shape == shape
    return there and rate_per_s in (None, cell.spec.rate_per_s)


def absent_configs(data: CampaignData) -> dict[str, Problem]:
    """config -> why it has no numbers; configurations with numbers are not in it."""
    reasons: dict[str, Problem] = {}
    measured = {c.config for c in data.cells() if c.usable}
    for i in data.config.connector_ids:
        if i in measured:
            continue
        runs = [r for r in data.runs if r.folder.connector_id == i]
        failed = [r for r in runs if r.status == "failed"]
        cells = [c for c in data.cells() if c.config == i]
        if i in data.skipped:
            reasons[i] = Problem("skipped", detail=data.decisions[i].reason or "")
        elif failed:
            reasons[i] = _why_ended(failed[0])
        elif cells:
            reasons[i] = Problem("no_usable_cell", because=next(iter(cells[0].reasons), None))
        else:
            ended = [r for r in runs if r.reason]
            reasons[i] = _why_ended(ended[0]) if ended else Problem("not_measured")
    return reasons


def config_states(
    data: CampaignData, absent: dict[str, Problem], lost: list[LostCell]
) -> dict[str, ConfigState]:
    """``configs`` in ``aggregate.json``."""
    decisions = data.decisions
    found = {}
    for connector in data.config.connectors:
        i = connector.id
        runs: dict[str, RunData] = {r.folder.phase: r for r in data.runs if r.folder.connector_id == i}
        own = [c for c in lost if c.config == i]
        phases = {"a", *(planned_phases(data, i) or ("b",)), *runs}
        status, reason = _status(runs, sorted(phases), i in data.skipped, absent.get(i), own)
        found[i] = ConfigState(
            label=connector.label,
            status=status,
            reason=reason,
            install=decisions[i].install if i in decisions else None,
            note=connector.note,
            ttft_is_no_tax=connector.ttft_is_no_tax,
            copies_kv=connector.copies_kv,
        )
    return found


def planned_phases(data: CampaignData, connector_id: str) -> list[str]:
    """In which it was to be measured, as far as that is known."""
    wanted = data.reference_rates is not None and data.reference_rates.b_prime_needed
    order = [p for p, ids in data.document.order.items() if connector_id in ids]
    prime = data.config.phase_b_prime.configs
    return [p for p in order if p != "b_prime" or (wanted and connector_id in prime)]


def _status(
    runs: dict[str, RunData],
    phases: list[str],
    skipped: bool,
    absent: Problem | None,
    lost: list[LostCell],
) -> tuple[ConfigStatus, Problem | None]:
    """Word and reason; ``measured`` says that every phase has ended and each planned cell counts."""
    receipts = {phase: run.receipt for phase, run in runs.items()}
    if skipped:
        return "skipped", absent
    failed = [_why_ended(r) for r in runs.values() if r.status == "failed"]
    if failed:
        # With numbers of another phase it is in the figures and has taxes, so it was measured in part.
        return ("failed" if absent is not None else "partial"), failed[0]
    if not any(run.cells for run in runs.values()):
        return ("failed" if any(receipts.values()) else "missing"), absent
    unfinished = sorted((p for p in phases if receipts.get(p) is None), key=phase_place)
    if unfinished:
        first = unfinished[0]
        return "partial", Problem("phase_unfinished" if first in runs else "phase_missing", first)
    if absent is not None:
        return "failed", absent
    why: dict[str, Problem | None] = {f"{c.phase}/{c.spec.cell_id}": None for c in lost}
    for cell in (c for run in runs.values() for c in run.cells if not c.usable):
        why[f"{cell.phase}/{cell.cell_id}"] = next(iter(cell.reasons), None)
    if why:
        name, because = next(iter(why.items()))
        return "partial", Problem("cells_left_out", name, numbers={"cells": len(why)}, because=because)
    return "measured", None


def _relative(data: CampaignData, run: RunData) -> str:
    return run.folder.path.relative_to(data.root).as_posix()


# What the published experiment's six hours are meant for, beside preflight.
BUDGETED_PHASES = ("a", "b", "b_prime")


def _of_run(run: RunData) -> tuple[float, bool]:
    """Seconds, and whether every launch was timed."""
    timed = {x.attempt: x.elapsed_s for x in run.launches if x.elapsed_s is not None}
    cells: dict[int, list[CellData]] = {}
    for cell in run.cells:
        cells.setdefault(cell.document.attempt or 1, []).append(cell)
    attempts = {*cells, *(x.attempt for x in run.launches)}
    seconds = sum(timed[a] if a in timed else _span_s(cells.get(a, ())) for a in attempts)
    return seconds, attempts <= timed.keys()


def _span_s(cells: Iterable[CellData]) -> float:
    """From the first cell of one launch to its last."""
    windows = [c.window for c in cells]
    if not windows:
        return 0.0
    return (max(w.drained_ns for w in windows) - min(w.t0_ns for w in windows)) / NS_PER_S


REPORTED: CriterionWord = "reported"
MET: CriterionWord = "met"
NOT_MET: CriterionWord = "not met"
OPEN: CriterionWord = "undetermined"
# A criterion that asks for numbers, one that asks for a decision, and one that asks that its hypothesis
# holds.
NUMBERS: dict[Outcome, CriterionWord] = dict.fromkeys((SUPPORTED, REFUTED, UNDETERMINED), REPORTED)
KNOWN: dict[Outcome, CriterionWord] = {SUPPORTED: MET, REFUTED: MET, UNDETERMINED: OPEN}
HOLDS: dict[Outcome, CriterionWord] = KNOWN | {REFUTED: NOT_MET}
# What each hypothesis is about, plain aside; of H2 beside one of NIXL's configurations.
NEEDED: dict[HypothesisId, set[str]] = {
    "H1": {MAIN},
    "H2": {MAIN},
    "H3": {MAIN, NOOP},
    "H4": {STACK, *STACKED},
    "H5": {MAIN},
    "H6": {MAIN},
}


def judge_criteria(data: CampaignData, verdicts: list[Hypothesis]) -> list[CriterionOutcome]:
    """Criteria 1 to 5 ask whether a question got its answer, 6 and 7 about the campaign itself.

    3, 4 and 5 name no configuration: where the one that they were registered for is not part of the campaign
    or was skipped, the answer about another one counts.
    """
    main = {v.id: v for v in reversed(verdicts)}
    answered = {v.id: v for v in reversed(verdicts) if v.outcome != NOT_TESTABLE}
    others = {i: answered.get(i, v) if _is_lacking(data, v) else v for i, v in main.items()}
    # The two of criterion 5 are about one connector wherever one has both.
    of_one = [
        v for v in verdicts if v.id == "H5" and v.outcome != NOT_TESTABLE and _has(verdicts, "H6", v.subject)
    ]
    if of_one and _is_lacking(data, main["H5"]) and _is_lacking(data, main["H6"]):
        subject = of_one[0].subject
        others |= {v.id: v for v in verdicts if v.id in ("H5", "H6") and v.subject == subject}
    return [
        _answered(data, 1, [main["H1"]]),
        _answered(data, 2, [main["H2"]]),
        _answered(data, 3, [others["H3"]], KNOWN),
        _answered(data, 4, [others["H4"]], HOLDS),
        _answered(data, 5, [others["H5"], others["H6"]]),
        _artifacts(data),
        _wall_clock(data),
    ]


def _has(verdicts: list[Hypothesis], hypothesis: HypothesisId, subject: str) -> bool:
    return any((v.id, v.subject) == (hypothesis, subject) and v.outcome != NOT_TESTABLE for v in verdicts)


def _answered(
    data: CampaignData,
    number: int,
    verdicts: list[Hypothesis],
    words: dict[Outcome, CriterionWord] = NUMBERS,
) -> CriterionOutcome:
    """Judge a criterion about hypotheses: not met where an answer was lost, undetermined where the campaign
    could not give one."""
    missing = [v for v in verdicts if v.outcome == NOT_TESTABLE]
    if missing:
        outcome = NOT_MET if any(_could_be_asked(data, v.id) for v in missing) else OPEN
    else:
        outcome = words[verdicts[0].outcome]
    return CriterionOutcome(number=number, outcome=outcome)


def _is_lacking(data: CampaignData, verdict: Hypothesis) -> bool:
    return verdict.outcome == NOT_TESTABLE and not _could_be_asked(data, verdict.id)


def _could_be_asked(data: CampaignData, hypothesis: HypothesisId) -> bool:
    """Whether the campaign has the configurations and lengths, and preflight let them be measured."""
    config = data.config
    measured = {*data.config.connector_ids} - data.skipped
    nixl = any(map(is_nixl, measured))
    lengths = {"H5": config.phase_b_input_tokens, "H6": config.phase_b_output_tokens}.get(hypothesis)
    if lengths is not None and len(lengths) < 2:
        return False
    return NEEDED[hypothesis] <= measured and (hypothesis != "H2" or nixl)


def _artifacts(data: CampaignData) -> CriterionOutcome:
    """Every run that was planned has ended, and has all its files if it measured; so has the campaign; every
    skip has a reason."""
    of_campaign = {"preflight_status.json": data.preflight, "reference_rates.json": data.reference_rates}
    faults = [Problem("file_missing", name) for name, document in of_campaign.items() if document is None]
    faults += _not_ended(data)
    checked = failed = 0
    for run in data.runs:
        if run.receipt is None:
            faults.append(Problem("no_receipt", _name(run)))
        elif run.receipt.status == "measured":
            checked += 1
            unrecorded = {
                c.cell_id for c in run.cells if c.spec.recorded is False or c.document.steps_left_out
            }
            missing = [name for name in RUN_FILES if not is_regular(run.folder.path / name)]
            for entry in run.receipt.cells:
                cell = run.folder.cell(entry.cell_id)
                streams = [cell.requests, cell.metrics]
                if run.receipt.step_timing_available and entry.cell_id not in unrecorded:
                    streams.append(cell.engine_step)
                missing += [f.name for f in streams if not is_regular(f)]
            faults += [Problem("file_missing", f"{_name(run)}/{m}") for m in missing]
        elif run.reason:
            failed += run.status == "failed"
        else:
            faults.append(Problem("no_reason", _name(run)))
    well = Problem("runs_checked", numbers={"checked": checked, "failed": failed})
    outcome = MET if checked and not faults else NOT_MET
    return CriterionOutcome(number=6, outcome=outcome, evidence=tuple(faults) or (well,))


def _not_ended(data: CampaignData) -> list[Problem]:
    """Planned phases without a run; what follows a failed phase is not measured any more, and what preflight
    skips never is."""
    faults: list[Problem] = []
    for config in data.config.connector_ids:
        runs = [r for r in data.runs if r.folder.connector_id == config]
        if config in data.skipped or any(r.status == "failed" for r in runs):
            continue
        missing = {"a", "b", *planned_phases(data, config)} - {r.folder.phase for r in runs}
        phases = sorted(missing, key=phase_place)
        faults += [Problem("phase_missing", phase, (config,)) for phase in phases]
    return faults


def _name(run: RunData) -> str:
    return f"{run.folder.connector_id}/{run.folder.phase}"


def _wall_clock(data: CampaignData) -> CriterionOutcome:
    """Preflight and Phases A, B and B' decide, as published; the evidence has their sum, its parts, and what
    else took time.

    Parts are whole seconds, so that they add up.
    """
    runs, untimed = 0, 0
    by_phase: dict[str, float] = {}
    for run in data.runs:
        if not run.cells and not run.launches:
            # Whoever failed without a record of a launch was launched all the same.
            failed = run.status == "failed"
            runs, untimed = runs + failed, untimed + failed
            continue
        seconds, timed = _of_run(run)
        runs, untimed = runs + 1, untimed + (not timed)
        by_phase[run.folder.phase] = by_phase.get(run.folder.phase, 0.0) + seconds
    if not runs:
        return CriterionOutcome(number=7, outcome=OPEN, evidence=(Problem("nothing_launched"),))
    told = data.preflight.elapsed_s if data.preflight is not None else None
    preflight_s = round(told) if isinstance(told, float) else None
    whole_s = {phase: round(by_phase[phase]) for phase in sorted(by_phase, key=phase_place)}
    budgeted_s = (preflight_s or 0) + sum(whole_s.get(phase, 0) for phase in BUDGETED_PHASES)
    evidence = [Problem("time_spent", numbers={"time_s": budgeted_s})]
    if preflight_s is None:
        evidence.append(Problem("preflight_untimed"))
    else:
        evidence.append(Problem("preflight_took", numbers={"time_s": preflight_s}))
    evidence += [Problem("phase_took", phase, numbers={"time_s": own}) for phase, own in whole_s.items()]
    if untimed:
        evidence.append(Problem("runs_untimed", numbers={"untimed": untimed, "of": runs}))
    # What was not timed would only add to the sum.
    outcome = OPEN
    if budgeted_s > 3600 * data.config.analysis.time_budget_h:
        outcome = NOT_MET
    elif preflight_s is not None and not untimed:
        outcome = MET
    return CriterionOutcome(number=7, outcome=outcome, evidence=tuple(evidence))
