"""The check's raw artifacts to what it says: by mode and load, with intervals; pure reading."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.documents.check import BlockTax, Died, ProcessUse, Switched
from connector_tax.base.documents.health import Slack
from connector_tax.base.documents.identity import DeviceIdentity, Versions
from connector_tax.base.records.bounds import Fact
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.check.campaigns import Campaigns, Launch
from connector_tax.check.lateness import counts
from connector_tax.check.load_tax import LoadTax, load_taxes
from connector_tax.check.reasons import switched
from connector_tax.read.ingest import CampaignData, CellData, read_campaign
from connector_tax.read.stats.cells import CellEstimates, estimate_cells
from connector_tax.read.stats.launches import MIN_BLOCKS
from connector_tax.read.stats.repeats import repeats
from connector_tax.read.stats.step_slopes import HookCost, HookSlopes, hook_costs, launch_steps, slopes
from connector_tax.read.stats.taxes import LATENCIES
from connector_tax.run.measure.deaths import Death

CONFIDENCE = 0.95
# Verdicts ask for the outer 0.2 % of them.
DRAWS = 4000
PHASES = ("a", "d")
PLAIN = "plain"

Estimates = dict[tuple[str, str, str], CellEstimates]


@dataclass(frozen=True, slots=True)
class ModeFindings:
    """One way of scheduling.

    Attributes:
        failure: why the connector was not measured; None where it was.
        answered: (requests answered, requests sent) of the connector's cells.
        lost: cells that do not count, with the reasons; whoever's.
        late: cells that count although their clock ran late.
        processes: configuration -> process -> cores at the middle load, idle cores, MiB.
        spinning: threads of the connector's launch that do not sleep while nobody asks.
        slack_us: configuration -> load -> p10 and p50.
        hooks: of the middle load; see ``read.stats.step_slopes.hook_costs``.
        deaths: of engines while they served, anybody's, in the order in which they came.
        stand_ins: what takes the place of parts of the device that the connector asks for, in the plugin's words.
    """

    mode: str
    failure: str | None
    answered: tuple[int, int]
    lost: tuple[str, ...]
    switched: tuple[Switched, ...]
    taxes: tuple[LoadTax, ...]
    over_blocks: tuple[BlockTax, ...]
    processes: dict[str, dict[str, ProcessUse]]
    spinning: tuple[str, ...]
    slack_us: dict[str, dict[float, Slack]]
    hooks: list[HookCost]
    deaths: tuple[Died, ...] = ()
    stand_ins: tuple[str, ...] = ()
    late: tuple[str, ...] = ()

    def deaths_of(self, own_id: str, *, own: bool) -> list[Died]:
        """The connector's, or plain's."""
        return [d for d in self.deaths if (d.config == own_id) == own]


@dataclass(frozen=True, slots=True)
class Findings:
    """
    Attributes:
        device: of the launches, as the engine's identity has it; None where no cell was measured.
        engine: versions by package.
        growth: slopes by hook; see ``read.stats.step_slopes.slopes``. None where they were not asked for.
        growth_lost: cells that they lack, with the reasons.
    """

    campaigns: Campaigns
    device: DeviceIdentity | None
    engine: Versions
    host: dict[str, Fact]
    modes: tuple[ModeFindings, ...]
    growth: list[HookSlopes] | None
    growth_lost: tuple[str, ...] = ()


def read_findings(
    campaigns: Campaigns, failed: dict[str, str], deaths: Iterable[tuple[Launch, Death]] = ()
) -> Findings:
    """
    Args:
        failed, deaths: see ``check.run.Measured``.

    Raises:
        ArtifactError: what was measured cannot be read.
    """
    repeated = tuple(f"r{k}" for k in range(1, campaigns.request.blocks))
    data = {m: read_campaign(f.root, phases=(*PHASES, *repeated)) for m, f in campaigns.folders.items()}
    died: dict[str, list[Died]] = {m: [] for m in data}
    for launch, death in deaths:
        died[launch.mode].append(Died(launch.config, death.phase, death.cell_id, death.cause))
    modes = tuple(
        replace(_mode(campaigns, mode, own, failed.get(mode)), deaths=tuple(died[mode]))
        for mode, own in data.items()
    )
    engine = next((c.document.engine for d in data.values() for c in d.cells()), None)
    first = next(iter(data.values()))
    return Findings(
        campaigns,
        (engine.virtual_gpu or None) if engine else None,
        engine.versions if engine else {},
        engine.host if engine else {},
        modes,
        _growth(campaigns, first) if campaigns.request.growth else None,
        tuple(_lost(c for c in first.cells() if c.phase == "d")),
    )


def _mode(campaigns: Campaigns, mode: str, data: CampaignData, failure: str | None) -> ModeFindings:
    own_id, seed = campaigns.request.connector_id, int(data.document.config["seed"])
    cells = [c for c in data.cells() if c.phase != "d"]
    estimates: Estimates = {
        (e.cell.config, e.cell.phase, e.cell.cell_id): e
        for e in estimate_cells([c for c in cells if _counts(c)], seed, DRAWS, confidence=CONFIDENCE)
    }
    first = {(c, e.cell.spec.rate_per_s): e for (c, phase, _), e in estimates.items() if phase == "a"}
    own_cells = [c for c in cells if c.config == own_id]
    statuses = [c.document.summary.statuses for c in own_cells if c.document.summary]
    middle = campaigns.rates_per_s[len(campaigns.rates_per_s) // 2]
    at_middle = {c.config: c for c in cells if c.phase == "a" and c.spec.rate_per_s == middle}
    return ModeFindings(
        mode=mode,
        failure=failure,
        answered=(sum(s.get("ok", 0) for s in statuses), sum(sum(s.values()) for s in statuses)),
        lost=tuple(_lost(cells, over_blocks=campaigns.request.blocks >= MIN_BLOCKS)),
        late=tuple(_late(cells)),
        switched=_switched(data, own_id),
        taxes=tuple(load_taxes(campaigns.rates_per_s, first, (PLAIN, PLAIN_AGAIN, own_id))),
        over_blocks=tuple(_over_blocks(data, estimates, own_id)),
        processes={config: _processes(cell) for config, cell in at_middle.items()},
        spinning=_spinning(own_cells),
        slack_us=_slack(cells),
        hooks=_hooks(at_middle.get(own_id), seed),
        stand_ins=tuple(
            dict.fromkeys(words for c in own_cells for words in c.document.health.stand_ins or ())
        ),
    )


def _counts(cell: CellData, *, over_blocks: bool = False) -> bool:
    return not cell.left_out and counts(cell.document, over_blocks=over_blocks)


def _lost(cells: Iterable[CellData], *, over_blocks: bool = False) -> Iterable[str]:
    for cell in cells:
        if not _counts(cell, over_blocks=over_blocks):
            why = "; ".join([*cell.document.reasons, *cell.left_out])
            yield (
                f"{cell.config}, {cell.spec.rate_per_s:g} req/s: {why}"
                if cell.spec.rate_per_s
                else f"{cell.config}: {why}"
            )


def _late(cells: Iterable[CellData]) -> Iterator[str]:
    """Those that count although their clock ran late."""
    for cell in cells:
        clock = cell.document.health.device_clock
        if clock and _counts(cell) and not cell.usable:
            yield f"{cell.config}, {cell.spec.rate_per_s:g} req/s: {clock.late_share:.1%} of the device's time"


def _over_blocks(data: CampaignData, estimates: Estimates, own_id: str) -> Iterable[BlockTax]:
    kept = {k: e for k, e in estimates.items() if e.cell.usable}
    for entry in repeats(kept, data.reference_rates, CONFIDENCE, metrics=LATENCIES):
        for tax in entry.taxes:
            if tax.config == own_id:
                yield BlockTax(
                    entry.rate_per_s,
                    entry.metric,
                    blocks=tax.n,
                    point=tax.point,
                    low=tax.low,
                    high=tax.high,
                    floor=max(abs(entry.noise_floor.low), abs(entry.noise_floor.high)),
                )


def _switched(data: CampaignData, own_id: str) -> tuple[Switched, ...]:
    runs = {r.folder.connector_id: r.folder for r in data.runs if r.folder.phase == "a"}
    if PLAIN not in runs or own_id not in runs:
        return ()
    logs = {config: _log(runs[config]) for config in (PLAIN, own_id)}
    settings = {config: data.settings_of(config) for config in (PLAIN, own_id)}
    if not all(settings.values()):
        return ()
    return switched(settings[PLAIN], settings[own_id], logs[PLAIN], logs[own_id])


def _log(run: RunFolder) -> str:
    return "\n".join(
        p.read_text(encoding="utf-8", errors="replace") for p in (run.stdout, run.stderr) if p.is_file()
    )


def _processes(cell: CellData) -> dict[str, ProcessUse]:
    cpu = cell.document.cpu
    loaded, idle, rss = cpu.loaded_s or {}, cpu.idle_share or {}, cpu.rss_mib or {}
    elapsed_s = cpu.elapsed_s or 0.0
    return {
        name: ProcessUse(
            cores=loaded[name] / elapsed_s if name in loaded and elapsed_s else None,
            idle_cores=idle.get(name),
            mib=rss.get(name),
        )
        for name in sorted({*loaded, *idle, *rss})
    }


def _spinning(cells: list[CellData]) -> tuple[str, ...]:
    found = {(s.process, s.thread): s.share for c in cells for s in c.document.cpu.spinning or ()}
    return tuple(
        f"{thread} of {process} ({share:.2f} cores, idle)" for (process, thread), share in found.items()
    )


def _slack(cells: list[CellData]) -> dict[str, dict[float, Slack]]:
    found: dict[str, dict[float, Slack]] = {}
    for cell in cells:
        clock = cell.document.health.device_clock
        if cell.phase == "a" and clock:
            found.setdefault(cell.config, {})[cell.spec.rate_per_s] = clock.slack_us
    return found


def _hooks(cell: CellData | None, seed: int) -> list[HookCost]:
    steps = launch_steps([cell]) if cell is not None and _counts(cell) else []
    return hook_costs(steps[0], seed) if steps else []


def _growth(campaigns: Campaigns, data: CampaignData) -> list[HookSlopes]:
    """Over the cells of the connector's first launch: three loads, and few or many requests in an emptier or fuller cache after them."""
    own = [c for c in data.cells() if c.config == campaigns.request.connector_id and _counts(c)]
    return slopes(launch_steps([c for c in own if c.phase in PHASES]), int(data.document.config["seed"]))
