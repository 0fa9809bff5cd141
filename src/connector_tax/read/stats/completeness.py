"""Finds what is missing of a campaign's plan, each configuration's progress, and the seven success criteria
of the published experiment.

Time counts for preflight, and for each launch from its beginning until the engine was gone. Time between
launches, such as nights and interruptions, does not count.
"""

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
from connector_tax.base.records.cell import CellWindow, is_repeat, phase_place
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.decisions import NOT_TESTABLE, REFUTED, SUPPORTED, UNDETERMINED
from connector_tax.base.units import NS_PER_S
from connector_tax.read.ingest import CampaignData, RunData
from connector_tax.read.stats.hypotheses import MAIN, NOOP, STACK, STACKED, is_nixl
from connector_tax.read.stats.launches import MIN_BLOCKS, Launches, complete_blocks, plain_failed
from connector_tax.read.stats.taxes import MissingCell


def missing_cells(data: CampaignData) -> list[MissingCell]:
    """Return the planned cells without a number, in the order of the plan."""
    config = data.config
    rates = None if data.reference_rates is None else data.reference_rates.rates
    missing = []
    for run in data.runs:
        connector, phase = run.folder.connector_id, run.folder.phase
        skipped = run.status == "skipped" and connector in data.skipped
        if skipped or run.status == "not_needed" or connector not in (*config.connector_ids, PLAIN_AGAIN):
            continue
        planned = () if phase != "a" and rates is None else cells_of(config, connector, phase, rates)
        if phase == "a":
            ended = {c.cell_id for c in run.cells if c.window.overloaded}
            planned = until_overload(config, planned, lambda cell, ended=ended: cell.cell_id in ended)  # type: ignore[misc]
        for spec in planned:
            why = _why_missing(data, run, spec.cell_id)
            if why is not None:
                missing.append(MissingCell(connector, phase, spec, *why))
    return missing


def _why_missing(data: CampaignData, run: RunData, cell_id: str) -> tuple[str, bool] | None:
    """Return the code, and whether a problem names it already; None for a cell that counts."""
    cell = next((c for c in run.cells if c.cell_id == cell_id), None)
    if cell is not None:
        return None if cell.usable else ("cell_lost", True)
    cell_path = _relative(data, run) + f"/cells/{cell_id}"
    if any(p.subject == cell_path for p in data.problems):
        return "cell_lost", True
    return (_why_ended(run).code, True) if run.status in ("failed", "skipped") else ("cell_missing", False)


def _why_ended(run: RunData) -> Problem:
    """Return why a run ended without being measured, with the phase."""
    code: ProblemCode = "phase_failed" if run.status == "failed" else "run_skipped"
    return Problem(code, run.folder.phase, detail=run.reason)


def failed_runs(data: CampaignData) -> list[Problem]:
    """Report each failed run with its root cause; runs skipped because of it are not repeated."""
    return [
        Problem("run_failed", _relative(data, run), detail=run.reason)
        for run in data.runs
        if run.status == "failed"
    ]


def missing_cell_problems(data: CampaignData, missing: list[MissingCell]) -> list[Problem]:
    """Report cells that no other problem names, one problem per run."""
    problems = []
    for run in data.runs:
        config_and_phase = run.folder.connector_id, run.folder.phase
        if cell_ids := tuple(
            c.spec.cell_id for c in missing if (c.config, c.phase) == config_and_phase and not c.named
        ):
            problems.append(Problem("cells_missing", _relative(data, run), cell_ids))
    return problems


def missing_repeats(data: CampaignData, absent: dict[str, Problem], launches: Launches) -> list[Problem]:
    """Report planned blocks that lack a launch; configurations skipped everywhere do not count.

    ``failed_blocks`` reports the effect of failed requests.

    Args:
        launches: those of the blocks at ref_safe.
    """
    blocks = [phase for phase, members in data.document.order.items() if PLAIN_AGAIN in members]
    expected_configs = {PLAIN_AGAIN, *data.config.connector_ids} - set(absent)
    ref_safe_per_s = None if data.reference_rates is None else data.reference_rates.ref_safe_per_s
    usable = [
        cell
        for cell in data.cells()
        if cell.usable
        and cell.spec.shape == data.config.phase_a_shape
        and ref_safe_per_s in (None, cell.spec.rate_per_s)
    ]
    problems = []
    for block in blocks:
        missing = expected_configs - {cell.config for cell in usable if cell.phase == block}
        if not is_repeat(block):
            # Missing cells of Phases A and B, and configurations without a run, are reported elsewhere; only
            # plain's second launch is not.
            configs_run = {run.folder.connector_id for run in data.runs if run.folder.phase == block}
            missing &= {PLAIN_AGAIN} if configs_run and PLAIN_AGAIN not in configs_run else set()
        if missing:
            problems.append(Problem("no_cell_in_block", f"phase_{block}", tuple(sorted(missing))))
    complete = len(complete_blocks(launches))
    if blocks and complete < MIN_BLOCKS and not plain_failed(launches):
        numbers: dict[str, float] = {"complete": complete, "of": len(blocks), "needed": MIN_BLOCKS}
        problems.append(Problem("few_blocks", "plain", numbers=numbers))
    return problems


def absent_configs(data: CampaignData) -> dict[str, Problem]:
    """Return configuration -> why it has no numbers, for those without any."""
    measured = {c.config for c in data.cells() if c.usable}
    return {i: _why_absent(data, i) for i in data.config.connector_ids if i not in measured}


def _why_absent(data: CampaignData, config: str) -> Problem:
    runs = _runs_of(data, config)
    if config in data.skipped:
        return Problem("skipped", detail=data.decisions[config].reason or "")
    if failed := [run for run in runs if run.status == "failed"]:
        return _why_ended(failed[0])
    if cells := [cell for cell in data.cells() if cell.config == config]:
        return Problem("no_usable_cell", because=next(iter(cells[0].reasons), None))
    ended = [run for run in runs if run.reason]
    return _why_ended(ended[0]) if ended else Problem("not_measured")


def config_states(
    data: CampaignData, absent: dict[str, Problem], missing: list[MissingCell]
) -> dict[str, ConfigState]:
    """Return ``configs`` of ``aggregate.json``."""
    decisions = data.decisions
    states = {}
    for connector in data.config.connectors:
        connector_id = connector.id
        status, reason = _status(
            data, connector_id, absent.get(connector_id), [c for c in missing if c.config == connector_id]
        )
        states[connector_id] = ConfigState(
            label=connector.label,
            status=status,
            reason=reason,
            install=decisions[connector_id].install if connector_id in decisions else None,
            note=connector.note,
            ttft_is_no_tax=connector.ttft_is_no_tax,
            copies_kv=connector.copies_kv,
        )
    return states


def planned_phases(data: CampaignData, connector_id: str) -> list[str]:
    """Return the phases in which it was to be measured, as far as known."""
    b_prime_needed = data.reference_rates is not None and data.reference_rates.b_prime_needed
    order = [p for p, ids in data.document.order.items() if connector_id in ids]
    b_prime_configs = data.config.phase_b_prime.configs
    return [p for p in order if p != "b_prime" or (b_prime_needed and connector_id in b_prime_configs)]


def _status(
    data: CampaignData, config: str, absent: Problem | None, missing: list[MissingCell]
) -> tuple[ConfigStatus, Problem | None]:
    """Return status and reason; ``measured`` means that all phases have ended and all cells count."""
    if config in data.skipped:
        return "skipped", absent
    runs: dict[str, RunData] = {run.folder.phase: run for run in _runs_of(data, config)}
    failed = [_why_ended(run) for run in runs.values() if run.status == "failed"]
    if failed:
        # It has numbers of another phase, so it was measured in part.
        return ("failed" if absent is not None else "partial"), failed[0]
    ended = {phase for phase, run in runs.items() if run.receipt is not None}
    if not any(run.cells for run in runs.values()):
        return ("failed" if ended else "missing"), absent
    unfinished = {"a", *(planned_phases(data, config) or ("b",)), *runs} - ended
    if unfinished:
        first = min(sorted(unfinished), key=phase_place)
        return "partial", Problem("phase_unfinished" if first in runs else "phase_missing", first)
    if absent is not None:
        return "failed", absent
    problem_by_cell: dict[str, Problem | None] = {f"{c.phase}/{c.spec.cell_id}": None for c in missing}
    for cell in (c for run in runs.values() for c in run.cells if not c.usable):
        problem_by_cell[f"{cell.phase}/{cell.cell_id}"] = next(iter(cell.reasons), None)
    if problem_by_cell:
        name, because = next(iter(problem_by_cell.items()))
        return "partial", Problem(
            "cells_left_out", name, numbers={"cells": len(problem_by_cell)}, because=because
        )
    return "measured", None


def _runs_of(data: CampaignData, config: str) -> list[RunData]:
    return [run for run in data.runs if run.folder.connector_id == config]


def _relative(data: CampaignData, run: RunData) -> str:
    return run.folder.path.relative_to(data.root).as_posix()


# The phases in the published experiment's budget of six hours, beside preflight.
BUDGETED_PHASES = ("a", "b", "b_prime")


def _time_of_run(run: RunData) -> tuple[float, bool]:
    """Return seconds, and whether every launch was timed."""
    timed_s = {x.attempt: x.elapsed_s for x in run.launches if x.elapsed_s is not None}
    windows: dict[int, list[CellWindow]] = {x.attempt: [] for x in run.launches}
    for cell in run.cells:
        windows.setdefault(cell.document.attempt or 1, []).append(cell.window)
    # An untimed launch counts from its first cell to its last.
    span_s = {
        attempt: (max(w.drained_ns for w in cell_windows) - min(w.t0_ns for w in cell_windows)) / NS_PER_S
        if cell_windows
        else 0.0
        for attempt, cell_windows in windows.items()
    }
    return sum((span_s | timed_s).values()), windows.keys() <= timed_s.keys()


# Outcomes of a criterion that asks for numbers, for a decision, and for a supported hypothesis.
NUMBERS: dict[Outcome, CriterionWord] = dict.fromkeys((SUPPORTED, REFUTED, UNDETERMINED), "reported")
KNOWN: dict[Outcome, CriterionWord] = {SUPPORTED: "met", REFUTED: "met", UNDETERMINED: "undetermined"}
HOLDS: dict[Outcome, CriterionWord] = KNOWN | {REFUTED: "not met"}
# The configurations that each hypothesis needs beside plain; H2 also needs one of NIXL's.
NEEDED: dict[HypothesisId, set[str]] = {
    "H1": {MAIN},
    "H2": {MAIN},
    "H3": {MAIN, NOOP},
    "H4": {STACK, *STACKED},
    "H5": {MAIN},
    "H6": {MAIN},
}


def judge_criteria(data: CampaignData, verdicts: list[Hypothesis]) -> list[CriterionOutcome]:
    """Judge the criteria: 1 to 5 require answers of the hypotheses, 6 and 7 concern the campaign itself.

    Criteria 3, 4 and 5 name no configuration: if their registered one is not part of the campaign or was
    skipped, another's answer counts.
    """
    tested = [v for v in verdicts if v.outcome != NOT_TESTABLE]
    main, answered = ({v.id: v for v in reversed(hypotheses)} for hypotheses in (verdicts, tested))
    unasked_ids = {
        i for i, v in main.items() if v.outcome == NOT_TESTABLE and not _could_be_asked(data, v.id)
    }
    others = {i: answered.get(i, v) if i in unasked_ids else v for i, v in main.items()}
    # Both answers of criterion 5 come from one connector if one has both.
    with_h6 = {v.subject for v in tested if v.id == "H6"}
    subjects_of_both = [v.subject for v in tested if v.id == "H5" and v.subject in with_h6]
    if subjects_of_both and {"H5", "H6"} <= unasked_ids:
        others |= {v.id: v for v in verdicts if v.id in ("H5", "H6") and v.subject == subjects_of_both[0]}
    return [
        _answered(data, 1, [main["H1"]]),
        _answered(data, 2, [main["H2"]]),
        _answered(data, 3, [others["H3"]], KNOWN),
        _answered(data, 4, [others["H4"]], HOLDS),
        _answered(data, 5, [others["H5"], others["H6"]]),
        _artifacts(data),
        _wall_clock(data),
    ]


def _answered(
    data: CampaignData,
    number: int,
    verdicts: list[Hypothesis],
    words: dict[Outcome, CriterionWord] = NUMBERS,
) -> CriterionOutcome:
    """Judge a criterion about hypotheses: not met without an answer, undetermined if it was impossible."""
    outcome = words.get(verdicts[0].outcome, "undetermined")
    if missing := [v for v in verdicts if v.outcome == NOT_TESTABLE]:
        outcome = "not met" if any(_could_be_asked(data, v.id) for v in missing) else "undetermined"
    return CriterionOutcome(number=number, outcome=outcome)


def _could_be_asked(data: CampaignData, hypothesis: HypothesisId) -> bool:
    """Return whether the campaign has the configurations and lengths, and preflight allowed them."""
    config = data.config
    measured = {*data.config.connector_ids} - data.skipped
    nixl = any(map(is_nixl, measured))
    lengths = {"H5": config.phase_b_input_tokens, "H6": config.phase_b_output_tokens}.get(hypothesis)
    if lengths is not None and len(lengths) < 2:
        return False
    return NEEDED[hypothesis] <= measured and (hypothesis != "H2" or nixl)


def _artifacts(data: CampaignData) -> CriterionOutcome:
    """Judge whether planned runs have ended, all files exist, and skips have reasons."""
    campaign_documents = {
        "preflight_status.json": data.preflight,
        "reference_rates.json": data.reference_rates,
    }
    faults = [
        Problem("file_missing", name) for name, document in campaign_documents.items() if document is None
    ]
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
    summary = Problem("runs_checked", numbers={"checked": checked, "failed": failed})
    outcome: CriterionWord = "met" if checked and not faults else "not met"
    return CriterionOutcome(number=6, outcome=outcome, evidence=tuple(faults) or (summary,))


def _not_ended(data: CampaignData) -> list[Problem]:
    """Report planned phases without a run, except after a failed phase or a skip by preflight."""
    faults: list[Problem] = []
    for config in data.config.connector_ids:
        runs = _runs_of(data, config)
        if config not in data.skipped and not any(r.status == "failed" for r in runs):
            missing = {"a", "b", *planned_phases(data, config)} - {r.folder.phase for r in runs}
            faults += [
                Problem("phase_missing", phase, (config,)) for phase in sorted(missing, key=phase_place)
            ]
    return faults


def _name(run: RunData) -> str:
    return f"{run.folder.connector_id}/{run.folder.phase}"


def _wall_clock(data: CampaignData) -> CriterionOutcome:
    """Judge the time of preflight and Phases A, B and B', as published; the evidence lists all parts.

    Parts are whole seconds, so that they add up.
    """
    n_runs, n_untimed = 0, 0
    by_phase: dict[str, float] = {}
    for run in data.runs:
        if not run.cells and not run.launches:
            # A run that failed without a launch record was launched all the same.
            failed = run.status == "failed"
            n_runs, n_untimed = n_runs + failed, n_untimed + failed
            continue
        seconds, timed = _time_of_run(run)
        n_runs, n_untimed = n_runs + 1, n_untimed + (not timed)
        by_phase[run.folder.phase] = by_phase.get(run.folder.phase, 0.0) + seconds
    if not n_runs:
        evidence_of_none = (Problem("nothing_launched"),)
        return CriterionOutcome(number=7, outcome="undetermined", evidence=evidence_of_none)
    elapsed_s = data.preflight.elapsed_s if data.preflight is not None else None
    preflight_s = round(elapsed_s) if isinstance(elapsed_s, float) else None
    phase_totals_s = {phase: round(by_phase[phase]) for phase in sorted(by_phase, key=phase_place)}
    budgeted_s = (preflight_s or 0) + sum(phase_totals_s.get(phase, 0) for phase in BUDGETED_PHASES)
    evidence = [Problem("time_spent", numbers={"time_s": budgeted_s})]
    if preflight_s is None:
        evidence.append(Problem("preflight_untimed"))
    else:
        evidence.append(Problem("preflight_took", numbers={"time_s": preflight_s}))
    evidence += [
        Problem("phase_took", phase, numbers={"time_s": phase_s}) for phase, phase_s in phase_totals_s.items()
    ]
    if n_untimed:
        evidence.append(Problem("runs_untimed", numbers={"untimed": n_untimed, "of": n_runs}))
    # Untimed runs could only increase the sum.
    outcome: CriterionWord = "undetermined"
    if budgeted_s > 3600 * data.config.analysis.time_budget_h:
        outcome = "not met"
    elif preflight_s is not None and not n_untimed:
        outcome = "met"
    return CriterionOutcome(number=7, outcome=outcome, evidence=tuple(evidence))
