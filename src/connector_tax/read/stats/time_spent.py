"""The time that a campaign took: preflight, and each launch from its beginning until the engine was gone.

What lay between launches is not in it: a night, an interruption, a machine that was away.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.records.cell import phase_place
from connector_tax.base.units import NS_PER_S
from connector_tax.read.ingest import CampaignData, CellData, RunData

# What the published experiment's six hours are meant for, beside preflight.
BUDGETED_PHASES = ("a", "b", "b_prime")


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Whole seconds, so that sums of them add up.

    Attributes:
        preflight_s: None where it was not timed.
        by_phase_s: of the phases in which something was launched, in the order in which they are measured.
        runs: how many launched something.
        untimed_runs: those of them of which a launch was not timed; its cells alone count.
    """

    preflight_s: int | None
    by_phase_s: dict[str, int]
    runs: int
    untimed_runs: int

    @property
    def budgeted_s(self) -> int:
        return (self.preflight_s or 0) + sum(self.by_phase_s.get(p, 0) for p in BUDGETED_PHASES)

    @property
    def evidence(self) -> tuple[Problem, ...]:
        """The sum that the budget is for, its parts, and what else took time."""
        if not self.runs:
            return (Problem("nothing_launched"),)
        found = [Problem("time_spent", numbers={"time_s": self.budgeted_s})]
        if self.preflight_s is None:
            found.append(Problem("preflight_untimed"))
        else:
            found.append(Problem("preflight_took", numbers={"time_s": self.preflight_s}))
        for phase, seconds in self.by_phase_s.items():
            found.append(Problem("phase_took", phase, numbers={"time_s": seconds}))
        if self.untimed_runs:
            found.append(Problem("runs_untimed", numbers={"untimed": self.untimed_runs, "of": self.runs}))
        return tuple(found)


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
    return TimeSpent(round(told) if isinstance(told, float) else None, in_order, runs, untimed)


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
