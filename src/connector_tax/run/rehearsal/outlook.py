"""What a rehearsal tells: duration by phase, and the width of each tax's interval."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Aggregate, Bounds, MeasuredCell, read_aggregate
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.opening import printable
from connector_tax.base.plan import SIDE_BY_SIDE, Turn, cells_of, schedule, wall_s
from connector_tax.base.plan.duration import expected_cell_s
from connector_tax.base.records.cell import CellSpec, Phase, is_repeat, phase_word
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.base.templates import columns, template
from connector_tax.base.units import duration_text
from connector_tax.run.rehearsal.campaign import PhaseTime, measuring_s, preflight_s

# How many blocks of launches, and how many requests in each: what a number of hours buys the headline.

# A block's own launch, and the mean of plain's two.
LAUNCHES_IN_A_RATIO = 1.5
REQUESTS = (20, 30, 50, 75, 100, 150, 200, 300, 400)
FEWEST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one metric; standard deviations of a log percentile.

    Attributes:
        between: of launches.
        within: of one launch's cell of ``requests`` requests.
    """

    metric: str
    between: float
    within: float
    requests: float

    def variance(self, requests: float) -> float:
        """Of one launch's log percentile over so many requests."""
        return self.between**2 + self.within**2 * self.requests / requests


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds.

    Attributes:
        wall_s: of the whole plan with so many blocks of repeats whose launches take so long each, on all cards that it has.
        launch_s: of a launch and its release, and of a cell's warm-up and drain.
        request_s: per request of a block's cells, at all reference rates together.
        blocks_beside: blocks that the other phases are.
        requests_beside: in each of those.
    """

    wall_s: Callable[[int, float], float]
    launch_s: float
    request_s: float
    blocks_beside: int
    requests_beside: float


@dataclass(frozen=True, slots=True)
class Split:
    """One way to spend the hours.

    Attributes:
        half_widths: metric -> expected half-width of the headline's interval, of the log ratio.
    """

    repeats: int
    requests: int
    hours: float
    half_widths: dict[str, float]

    @property
    def worst(self) -> float:
        return max(self.half_widths.values())


def spreads_of(aggregate: Aggregate) -> list[Spread]:
    """From a campaign with blocks; empty without. All configurations together say what launches differ by."""
    found = []
    for entry in aggregate.repeats:
        within, requests = entry.within_launch_sd, entry.requests
        if entry.reference != "ref_safe" or within is None or requests is None or not entry.taxes:
            continue
        of_ratio = sum(tax.sd**2 for tax in entry.taxes) / len(entry.taxes)
        between = math.sqrt(max(0.0, of_ratio / LAUNCHES_IN_A_RATIO - within**2))
        found.append(Spread(entry.metric, between, within, requests))
    return found


def splits(spreads: list[Spread], costs: Costs, hours: float, confidence: float) -> list[Split]:
    """Every number of requests with as many blocks as fit; those with too few blocks for an interval are left out."""
    found = []
    for requests in REQUESTS:
        launch_s = costs.launch_s + requests * costs.request_s
        repeats = _most_blocks(costs, hours * 3600, launch_s)
        n = repeats + costs.blocks_beside
        if n < FEWEST_BLOCKS or repeats == 0:
            continue
        t = float(student_quantile((1 + confidence) / 2, n - 1))
        widths = {
            s.metric: t
            * math.sqrt(
                LAUNCHES_IN_A_RATIO
                * (repeats * s.variance(requests) + costs.blocks_beside * s.variance(costs.requests_beside))
            )
            / n
            for s in spreads
        }
        found.append(Split(repeats, requests, costs.wall_s(repeats, launch_s) / 3600, widths))
    return found


def _most_blocks(costs: Costs, budget_s: float, launch_s: float) -> int:
    """As many as are done in time; 0 where none is."""
    too_many = 1
    while costs.wall_s(too_many, launch_s) <= budget_s:
        too_many *= 2
    return max(0, bisect_right(range(too_many), budget_s, key=lambda n: costs.wall_s(n, launch_s)) - 1)


def proposal(spreads: list[Spread], costs: Costs, hours: float, confidence: float) -> list[str]:
    """Lines for a person: what each split gives, and the one to take.

    Args:
        confidence: of the headline's interval.
    """
    if not spreads:
        return ["no blocks of launches there (repeats), so nothing is known of what launches differ by"]
    found = splits(spreads, costs, hours, confidence)
    if not found:
        return [
            f"{hours:g} h leave no room for {FEWEST_BLOCKS} blocks: everything else takes {costs.wall_s(0, 0.0) / 3600:.1f} h. "
            "Shorten Phase B, or measure fewer configurations."
        ]
    best = min(found, key=lambda s: (round(s.worst, 4), s.hours))
    rows = [["repeats", "requests", "hours", *(s.metric for s in spreads), ""]]
    for split in found:
        widths = [f"{split.half_widths[s.metric]:.1%}" for s in spreads]
        of = [str(split.repeats), str(split.requests), f"{split.hours:.1f}"]
        rows.append([*of, *widths, "<-" if split is best else ""])
    return [
        *(
            f"{s.metric}: launches differ by {s.between:.1%}, {s.requests:g} requests of one leave {s.within:.1%} open"
            for s in spreads
        ),
        f"what {hours:g} h buy: half of the headline's expected {confidence * 100:g} % interval",
        "",
        *columns(rows),
        f"so: repeats: {best.repeats}, repeat_requests: {best.requests}",
    ]


WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}


def outlook(
    root: Path,
    times: list[PhaseTime],
    config: CampaignConfig,
    hours: float | None = None,
    gpus: int | None = None,
) -> str:
    """Lines for a person. A tax smaller than the half-width printed would be lost in the interval.

    Args:
        config: of the campaign that was rehearsed.
        gpus: engines side by side at most; None: as many as there are cards.
        hours: also how these are best divided between blocks of launches and requests.
    """
    folder = CampaignFolder(root)
    rates = read_document(folder.reference_rates, ReferenceRatesFile)
    found: dict[str, Any] = {"aggregate": None}
    if folder.aggregate.exists():
        aggregate = read_aggregate(folder.aggregate)
        lost = [
            f"{cell.config} {phase_word(cell.phase)} {cell.cell_id}"
            for cell in aggregate.cells
            if "overloaded" not in cell.flags
            and not (isinstance(cell, MeasuredCell) and cell.ttft_ms.p90.known and cell.tpot_ms.p90.known)
        ]
        found = {
            "aggregate": aggregate,
            "overloaded": sum("overloaded" in cell.flags for cell in aggregate.cells),
            "lost": lost,
            "taxes": tax_rows(aggregate),
            "power": power_lines(folder.aggregate),
            "hours": [] if hours is None else hours_lines(aggregate, config, rates.rates, times, hours, gpus),
        }
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
            times=times,
            rates=rates,
            cards=cards,
            gpus=gpus,
            turns=[("preflight", 0.0, begin_s, [str(cards[0])]), *turns] if turns else [],
            idle=[
                (str(card), end_s - sum(t.end_s - t.begin_s for t in dealt if t.place == place))
                for place, card in enumerate(cards)
            ],
            together_s=sum(t.total_s for t in times),
            overloaded_s=sum(t.overloaded_s for t in times),
            done_s=begin_s + wall_s(config, measuring_s(times), gpus),
            budget_h=config.analysis.time_budget_h,
            side_by_side=SIDE_BY_SIDE,
            duration=duration_text,
            phase=phase_word,
            **found,
        )
        .strip("\n")
    )


def hours_lines(
    aggregate: Aggregate,
    config: CampaignConfig,
    rates: ReferenceRates,
    times: list[PhaseTime],
    hours: float,
    gpus: int | None = None,
) -> list[str]:
    """How to divide ``hours``, by the spreads of a campaign with blocks, rehearsed or measured.

    Args:
        times: of the plan, as rehearsed.
        gpus: engines side by side at most; None: as many as there are cards.
    """
    blocks = [t for t in times if is_repeat(t.phase)]
    others = measuring_s([t for t in times if t not in blocks])
    launch_s = sum(t.overhead_s for t in times) / max(1, sum(t.runs for t in times))
    swept = cells_of(config, PLAIN_AGAIN, "b", rates)
    if not config.repeats:
        # What is proposed makes Phases A and B blocks, in which plain is launched once more.
        for phase, own_s in _plain_again_s(times, swept, launch_s).items():
            others[phase][PLAIN_AGAIN] = own_s

    def of_blocks(repeats: int, own_s: float) -> float:
        # A plan without blocks has no second launch of plain, which is in the time of one with any.
        plan = replace(config, repeats=max(1, repeats))
        of = (
            {p: dict.fromkeys(plan.members(p), own_s) for p in plan.phases if is_repeat(p)} if repeats else {}
        )
        return preflight_s(times) + wall_s(plan, others | of, gpus)

    at = list(dict.fromkeys((rates.ref_safe_per_s, rates.ref_load_per_s)))
    # Requests are still on their way when sending ends: as long as one takes, at most, which is in the rehearsed drain.
    drain_s = _drain_s(config, rates, blocks) if blocks else _longest_requests_s(aggregate, at)
    costs = Costs(
        wall_s=of_blocks,
        launch_s=launch_s + len(at) * config.cell.warmup_s + drain_s,
        request_s=sum(1 / rate for rate in at),
        # Phase B is a block of ref_safe; where ref_load is another rate, that has one block less.
        blocks_beside=1 + (len(at) == 1 and bool(swept)),
        requests_beside=max(config.cell.min_completed, config.cell.duration_s * rates.ref_safe_per_s),
    )
    return proposal(spreads_of(aggregate), costs, hours, config.analysis.confidence)


def _plain_again_s(
    times: list[PhaseTime], swept: tuple[CellSpec, ...], launch_s: float
) -> Mapping[Phase, float]:
    """What plain's second launches in Phases A and B take where the rehearsed plan has none.

    Args:
        swept: its cells in Phase B.
    """
    sweep = next(t for t in times if t.phase == "a")
    again_s = {"a": sweep.total_s / max(1, sweep.runs)}
    if swept:
        again_s["b"] = launch_s + sum(expected_cell_s(cell, cell.rate_per_s, most=True) for cell in swept)
    return again_s


def _drain_s(config: CampaignConfig, rates: ReferenceRates, blocks: list[PhaseTime]) -> float:
    """Seconds of a block's launch beyond warm-ups and windows, as rehearsed."""
    block = next(p for p in config.phases if is_repeat(p))
    planned_s = sum(
        cell.warmup_s + max(cell.duration_s, cell.min_completed / cell.rate_per_s)
        for cell in cells_of(config, "plain", block, rates)
    )
    return max(0.0, sum(t.cells_s for t in blocks) / sum(t.runs for t in blocks) - planned_s)


def _longest_requests_s(aggregate: Aggregate, at: list[float]) -> float:
    """Of Phase A's cells at each of the rates, p90 of the slowest configuration; what is not told counts nothing."""
    slowest: dict[float, float] = {}
    for cell in aggregate.measured("a"):
        e2e_ms = cell.e2e_ms.p90.point
        if cell.rate_per_s in at and e2e_ms is not None:
            slowest[cell.rate_per_s] = max(slowest.get(cell.rate_per_s, 0.0), e2e_ms / 1000)
    return sum(slowest.values())


def power_lines(aggregate: Path) -> list[str]:
    """The smallest taxes that would be found, of a rehearsed campaign or of an earlier one that was measured."""
    found = read_aggregate(aggregate).power
    blocks = next((list(row.by_blocks) for row in found if row.by_blocks), [])
    rows = [["smallest tax found 4 times of 5", "", "one launch", *(f"{n} blocks" for n in blocks)]]
    for row in found:
        once = "unknown" if row.one_launch is None else f"{row.one_launch:.1%}"
        shown = map(_between, (row.by_blocks or dict.fromkeys(blocks)).values())
        rows.append([printable(row.config, 80), WORDS[row.metric], once, *shown])
    return columns(rows) if found else [f"{aggregate}: no tax at ref_safe"]


def _between(found: Bounds | None) -> str:
    """``3.1% (1.9% to 8.9%)``: few blocks hardly know what launches differ by."""
    return "unknown" if found is None else f"{found.point:.1%} ({found.low:.1%} to {found.high:.1%})"


def tax_rows(aggregate: Aggregate) -> list[list[str]]:
    """A head, and the taxes at ref_safe of each configuration, each with its launches."""
    rows: dict[str, dict[str, str]] = {}
    for tax in aggregate.main_taxes:
        if tax.reference == "ref_safe" and tax.metric in WORDS:
            shown = "unavailable"
            if tax.point is not None and tax.low is not None and tax.high is not None:
                launches = "of one launch" if tax.of_one_launch else f"over {tax.n_blocks} blocks"
                shown = f"{tax.point:+.1%} +- {(tax.high - tax.low) / 2:.1%}, {launches}"
            rows.setdefault(tax.config, {})[tax.metric] = shown
    return [
        ["SIMULATED tax at ref_safe", *WORDS.values()],
        *([config, *(own.get(metric, "") for metric in WORDS)] for config, own in rows.items()),
    ]
