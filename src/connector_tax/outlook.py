"""Summarises a rehearsal: the campaign's duration by phase, and the smallest tax that its blocks find."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate import Aggregate, Bounds, MeasuredCell, Missing, read_aggregate
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.files import read_document
from connector_tax.base.plan import SIDE_BY_SIDE, Turn, cells_of, schedule, wall_s
from connector_tax.base.plan.estimate import model_file
from connector_tax.base.records.cell import Phase, is_repeat, phase_word
from connector_tax.base.templates import template
from connector_tax.base.units import duration_text
from connector_tax.read.stats.repeats import found_by_blocks
from connector_tax.run.rehearsal.campaign import PhaseTime, measuring_s, preflight_s

LATENCIES = ("ttft_p90", "tpot_p90")


class PhasePlan(msgspec.Struct, frozen=True):
    """One phase, or all further blocks of launches (``blocks``)."""

    phase: str
    launches: int
    cells: int
    hours: float


class Found(msgspec.Struct, frozen=True):
    """Taxes that a number of blocks finds with 80 % power, as ratios; null if too large to be useful.

    Attributes:
        repeats: how many of the blocks are further ones; ``hours`` is the whole campaign with them.
    """

    blocks: int
    repeats: int
    hours: float
    ttft_p90: Bounds | None
    tpot_p90: Bounds | None


class Asked(msgspec.Struct, frozen=True):
    """A hypothesis about ``subject``: it is tested, or ``missing`` says why not."""

    subject: str
    missing: tuple[Missing, ...]


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """``plan --json``. Everything in it is simulated; it holds no tax and no verdict.

    Attributes:
        costs: the simulated cost model.
        hours: of the whole campaign, on all its GPUs.
        overloaded: cells with a growing queue; ``without_p90`` are others without a p90.
        tests: hypothesis -> its subjects.
        smallest_tax: by number of blocks; ``variance_of`` names the campaign that the variance is from.
    """

    campaign: str
    simulated: Literal[True] = True
    costs: str
    hours: float
    budget_hours: float
    phases: tuple[PhasePlan, ...]
    ref_safe_per_s: float
    ref_load_per_s: float
    overloaded: int = 0
    without_p90: tuple[str, ...] = ()
    tests: dict[str, tuple[Asked, ...]] = {}
    smallest_tax: tuple[Found, ...] = ()
    variance_of: str = ""


def outlook(
    root: Path,
    times: list[PhaseTime],
    config: CampaignConfig,
    gpus: int | None = None,
    earlier: Path | None = None,
) -> Outlook:
    """Summarise the rehearsal below ``root``; taxes are included only if it was analysed.

    Args:
        gpus: most parallel engines; None: one per GPU.
        earlier: ``aggregate.json`` of a campaign that gives the variance between launches; None: the
            rehearsed one does.
    """
    folder = CampaignFolder(root)
    rates = read_document(folder.reference_rates, ReferenceRatesFile)
    groups: dict[str, list[PhaseTime]] = {}
    for t in times:
        groups.setdefault("blocks" if is_repeat(t.phase) else t.phase, []).append(t)
    clock = config.engine.virtual_gpu
    costs = "the config" if config.engine.costs else str(_shown(model_file(config)))
    plan = Outlook(
        campaign=config.campaign,
        costs=clock.name if clock else costs,
        hours=_hours(config, times, config.repeats, gpus),
        budget_hours=config.analysis.time_budget_h,
        phases=tuple(
            PhasePlan(
                phase,
                sum(t.runs for t in own),
                sum(
                    len(cells_of(config, c, t.phase, rates.rates))
                    for t in own
                    if phase != "preflight"
                    for c in t.asked_s
                ),
                sum(t.total_s for t in own) / 3600,
            )
            for phase, own in groups.items()
        ),
        ref_safe_per_s=rates.ref_safe_per_s,
        ref_load_per_s=rates.ref_load_per_s,
    )
    if not folder.aggregate.exists():
        return plan
    aggregate = read_aggregate(folder.aggregate)
    tests: dict[str, tuple[Asked, ...]] = {}
    for h in aggregate.hypotheses:
        tests[h.id] = (*tests.get(h.id, ()), Asked(h.subject, h.missing))
    return msgspec.structs.replace(
        plan,
        overloaded=sum("overloaded" in cell.flags for cell in aggregate.cells),
        without_p90=tuple(
            f"{cell.config} {phase_word(cell.phase)} {cell.cell_id}"
            for cell in aggregate.cells
            if "overloaded" not in cell.flags
            and not (isinstance(cell, MeasuredCell) and cell.ttft_ms.p90.known and cell.tpot_ms.p90.known)
        ),
        tests=tests,
        smallest_tax=_smallest(
            aggregate, aggregate if earlier is None else read_aggregate(earlier), config, times, gpus
        ),
        variance_of="" if earlier is None else str(earlier.parent),
    )


def outlook_text(
    plan: Outlook, times: list[PhaseTime], config: CampaignConfig, command: str, gpus: int | None = None
) -> str:
    begin_s, cards = preflight_s(times), config.engine.slots
    dealt = schedule(config, measuring_s(times), gpus) if len(cards) > 1 else []
    end_s = max((turn.end_s for turn in dealt), default=0.0)
    of: dict[Phase, list[Turn]] = {}
    for turn in sorted(dealt, key=lambda turn: config.phases.index(turn.phase)):
        of.setdefault(turn.phase, []).append(turn)
    turns = [
        (
            f"phase {phase_word(phase)}",
            begin_s + min(t.begin_s for t in own),
            begin_s + max(t.end_s for t in own),
            [str(cards[k]) for k in sorted({t.place for t in own})],
        )
        for phase, own in of.items()
    ]
    return (
        template(Path(__file__).with_name("outlook.txt.j2"))
        .render(
            plan=plan,
            configurations=len(config.connectors),
            own=config.repeats,
            command=command,
            cards=cards,
            gpus=gpus,
            turns=[("preflight", 0.0, begin_s, [str(cards[0])]), *turns] if turns else [],
            idle=[
                (str(card), end_s - sum(t.end_s - t.begin_s for t in dealt if t.place == place))
                for place, card in enumerate(cards)
            ],
            together_s=sum(t.total_s for t in times),
            side_by_side=SIDE_BY_SIDE,
            duration=duration_text,
            between=between,
        )
        .strip("\n")
    )


def between(found: Bounds | None) -> str:
    """Format as ``3.1 % (1.9 to 8.9)``; few blocks hardly know the variance between launches."""
    if found is None:
        return "unknown"
    return f"{100 * found.point:.2g} % ({100 * found.low:.2g} to {100 * found.high:.2g})"


def _smallest(
    aggregate: Aggregate,
    earlier: Aggregate,
    config: CampaignConfig,
    times: list[PhaseTime],
    gpus: int | None,
) -> tuple[Found, ...]:
    """Return it for half as many, as many and twice as many further blocks; empty without blocks."""
    spreads: dict[str, tuple[float, int]] = {}
    for entry in earlier.repeats:
        if entry.reference == "ref_safe" and entry.metric in LATENCIES and entry.taxes:
            # The variance between launches is pooled over configurations.
            sd = math.sqrt(sum(tax.sd**2 for tax in entry.taxes) / len(entry.taxes))
            spreads[entry.metric] = sd, min(tax.n for tax in entry.taxes)
    beside = max(
        (tax.n for entry in aggregate.repeats if entry.reference == "ref_safe" for tax in entry.taxes),
        default=0,
    )
    if not spreads or not config.repeats:
        return ()
    found = []
    for repeats in sorted({max(1, config.repeats // 2), config.repeats, 2 * config.repeats}):
        blocks = beside - config.repeats + repeats
        own = {
            metric: found_by_blocks(*spread, blocks, config.analysis.confidence)
            for metric, spread in spreads.items()
        }
        hours = _hours(config, times, repeats, gpus)
        found.append(Found(blocks, repeats, hours, *(own.get(metric) for metric in LATENCIES)))
    return tuple(found)


def _hours(config: CampaignConfig, times: Sequence[PhaseTime], repeats: int, gpus: int | None) -> float:
    """Return the campaign's duration with ``repeats`` further blocks of launches."""
    plan = msgspec.structs.replace(config, repeats=repeats)
    run_s = measuring_s([t for t in times if not is_repeat(t.phase)])
    blocks = [t for t in times if is_repeat(t.phase)]
    for k, phase in enumerate(p for p in plan.phases if is_repeat(p)):
        run_s[phase] = blocks[k % len(blocks)].run_s
    return (preflight_s(times) + wall_s(plan, run_s, gpus)) / 3600


def _shown(path: Path) -> Path:
    return path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path
