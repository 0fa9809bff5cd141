"""What a rehearsal tells: duration by phase, and the width of each tax's interval."""

from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Aggregate, Bounds, MeasuredCell, read_aggregate
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.files import printable, read_document
from connector_tax.base.plan import SIDE_BY_SIDE, Turn, schedule, wall_s
from connector_tax.base.records.cell import Phase, phase_word
from connector_tax.base.templates import columns, template
from connector_tax.base.units import duration_text
from connector_tax.run.rehearsal.campaign import PhaseTime, measuring_s, preflight_s

WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}


def outlook(
    root: Path,
    times: list[PhaseTime],
    config: CampaignConfig,
    gpus: int | None = None,
) -> str:
    """Lines for a person. A tax smaller than the half-width printed would be lost in the interval.

    Args:
        config: of the campaign that was rehearsed.
        gpus: engines side by side at most; None: as many as there are cards.
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
