"""The time that a campaign took: preflight, and each launch from its beginning until the engine was gone.

What lay between launches is not in it: a night, an interruption, a machine that was away.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from connector_tax.base.records.cell import is_repeat, phase_place
from connector_tax.base.units import NS_PER_S, exact_duration
from connector_tax.read.ingest import CampaignData, CellData, RunData

# What the published experiment's six hours are meant for, beside preflight.
PUBLISHED_PHASES = ("a", "b", "b_prime")
PHASE_WORDS = {"a": "Phase A", "b": "Phase B", "b_prime": "Phase B'", "c": "Phase C", "d": "Phase D"}


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Seconds.

    Attributes:
        preflight_s: None where it was not timed.
        by_phase_s: of the phases in which something was launched, in the order in which they are measured.
        runs: how many runs launched something.
        untimed_runs: those of them of which a launch was not timed; its cells alone count.
    """

    preflight_s: float | None
    by_phase_s: dict[str, float]
    runs: int
    untimed_runs: int

    @property
    def all_timed(self) -> bool:
        """Whether the sum lacks nothing."""
        return self.preflight_s is not None and not self.untimed_runs

    @property
    def published_s(self) -> float:
        """Of what the published experiment has."""
        return (self.preflight_s or 0.0) + sum(self.by_phase_s.get(p, 0.0) for p in PUBLISHED_PHASES)

    def sentence(self) -> str:
        """The sum that the budget is for, its parts, and what else took time."""
        # Whole seconds, of which sums are made: what is rounded apart does not add up.
        phases = {p: round(s) for p, s in self.by_phase_s.items()}
        preflight = round(self.preflight_s or 0.0)
        published = preflight + sum(phases.get(p, 0) for p in PUBLISHED_PHASES)
        parts = [] if self.preflight_s is None else [f"preflight {exact_duration(preflight)}"]
        parts += [f"{PHASE_WORDS[p]} {exact_duration(phases[p])}" for p in PUBLISHED_PHASES if p in phases]
        sentences = [
            f"{exact_duration(published)} without what lay between launches: {', '.join(parts)}."
            if parts
            else f"{exact_duration(published)}: nothing of what the budget is for was launched."
        ]
        blocks = [s for p, s in phases.items() if is_repeat(p)]
        if blocks:
            many = f"{len(blocks)} block{'s' if len(blocks) > 1 else ''} of repeated launches"
            sentences.append(
                f"With {many}, which took {exact_duration(sum(blocks))}, it is {exact_duration(published + sum(blocks))}."
            )
        others = [p for p in phases if p not in PUBLISHED_PHASES and not is_repeat(p)]
        counts = "is in neither sum" if blocks else "is not in it"
        sentences += [
            f"{PHASE_WORDS.get(p, p)} took {exact_duration(phases[p])} and {counts}." for p in others
        ]
        if self.preflight_s is None:
            sentences.append("Preflight was not timed.")
        if self.untimed_runs:
            sentences.append(
                f"{self.untimed_runs} of {self.runs} runs have a launch that was not timed, and only its cells count."
            )
        return " ".join(sentences)


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
    in_order = {p: by_phase[p] for p in sorted(by_phase, key=phase_place)}
    told = data.preflight.elapsed_s if data.preflight is not None else None
    return TimeSpent(told if isinstance(told, float) else None, in_order, runs, untimed)


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
