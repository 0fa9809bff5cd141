"""The time that a campaign took: preflight, and each launch from its beginning until the engine was gone.

What lay between launches is not in it: a night, an interruption, a machine that was away.
"""

from collections.abc import Iterable

from connector_tax.base.documents.aggregate import TimeSpent
from connector_tax.base.records.cell import phase_place
from connector_tax.base.units import NS_PER_S
from connector_tax.read.ingest import CampaignData, CellData, RunData

# What the published experiment's six hours are meant for, beside preflight.
BUDGETED_PHASES = ("a", "b", "b_prime")


def time_spent(data: CampaignData) -> TimeSpent:
    """From what preflight and the launches wrote; of what they did not, from the cells."""
    by_phase: dict[str, float] = {}
    runs, untimed = 0, 0
    for run in data.runs:
        if not run.cells and not run.launches:
            # Whoever failed without a record of a launch, as runs did before launches were timed, was launched all the same.
            failed = run.receipt is not None and run.receipt.status == "failed"
            runs, untimed = runs + failed, untimed + failed
            continue
        runs += 1
        seconds, timed = _of_run(run)
        untimed += not timed
        by_phase[run.folder.phase] = by_phase.get(run.folder.phase, 0.0) + seconds
    in_order = {p: round(by_phase[p]) for p in sorted(by_phase, key=phase_place)}
    told = data.preflight.elapsed_s if data.preflight is not None else None
    preflight = round(told) if isinstance(told, float) else None
    return TimeSpent(
        preflight_s=preflight,
        by_phase_s=in_order,
        budgeted_s=(preflight or 0) + sum(in_order.get(p, 0) for p in BUDGETED_PHASES),
        budget_s=3600 * float(data.document.config["analysis"]["time_budget_h"]),
        runs=runs,
        untimed_runs=untimed,
    )


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
