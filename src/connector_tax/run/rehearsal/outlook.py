"""What a rehearsal tells: duration by phase, and the width of each tax's interval."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

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
from connector_tax.base.units import duration_text
from connector_tax.run.rehearsal.campaign import PhaseTime, measuring_s, preflight_s
from connector_tax.run.rehearsal.split import Costs, proposal, spreads_of

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
    lines = [f"{root}: simulated with the costs of the engine model, which are not those of your engine", ""]
    lines += _time_lines(times, config, gpus)
    if rates.ref_load_per_s == rates.ref_safe_per_s:
        lines.append("Phase B' is not needed: ref_load equals ref_safe")
    elif rates.left_out:
        shapes = ", ".join(map(str, rates.left_out))
        lines.append(
            f"left out of Phase B', since plain holds it neither at ref_load nor at twice Phase B's rate: {shapes}"
        )
    lines.append(f"ref_safe {rates.ref_safe_per_s:g} req/s, ref_load {rates.ref_load_per_s:g} req/s")
    lower = {k: e.rate_per_s for k, e in (rates.shapes or {}).items() if e.not_held_by}
    if lower:
        shown = ", ".join(f"{shape} at {rate:g}" for shape, rate in lower.items())
        lines.append(f"shapes of Phase B below ref_safe, since the engine does not hold it: {shown} req/s")
    if folder.aggregate.exists():
        aggregate = read_aggregate(folder.aggregate)
        lines += [
            "",
            *_answers(aggregate),
            "",
            f"{'headline tax at ref_safe':<28} {'TTFT p90':>36} {'TPOT p90':>36}",
        ]
        lines += _taxes(aggregate)
        lines += ["", *power_lines(folder.aggregate)]
        if hours is not None:
            lines += ["", *hours_lines(aggregate, config, rates.rates, times, hours, gpus)]
    size_mib = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / 2**20
    lines += [
        "",
        f"{root} holds {size_mib:.0f} MiB of simulated results; remove it when you have seen enough",
    ]
    return "\n".join(lines)


def _time_lines(times: list[PhaseTime], config: CampaignConfig, gpus: int | None) -> list[str]:
    lines, budget_h = [], config.analysis.time_budget_h
    for t in times:
        name = t.phase if t.phase == "preflight" else f"phase {phase_word(t.phase)}"
        lines.append(
            f"{name:<9} {t.runs} launches, {duration_text(t.cells_s)} of requests and about "
            f"{duration_text(t.overhead_s)} of launches and releases"
        )
    together_s = sum(t.total_s for t in times)
    overloaded_s = sum(t.overloaded_s for t in times)
    lines.append(f"together about {duration_text(together_s)}")
    lines.append(
        f"of that in cells behind a growing queue: {duration_text(overloaded_s)} ({overloaded_s / together_s:.1%})"
    )
    done_s = preflight_s(times) + wall_s(config, measuring_s(times), gpus)
    if (cards := len(config.engine.slots)) > 1:
        at_once = "" if gpus is None else f", {gpus} at a time"
        lines.append(f"on the {cards} cards of this campaign{at_once}: about {duration_text(done_s)}")
        lines += _schedule_lines(times, config, gpus)
    if done_s > budget_h * 3600:
        lines.append(
            f"That is more than analysis.time_budget_h ({budget_h:g} h). Fewer repeats, fewer or shorter shapes, a lower "
            "cell.max_completed or a wider cell.stop_half_width make it shorter; --hours says what is best given up."
        )
    return lines


def _schedule_lines(times: list[PhaseTime], config: CampaignConfig, gpus: int | None) -> list[str]:
    """When each phase is measured, and on which card; counted from the start of preflight."""
    begin_s = preflight_s(times)
    turns = schedule(config, measuring_s(times), gpus)
    of: dict[Phase, list[Turn]] = {}
    for turn in turns:
        of.setdefault(turn.phase, []).append(turn)
    cards = config.engine.slots
    lines = [f"  preflight   {_from_to(0.0, begin_s)}, one after the other on card {cards[0]}"]
    for phase in (p for p in config.phases if p in of):
        places = sorted({turn.place for turn in of[phase]})
        on = f"card{'s' * (len(places) > 1)} {', '.join(str(cards[k]) for k in places)}"
        first_s, last_s = min(t.begin_s for t in of[phase]), max(t.end_s for t in of[phase])
        lines.append(
            f"  phase {phase_word(phase):<5} {_from_to(begin_s + first_s, begin_s + last_s)}, on {on}"
        )
    end_s = max((turn.end_s for turn in turns), default=0.0)
    for place, card in enumerate(cards):
        idle_s = end_s - sum(t.end_s - t.begin_s for t in turns if t.place == place)
        lines.append(f"  card {card} stands idle for {duration_text(idle_s)} of the time after preflight")
    return [*lines, SIDE_BY_SIDE] if gpus != 1 else lines


def _from_to(begin_s: float, end_s: float) -> str:
    return f"{duration_text(begin_s)} to {duration_text(end_s)}"


def _answers(aggregate: Aggregate) -> list[str]:
    """What each hypothesis comes to, and cells that would lack a percentile."""
    lines = [
        f"{h.id} {h.subject}: {h.outcome}"
        + (f", {h.kind}" if h.kind else "")
        + (f" ({h.label})" if h.label else "")
        for h in aggregate.hypotheses
    ]
    lost = [
        f"{cell.config} {phase_word(cell.phase)} {cell.cell_id}"
        for cell in aggregate.cells
        if "overloaded" not in cell.flags
        and not (isinstance(cell, MeasuredCell) and cell.ttft_ms.p90.known and cell.tpot_ms.p90.known)
    ]
    overloaded = sum("overloaded" in cell.flags for cell in aggregate.cells)
    lines.append(
        f"{len(aggregate.cells)} cells, {overloaded} overloaded; without a p90 beside those: {', '.join(lost) or 'none'}"
    )
    return lines


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
    if not found:
        return [f"{aggregate}: no tax at ref_safe, so nothing is known of what could be found"]
    blocks = next((list(row.by_blocks) for row in found if row.by_blocks), [])
    heads = "".join(f"{n + ' blocks':>22}" for n in blocks)
    lines = [f"{'smallest tax found 4 times of 5':<38} {'one launch':>12}{heads}"]
    for row in found:
        once = "unknown" if row.one_launch is None else f"{row.one_launch:.1%}"
        shown = "".join(f"{_between(v):>22}" for v in (row.by_blocks or dict.fromkeys(blocks)).values())
        lines.append(f"{printable(row.config, 80):<28} {WORDS[row.metric]:<9} {once:>12}{shown}")
    if not blocks:
        lines.append(
            "With repeats (config) it is also known what differs between launches, and what blocks would find"
        )
    return lines


def _between(found: Bounds | None) -> str:
    """``3.1% (1.9% to 8.9%)``: few blocks hardly know what launches differ by."""
    return "unknown" if found is None else f"{found.point:.1%} ({found.low:.1%} to {found.high:.1%})"


def _taxes(aggregate: Aggregate) -> list[str]:
    """Over blocks where there are enough, else of one launch, which is said."""
    rows: dict[str, dict[str, str]] = {}
    kinds = set()
    for tax in aggregate.chosen_taxes:
        if tax.reference == "ref_safe" and tax.metric in WORDS:
            shown = "unavailable"
            if tax.point is not None and tax.low is not None and tax.high is not None:
                kinds.add(tax.kind)
                shown = f"{tax.point:+.1%} +- {(tax.high - tax.low) / 2:.1%}, {tax.kind}"
            rows.setdefault(tax.config, {})[tax.metric] = shown
    lines = [f"{c:<28} {r.get('ttft_p90', ''):>36} {r.get('tpot_p90', ''):>36}" for c, r in rows.items()]
    lines.append(f"+- is half of the {aggregate.provenance.confidence * 100:g} % interval")
    if "of one launch" in kinds:
        lines.append("Where it is of one launch, what differs between launches comes on top (repeats)")
    return lines
