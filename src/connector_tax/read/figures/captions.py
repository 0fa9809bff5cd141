"""What stands above and below a picture: codes with names in, the words of ``labels.yaml`` out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from connector_tax.base.documents.aggregate import Aggregate, MeasuredCell, TaxRow
from connector_tax.base.records.cell import is_repeat, phase_word
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.style import Drawn, Omitted, Row, set_around
from connector_tax.read.figures.words import (
    Tax,
    blocks_of,
    label,
    listing,
    phase_a_shape,
    problem_text,
    source_note,
)

# Statuses of configurations that have a number somewhere.
MEASURED = ("measured", "partial")
# Names in one list.
MOST_LISTED = 12
# By code.
Lists = Mapping[str, Sequence[str]]


def finished(
    aggregate: Aggregate,
    name: str,
    figure: Figure,
    data_rows: list[Row],
    *,
    lists: Lists,
    taxes: Sequence[Tax] = (),
    n: Iterable[int] = (),
    legend: Sequence[Artist] = (),
    rate_per_s: float | None = None,
    shape: bool = True,
) -> Drawn:
    """Put title, keys and source around the panels, and write the caption.

    Args:
        lists: what is left out, or of other launches than the rest.
        taxes: those drawn; the caption has how many observations are behind them, and which of their sides were saturated.
        n: observations behind each number, where these are no taxes.
        rate_per_s: the only rate that the figure is of; None where it is of several.
        shape: whether it is of Phase A's shape alone.
    """
    title = label("title", name)
    if rate_per_s is not None:
        title += label("condition", "rate").format(rate=rate_per_s)
    if shape and (own := phase_a_shape(aggregate)) is not None:
        title += label("condition", "shape").format(input=own[0], output=own[1])
    caption = label("caption", name).format(
        confidence=100 * aggregate.provenance.confidence,
        n=span(n or [tax.n for tax in taxes]),
        n_plain=span(tax.n_plain for tax in taxes),
    )
    lists = {**lists, **saturated(aggregate, taxes)} if taxes else lists
    listed = [
        label("listed", code).format(listing(names, MOST_LISTED)) for code, names in lists.items() if names
    ]
    set_around(figure, title, source_note(aggregate), legend)
    return Drawn(figure, title, " ".join([caption, *listed]), data_rows)


def omitted(code: str, **values: Any) -> Omitted:
    return Omitted(label("omitted", code).format(**values))


def span(counts: Iterable[int]) -> str:
    """``"200 to 1,920"``."""
    known = [n for n in counts if n]
    ends = [min(known), max(known)] if known else []
    return " to ".join(dict.fromkeys(f"{n:,}" for n in ends)) or "unknown"


def launches(taxes: Sequence[Tax]) -> Lists:
    """List over how many blocks of launches taxes are, and where some are, which are not; and those that are not of Phase A."""
    blocks = sorted({n for tax in taxes if (n := blocks_of(tax)) is not None})
    once = {tax.config: str(tax.phase) for tax in taxes if blocks_of(tax) is None}
    return {
        "blocks": [*map(str, blocks)],
        "once": list(once) if blocks else [],
        "other_phase": [f"{c} (phase {phase_word(p)})" for c, p in once.items() if p not in ("a", "None")],
    }


def saturated(aggregate: Aggregate, taxes: Iterable[TaxRow]) -> Lists:
    """List which sides of these taxes did not keep up."""
    found = {"plain" if side == "plain" else tax.config for tax in taxes for side in tax.overloaded}
    return {"saturated": [c for c in aggregate.config_ids if c in found]}


def left_out(
    aggregate: Aggregate,
    phase: str,
    drawn: Collection[str] | None = None,
    *,
    taxes: Iterable[Tax] = (),
    rate_per_s: float | None = None,
    among: Collection[str] | None = None,
    every: bool = False,
) -> Lists:
    """List what is not in the picture: skipped configurations, those without a number, and cells that do not count.

    Args:
        drawn: the configurations that the figure has a number of; None where the figure names the others by itself.
        taxes: those drawn; of one over blocks of launches the cells of its blocks count as well, and of one of another phase that phase's.
        rate_per_s: the rate that the figure is of; None where it is of several.
        among: the configurations that the figure is about; None where it is about all.
        every: whether plain vLLM belongs in the picture, too.
    """
    status = {c: aggregate.configs[c].status for c in aggregate.config_ids if among is None or c in among}
    at = {(tax.rate_per_s, tax.shape, blocks_of(tax) or str(tax.phase)) for tax in taxes}
    over_blocks = {(rate, shape) for rate, shape, which in at if isinstance(which, int)}
    cells = [
        f"{cell.config} {'' if cell.phase == phase else f'{cell.phase}/'}{cell.cell_id} "
        f"({'; '.join(map(problem_text, cell.reasons)) or label('listed', 'unreadable')})"
        for cell in aggregate.cells
        if (
            cell.phase == phase
            or (cell.rate_per_s, cell.shape, cell.phase) in at
            or (
                (cell.rate_per_s, cell.shape) in over_blocks
                and (cell.phase in ("a", "b") or is_repeat(cell.phase))
            )
        )
        and not isinstance(cell, MeasuredCell)
        and cell.recorded
        and rate_per_s in (None, cell.rate_per_s)
        and (among is None or cell.config in among)
    ]
    without = [c for c, s in status.items() if s in MEASURED and (every or is_connector(c))]
    return {
        "absent": [f"{c} ({s})" for c, s in status.items() if s not in MEASURED],
        "no_number": [] if drawn is None else [c for c in without if c not in drawn],
        "excluded": cells,
    }
