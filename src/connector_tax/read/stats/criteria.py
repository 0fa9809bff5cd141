"""The seven success criteria of the published experiment, as a checklist with evidence."""

from connector_tax.base.artifacts.layout import RUN_FILES
from connector_tax.base.documents.aggregate import (
    CriterionOutcome,
    CriterionWord,
    HypothesisId,
    Outcome,
    Problem,
)
from connector_tax.base.files import is_regular
from connector_tax.base.records.cell import phase_place
from connector_tax.base.statistics.outcomes import NOT_TESTABLE, REFUTED, SUPPORTED, UNDETERMINED
from connector_tax.read.ingest import CampaignData, RunData
from connector_tax.read.stats.completeness import planned_phases
from connector_tax.read.stats.hypotheses import MAIN, NOOP, STACK, STACKED, is_nixl
from connector_tax.read.stats.time_spent import time_spent
from connector_tax.read.stats.verdicts import Verdict

REPORTED: CriterionWord = "reported"
MET: CriterionWord = "met"
NOT_MET: CriterionWord = "not met"
OPEN: CriterionWord = "undetermined"
# A criterion that asks for numbers, one that asks for a decision, and one that asks that its hypothesis holds.
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


def judge_criteria(data: CampaignData, verdicts: list[Verdict]) -> list[CriterionOutcome]:
    """Criteria 1 to 5 ask whether a question got its answer, 6 and 7 about the campaign itself.

    3, 4 and 5 name no configuration: where the one that they were registered for is not part of the campaign or was skipped, the
    answer about another one counts.
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


def _has(verdicts: list[Verdict], hypothesis: HypothesisId, subject: str) -> bool:
    return any((v.id, v.subject) == (hypothesis, subject) and v.outcome != NOT_TESTABLE for v in verdicts)


def _answered(
    data: CampaignData,
    number: int,
    verdicts: list[Verdict],
    words: dict[Outcome, CriterionWord] = NUMBERS,
) -> CriterionOutcome:
    """Judge a criterion about hypotheses: not met where an answer was lost, undetermined where the campaign could not give one."""
    missing = [v for v in verdicts if v.outcome == NOT_TESTABLE]
    if missing:
        outcome = NOT_MET if any(_could_be_asked(data, v.id) for v in missing) else OPEN
    else:
        outcome = words[verdicts[0].outcome]
    return CriterionOutcome(number=number, outcome=outcome)


def _is_lacking(data: CampaignData, verdict: Verdict) -> bool:
    return verdict.outcome == NOT_TESTABLE and not _could_be_asked(data, verdict.id)


def _could_be_asked(data: CampaignData, hypothesis: HypothesisId) -> bool:
    """Whether the campaign has the configurations and lengths, and preflight let them be measured."""
    config = data.document.config
    skipped = {i for i, decision in data.decisions.items() if decision.decision == "skip"}
    measured = {c["id"] for c in config["connectors"]} - skipped
    nixl = any(map(is_nixl, measured))
    lengths = {"H5": "phase_b_input_tokens", "H6": "phase_b_output_tokens"}.get(hypothesis)
    if lengths is not None and len(config.get(lengths) or ()) < 2:
        return False
    return NEEDED[hypothesis] <= measured and (hypothesis != "H2" or nixl)


def _artifacts(data: CampaignData) -> CriterionOutcome:
    """Every run that was planned has ended, and has all its files if it measured; so has the campaign; every skip has a reason."""
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
        elif run.receipt.reason:
            failed += run.receipt.status == "failed"
        else:
            faults.append(Problem("no_reason", _name(run)))
    well = Problem("runs_checked", numbers={"checked": checked, "failed": failed})
    outcome = MET if checked and not faults else NOT_MET
    return CriterionOutcome(number=6, outcome=outcome, evidence=tuple(faults) or (well,))


def _not_ended(data: CampaignData) -> list[Problem]:
    """Planned phases without a run; what follows a failed phase is not measured any more, and what preflight skips never is."""
    skipped = {i for i, decision in data.decisions.items() if decision.decision == "skip"}
    faults: list[Problem] = []
    for connector in data.document.config["connectors"]:
        config = connector["id"]
        runs = {r.folder.phase: r.receipt for r in data.runs if r.folder.connector_id == config}
        failed = any(receipt is not None and receipt.status == "failed" for receipt in runs.values())
        if failed or config in skipped:
            continue
        phases = sorted({"a", "b", *planned_phases(data, config)} - runs.keys(), key=phase_place)
        faults += [Problem("phase_missing", phase, (config,)) for phase in phases]
    return faults


def _name(run: RunData) -> str:
    return f"{run.folder.connector_id}/{run.folder.phase}"


def _wall_clock(data: CampaignData) -> CriterionOutcome:
    """Preflight and Phases A, B and B' decide, as published."""
    spent = time_spent(data)
    # What was not timed would only add to the sum.
    outcome = OPEN
    if spent.budgeted_s > 3600 * float(data.document.config["analysis"]["time_budget_h"]):
        outcome = NOT_MET
    elif spent.runs and spent.preflight_s is not None and not spent.untimed_runs:
        outcome = MET
    return CriterionOutcome(number=7, outcome=outcome, evidence=spent.evidence)
