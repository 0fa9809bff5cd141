"""Which flags the cells behind a tax carry."""

from collections.abc import Iterator

from connector_tax.base.documents.aggregate import Aggregate, MeasuredCell
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.figures.words import Tax, blocks_of


def flags_behind(aggregate: Aggregate, tax: Tax) -> dict[str, set[str]]:
    """Flags of the cells that a tax is made of, in the order of the alphabet -> whose: ``plain`` or ``own``."""
    found: dict[str, set[str]] = {}
    for side, cell in _cells_behind(aggregate, tax):
        for flag in cell.flags:
            found.setdefault(flag, set()).add(side)
    return dict(sorted(found.items()))


def _cells_behind(aggregate: Aggregate, tax: Tax) -> Iterator[tuple[str, MeasuredCell]]:
    """(``plain`` or ``own``, cell): the usable ones of its launch, or of the blocks that it is a mean over.

    Plain's second launches are in blocks alone.
    """
    over_blocks = blocks_of(tax) is not None
    phases = _own_blocks(aggregate, tax) if over_blocks else {tax.phase}
    sides = {"plain": "plain", tax.config: "own"} | ({PLAIN_AGAIN: "plain"} if over_blocks else {})
    if tax.metric == "callback_p50_us":  # plain has no hooks
        sides = {tax.config: "own"}
    for cell in aggregate.measured():
        if cell.phase in phases and cell.cell_id == tax.cell_id and cell.config in sides:
            yield sides[cell.config], cell


def _own_blocks(aggregate: Aggregate, tax: Tax) -> set[str]:
    """Phases of the blocks in which its configuration and plain have a number; equal rates have one entry of blocks."""
    entries = (
        set(row.by_block)
        for entry in aggregate.repeats
        if (entry.rate_per_s, entry.metric) == (tax.rate_per_s, tax.metric)
        for row in entry.taxes
        if row.config == tax.config
    )
    return next(entries, set())
