"""Phase C on the page: what a connector costs where turns share their past and the prefix cache is hit."""

from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Cell, Latency, MeasuredCell, TaxRow
from connector_tax.read.figures.questions import in_order
from connector_tax.read.report.qualifiers import flagged
from connector_tax.read.report.tax_text import LATENCY_METRICS, TaxText, milliseconds, tax_text, without_tax


@dataclass(frozen=True, slots=True)
class ConversationRow:
    label: str
    sessions: str
    rate: str
    n: str
    hits: str
    ttft: str
    tpot: str
    taxes: list[TaxText]


def conversations_view(aggregate: Aggregate) -> list[ConversationRow]:
    """One row per configuration and session file, plain first; its own numbers, then its taxes.

    A configuration that ended without a cell has its taxes with their reasons alone.
    """
    taxes: dict[tuple[str, str, str], TaxRow] = {
        (tax.config, tax.cell_id, tax.metric): tax for tax in aggregate.taxes if tax.phase == "c"
    }
    cells = in_order(aggregate, (cell for cell in aggregate.cells if cell.phase == "c"))
    known = {(cell.config, cell.cell_id) for cell in cells}
    lost = {
        (t.config, t.cell_id): t
        for t in in_order(aggregate, taxes.values())
        if (t.config, t.cell_id) not in known
    }
    measured = [
        ConversationRow(
            label=aggregate.label_of(cell.config),
            sessions=cell.cell_id.partition("_")[2],
            rate=f"{cell.rate_per_s:g}",
            n=f"{cell.n_window:,}" if isinstance(cell, MeasuredCell) else "?",
            hits=_share(cell),
            ttft=_ms(cell, "ttft_ms"),
            tpot=_ms(cell, "tpot_ms"),
            taxes=[]
            if cell.config == "plain"
            else [_tax(aggregate, cell, taxes.get((cell.config, cell.cell_id, m))) for m in LATENCY_METRICS],
        )
        for cell in sorted(cells, key=lambda cell: cell.cell_id)
    ]
    return measured + [
        ConversationRow(
            label=aggregate.label_of(tax.config),
            sessions=tax.cell_id.partition("_")[2],
            rate=f"{tax.rate_per_s:g}",
            n="0",
            hits="unknown",
            ttft="–",
            tpot="–",
            taxes=[
                tax_text(t, flagged(aggregate, t))
                if (t := taxes.get((*whose, m)))
                else without_tax("not measured")
                for m in LATENCY_METRICS
            ],
        )
        for whose, tax in sorted(lost.items(), key=lambda item: item[1].cell_id)
    ]


def _tax(aggregate: Aggregate, cell: Cell, tax: TaxRow | None) -> TaxText:
    """A cell that was measured and does not count has no tax, for its own reasons."""
    if tax is not None:
        return tax_text(tax, flagged(aggregate, tax))
    if cell.usable:
        return without_tax("not measured")
    return without_tax(f"its cell does not count ({'; '.join(cell.reasons) or cell.verdict})")


def _share(cell: Cell) -> str:
    share = cell.prefix_cache_hit_share if isinstance(cell, MeasuredCell) else None
    return "unknown" if share is None else f"{100 * share:.0f} %"


def _ms(cell: Cell, latency: Latency) -> str:
    found = cell.latency(latency).p90.interval if isinstance(cell, MeasuredCell) else None
    if found is None:
        return "–"
    ends = ["∞" if e is None else milliseconds(e) for e in (found.low, found.high)]
    return f"{milliseconds(found.point)} [{ends[0]}, {ends[1]}]"
