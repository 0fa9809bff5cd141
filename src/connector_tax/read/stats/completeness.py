"""What a campaign lacks of what was planned, and how far each configuration got."""

from connector_tax.base.documents.aggregate import ConfigState, ConfigStatus, Problem, ProblemCode
from connector_tax.base.documents.receipt import Decision
from connector_tax.base.errors import ArtifactError
from connector_tax.base.plan import cells_of, config_of, until_overload
from connector_tax.base.records.cell import CellSpec, Shape, is_repeat, phase_place
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.ingest import CampaignData, CellData, RunData
from connector_tax.read.stats.launches import MIN_BLOCKS, Launches, complete_blocks, plain_failed
from connector_tax.read.stats.taxes import LostCell


def lost_cells(data: CampaignData) -> list[LostCell]:
    """In the order of the plan; none where ``campaign.json`` is of another version, since the plan is not known then."""
    try:
        config = config_of(data.document)
    except (ArtifactError, LookupError, AttributeError, TypeError, ValueError):
        return []
    decisions = data.decisions
    skipped = {i for i, d in decisions.items() if d.decision == "skip"}
    rates = None if data.reference_rates is None else data.reference_rates.rates
    found = []
    for run in data.runs:
        connector, phase = run.folder.connector_id, run.folder.phase
        ended_otherwise = run.receipt is not None and (
            run.receipt.status == "not_needed" or (run.receipt.status == "skipped" and connector in skipped)
        )
        if ended_otherwise or connector not in (*config.connector_ids, PLAIN_AGAIN):
            continue
        planned = () if phase != "a" and rates is None else cells_of(config, connector, phase, rates)
        if phase not in ("a", "c") and _at_other_rates(run, planned):
            continue
        if phase == "a":
            ended = {c.cell_id for c in run.cells if c.window.overloaded}
            planned = until_overload(config, planned, lambda cell, ended=ended: cell.cell_id in ended)  # type: ignore[misc]
        for spec in planned:
            why = _why_lost(data, run, spec.cell_id)
            if why is not None:
                found.append(LostCell(connector, phase, spec, *why))
    return found


def _at_other_rates(run: RunData, planned: tuple[CellSpec, ...]) -> bool:
    """Whether it was measured before the reference rates became what they are: its plan was another one."""
    wanted = {(spec.shape, spec.rate_per_s) for spec in planned}
    return bool(run.cells) and all((c.spec.shape, c.spec.rate_per_s) not in wanted for c in run.cells)


def _why_lost(data: CampaignData, run: RunData, cell_id: str) -> tuple[str, bool] | None:
    """The code, and whether a problem names it already; None of a cell that counts."""
    cell = next((c for c in run.cells if c.cell_id == cell_id), None)
    if cell is not None:
        return None if cell.usable else ("cell_lost", True)
    where = _relative(data, run) + f"/cells/{cell_id}"
    if any(p.subject == where for p in data.problems):
        return "cell_lost", True
    if run.receipt is not None and run.receipt.status in ("failed", "skipped"):
        return "phase_failed" if run.receipt.status == "failed" else "run_skipped", True
    return "cell_missing", False


def _why_ended(run: RunData) -> Problem:
    """Of a run that ended without being measured; names the phase in which it failed."""
    assert run.receipt is not None
    code: ProblemCode = "phase_failed" if run.receipt.status == "failed" else "run_skipped"
    return Problem(code, run.folder.phase, detail=run.receipt.reason or "")


def failed_runs(data: CampaignData) -> list[Problem]:
    """Each with its root cause; runs that were left out because of it are not named again."""
    return [
        Problem("run_failed", _relative(data, run), detail=run.receipt.reason or "")
        for run in data.runs
        if run.receipt is not None and run.receipt.status == "failed"
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
    config = data.document.config
    blocks = [phase for phase, members in data.document.order.items() if PLAIN_AGAIN in members]
    wanted = {PLAIN_AGAIN, *(c["id"] for c in config["connectors"])} - set(absent)
    shape = Shape(**config["phase_a_shape"])
    safe = None if data.reference_rates is None else data.reference_rates.ref_safe_per_s
    lacking = {
        block: wanted - {c.config for c in data.cells() if _is_of_block(c, block, shape, safe)}
        for block in blocks
    }
    # Phases A and B have planned cells, of which each that is missing is named already, and a configuration without a run is
    # said to be missing. Plain's second launch is none.
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
    for connector in data.document.config["connectors"]:
        i = connector["id"]
        if i in measured:
            continue
        decision = data.decisions.get(i)
        runs = [r for r in data.runs if r.folder.connector_id == i]
        failed = [r for r in runs if r.receipt is not None and r.receipt.status == "failed"]
        cells = [c for c in data.cells() if c.config == i]
        if decision is not None and decision.decision == "skip":
            reasons[i] = Problem("skipped", detail=decision.reason or "")
        elif failed:
            reasons[i] = _why_ended(failed[0])
        elif cells:
            reasons[i] = Problem("no_usable_cell", because=next(iter(cells[0].reasons), None))
        else:
            ended = [r for r in runs if r.receipt is not None and r.receipt.reason]
            reasons[i] = _why_ended(ended[0]) if ended else Problem("not_measured")
    return reasons


def config_states(
    data: CampaignData, absent: dict[str, Problem], lost: list[LostCell]
) -> dict[str, ConfigState]:
    """``configs`` in ``aggregate.json``."""
    decisions = data.decisions
    found = {}
    for connector in data.document.config["connectors"]:
        i = connector["id"]
        runs: dict[str, RunData] = {r.folder.phase: r for r in data.runs if r.folder.connector_id == i}
        own = [c for c in lost if c.config == i]
        phases = {"a", *(planned_phases(data, i) or ("b",)), *runs}
        status, reason = _status(runs, sorted(phases), decisions.get(i), absent.get(i), own)
        found[i] = ConfigState(
            label=connector["label"],
            status=status,
            reason=reason,
            install=decisions[i].install if i in decisions else None,
            note=connector["note"],
            ttft_is_no_tax=connector.get("ttft_is_no_tax"),
            copies_kv=connector.get("copies_kv"),
        )
    return found


def planned_phases(data: CampaignData, connector_id: str) -> list[str]:
    """In which it was to be measured, as far as that is known."""
    prime = data.document.config.get("phase_b_prime") or {}
    wanted = data.reference_rates is not None and data.reference_rates.b_prime_needed
    order = [p for p, ids in data.document.order.items() if connector_id in ids]
    return [p for p in order if p != "b_prime" or (wanted and connector_id in prime.get("configs", ()))]


def _status(
    runs: dict[str, RunData],
    phases: list[str],
    decision: Decision | None,
    absent: Problem | None,
    lost: list[LostCell],
) -> tuple[ConfigStatus, Problem | None]:
    """Word and reason; ``measured`` says that every phase has ended and each planned cell counts."""
    receipts = {phase: run.receipt for phase, run in runs.items()}
    if decision is not None and decision.decision == "skip":
        return "skipped", absent
    failed = [_why_ended(r) for r in runs.values() if r.receipt is not None and r.receipt.status == "failed"]
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
