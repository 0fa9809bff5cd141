"""The experiments' raw artifacts to their numbers: each arrangement against plain; pure reading."""

from dataclasses import dataclass, field, replace

from connector_tax.base.documents.cell import ArrangedThread
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.check.confirm import OF_CONNECTOR, OF_PLAIN, UNTOUCHED_AGAIN, Experiments
from connector_tax.check.findings import CONFIDENCE, DRAWS, PLAIN
from connector_tax.check.lateness import only_late
from connector_tax.read.ingest import CampaignData, CellData, read_campaign
from connector_tax.read.ingest.steps import DECODE_ONLY, KIND_NAMES
from connector_tax.read.stats.cells import CellEstimates, estimate_cells
from connector_tax.read.stats.hook_waits import HookTimes, hook_times
from connector_tax.read.stats.step_slopes import launch_steps
from connector_tax.read.stats.taxes import LATENCIES, relative
from connector_tax.run.measure.arranged import BUSY_BESIDE, HELPERS_IDLE, UNPINNED, UNTOUCHED

STEP = "step_p50"
# Held against plain's cell with nothing changed that was measured nearest to it; all others against plain's under the same change.
NEAREST = {UNPINNED: UNTOUCHED, HELPERS_IDLE: UNTOUCHED_AGAIN, BUSY_BESIDE: UNTOUCHED_AGAIN}
METRICS = ("ttft_p90", "tpot_p90", "tpot_p50", STEP)


@dataclass(frozen=True, slots=True)
class Measured:
    """One cell of one engine.

    Attributes:
        missing: why it says nothing; None where it does.
        latency: by metric; milliseconds, microseconds of ``step_p50``, a decode-only step.
        slack_us: median; None where there is no clock.
        threads: ``name of process`` of those that were rearranged.
        late_share: of the device's time, by which results came late; None where there is no clock.
    """

    missing: str | None
    latency: dict[str, Estimate] = field(default_factory=dict)
    slack_us: float | None = None
    hooks: dict[str, HookTimes] = field(default_factory=dict)
    threads: tuple[str, ...] = ()
    late_share: float | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """
    Attributes:
        plain, own: by folder, as in ``OF_PLAIN`` and ``OF_CONNECTOR``.
        floors: metric -> what plain differs from itself by in the check's launches; None where that is not known.
    """

    mode: str
    rate_per_s: float
    plain: dict[str, Measured]
    own: dict[str, Measured]
    floors: dict[str, float | None]

    def of(self, name: str) -> Measured:
        """What an arrangement is about: the connector's cell, or plain's with a busy process beside it."""
        return self.plain[name] if name == BUSY_BESIDE else self.own[name]

    def beside(self, name: str) -> Measured:
        """Plain's cell that it is held against."""
        return self.plain[NEAREST.get(name, name)]

    def tax(self, name: str, metric: str) -> Estimate:
        return _ratio(self.of(name), self.beside(name), metric)

    def kept(self, name: str, metric: str) -> Estimate:
        """The tax; where the change made plain slower, in plain's time with nothing changed, so that slowness makes no tax smaller."""
        tax, changed, untouched = self.tax(name, metric), self.beside(name), self.plain[UNTOUCHED]
        points = [
            side.latency[metric].point if side.missing is None else None for side in (changed, untouched)
        ]
        if tax.point is None or points[0] is None or not points[1]:
            return tax if tax.point is None else unavailable("plain with nothing changed is not known")
        scale = max(1.0, points[0] / points[1])
        return replace(tax, point=tax.point * scale, replicates=tax.replicates * scale)

    def floor(self, metric: str) -> float | None:
        """The largest difference between launches or cells that nothing distinguishes; None where none is known."""
        found = [
            _ratio(side[UNTOUCHED_AGAIN], side[UNTOUCHED], metric).point for side in (self.plain, self.own)
        ]
        known = [abs(v) for v in (*found, self.floors.get(metric)) if v is not None]
        return max(known, default=None)


def _ratio(own: Measured, plain: Measured, metric: str) -> Estimate:
    for side in (own, plain):
        if side.missing is not None:
            return unavailable(side.missing)
    return relative(own.latency[metric], plain.latency[metric])


def read_experiments(experiments: Experiments, floors: dict[str, float | None]) -> Results:
    """
    Raises:
        ArtifactError: what was measured cannot be read.
    """
    data = {name: read_campaign(f.root, phases=("a",)) for name, f in experiments.folders.items()}
    read = {name: _both(d) for name, d in data.items()}
    return Results(
        experiments.mode,
        experiments.rate_per_s,
        {name: read[name].get(PLAIN, NOTHING) for name in OF_PLAIN},
        {name: read[name].get(experiments.connector_id, NOTHING) for name in OF_CONNECTOR},
        floors,
    )


NOTHING = Measured("not measured")


def _both(data: CampaignData) -> dict[str, Measured]:
    """By configuration. Both together: their requests came at the same times."""
    seed = int(data.document.config["seed"])
    usable = [c for c in data.cells() if not c.left_out and only_late(c.document)]
    estimates = {e.cell.config: e for e in estimate_cells(usable, seed, DRAWS, confidence=CONFIDENCE)}
    found = {}
    for run in data.runs:
        config = run.folder.connector_id
        if config in estimates:
            found[config] = _measured(estimates[config], seed)
        elif run.receipt is not None and run.receipt.reason:
            found[config] = Measured(run.receipt.reason)
        else:
            found[config] = Measured("; ".join(_faults(run.cells)) or "not measured")
    return found


def _faults(cells: tuple[CellData, ...]) -> list[str]:
    return [why for c in cells for why in (*c.document.reasons, *c.left_out)]


def _measured(estimates: CellEstimates, seed: int) -> Measured:
    cell = estimates.cell
    latency = {
        m: estimates.latency(*column) for m in METRICS for name, column in LATENCIES.items() if m == name
    }
    steps = launch_steps([cell])
    clock, arrangement = cell.document.health.device_clock, cell.document.arrangement
    return Measured(
        None,
        latency
        | {
            STEP: estimates.steps.by_kind.get((KIND_NAMES[DECODE_ONLY], 50.0))
            or unavailable("no step records")
        },
        clock.slack_us["p50"] if clock else None,
        hook_times(steps[0], seed) if steps else {},
        tuple(map(_thread, arrangement.threads)) if arrangement else (),
        clock.late_share if clock else None,
    )


def _thread(thread: ArrangedThread) -> str:
    cpus = f" (CPU {', '.join(map(str, thread.cpus))})" if thread.cpus else ""
    return f"{thread.thread} of {thread.process}{cpus}"
