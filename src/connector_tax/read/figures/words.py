"""Numbers as people read them: percent, milliseconds, rates, lists; used by titles, captions and report."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from connector_tax.base.documents.aggregate import Aggregate, Interval, TaxRow
from connector_tax.base.documents.rates import Reference
from connector_tax.base.opening import printable
from connector_tax.base.records.cell import phase_word
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.texts import digits_apart, usual_decimals
from connector_tax.read.figures.labels import label
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    excluded_cells,
    phase_a_shape,
    reference_rate,
)

METRICS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
MINUS = "\N{MINUS SIGN}"
# Of configurations that have a number somewhere.
MEASURED = ("measured", "partial")


# Of a figure's title: it counts all connectors and names most of them.
TITLE_LIMIT = 1000


def clean(text: str, limit: int = 400) -> str:
    """One printable line of at most ``limit`` characters; names come from a YAML file and may be anything."""
    line = " ".join(printable(text, len(text)).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def hold_together(text: str) -> str:
    """``text`` with its numbers tied to their units, so that no line ends between them."""
    return re.sub(r"(?<=\d) (?=(?:%|µs|ms|s|req/s|tokens)(?![a-z]))", "\N{NO-BREAK SPACE}", text)


def short_label(label: str) -> str:
    """A legend entry; Matplotlib hides labels that start with an underscore, so that goes."""
    return clean(label, 26).lstrip("_ ") or "?"


def percent(ratio: float) -> str:
    """``0.312`` -> ``"+31 %"``; one decimal below 10 %."""
    return signed([ratio], "ratio")[0]


def microseconds(value: float) -> str:
    return signed([value], "us")[0]


def signed(
    values: Sequence[float],
    unit: str,
    *,
    no_zero: bool = False,
    decimals: Callable[[float], int] = usual_decimals,
) -> list[str]:
    """With sign and unit, and with as many digits as tell them apart.

    Args:
        unit: ``ratio`` or ``us``.
        no_zero, decimals: see ``digits_apart``.
    """
    scale, word = (100, "%") if unit == "ratio" else (1, "µs")
    texts = digits_apart([scale * v for v in values], decimals, no_zero=no_zero)
    return [f"{_with_sign(text)} {word}" for text in texts]


def _with_sign(text: str) -> str:
    return text if text == "0" else text.replace("-", MINUS) if text.startswith("-") else f"+{text}"


def rate(value: float) -> str:
    return f"{value:g} req/s"


def interval_texts(
    value: Interval, unit: str = "ratio", decimals: Callable[[float], int] = usual_decimals
) -> tuple[str, str, str]:
    """Point, lower and upper end, told apart and from zero; an open end is said in words."""
    known = [v for v in (value.point, value.low, value.high) if v is not None]
    texts = iter(signed(known, unit, no_zero=value.excludes_zero, decimals=decimals))
    point = next(texts)
    low = "no lower bound" if value.low is None else next(texts)
    return point, low, "no upper bound" if value.high is None else next(texts)


def with_interval(value: Interval, unit: str = "ratio") -> str:
    """``"+31 % [+27 %, +36 %]"``; an open end is said in words."""
    point, low, high = interval_texts(value, unit)
    return f"{point} [{low}, {high}]"


def sentence(text: str) -> str:
    """With a capital."""
    return text[:1].upper() + text[1:]


def listing(items: Sequence[str], most: int = 3) -> str:
    """``"a, b, c and 4 more"``."""
    if len(items) > most:
        return ", ".join(items[:most]) + f" and {len(items) - most} more"
    return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else "".join(items)


def counted(counts: Sequence[int], of: str = "requests per point") -> str:
    """``"n = 200 to 1,920 requests per point"``."""
    if not counts:
        return "n unknown"
    low, high = min(counts), max(counts)
    return f"n = {low:,}" + (f" to {high:,}" if high > low else "") + f" {of}"


def counted_sides(taxes: Sequence[TaxRow], of: str = "point") -> str:
    """``counted`` where both sides are alike, else ``"n = 320 requests with the connector and 640 without per point"``."""
    own, plain = [t.n for t in taxes if t.n], [t.n_plain for t in taxes if t.n_plain]
    ends = [(min(side), max(side)) for side in (own, plain) if side]
    if len(set(ends)) < 2:
        return counted([*own, *plain], f"requests per {of}")
    first, second = (f"{low:,}" + (f" to {high:,}" if high > low else "") for low, high in ends)
    return f"n = {first} requests with the connector and {second} without per {of}"


def title_of(
    aggregate: Aggregate, name: str, reference: Reference | None = None, *, shape: bool = True
) -> str:
    """Return what a figure shows and under which condition, in one clause.

    Args:
        reference: of the only rate that it is of; None where it is of several.
        shape: whether it is of Phase A's shape alone.
    """
    rate_per_s = None if reference is None else reference_rate(aggregate, reference)
    own = phase_a_shape(aggregate) if shape else None
    found = label("title", name)
    if rate_per_s is not None:
        found += label("condition", "rate").format(rate=rate_per_s)
    if own is not None:
        found += label("condition", "shape").format(input=own[0], output=own[1])
    return found


def caption_of(aggregate: Aggregate, name: str, count: str, *lists: str, saturated: str = "") -> str:
    """Return a figure's constant, how many observations a number has, and lists of what is left out or saturated."""
    confidence = 100 * aggregate.provenance.confidence
    late = f"Saturated here: {saturated}." if saturated else ""
    return " ".join(
        filter(None, [label("caption", name).format(confidence=confidence), f"{count}.", *lists, late])
    )


def launches(taxes: Sequence[Tax]) -> str:
    """Return over how many blocks of launches taxes are; where not all are, whose are of one launch."""
    blocks = sorted({n for tax in taxes if (n := blocks_of(tax)) is not None})
    once = list(dict.fromkeys(tax.config for tax in taxes if blocks_of(tax) is None))
    over = f"Over {listing([*map(str, blocks)], 9)} blocks of launches." if blocks else ""
    alone = "Of one launch each." if not blocks else f"Of one launch: {listing(once, 9)}." if once else ""
    others = {t.config: str(t.phase) for t in taxes if blocks_of(t) is None and t.phase not in ("a", None)}
    named = [f"{c} (phase {phase_word(p)})" for c, p in sorted(others.items())]
    instead = f"Not of phase A: {listing(named, 9)}." if named else ""
    return " ".join(filter(None, (over, alone, instead)))


def no_step_times(aggregate: Aggregate) -> str:
    """Why no figure of steps can be drawn."""
    return f"step times were not recorded: {aggregate.step_timing_reason or 'no cell has step records'}"


def fell_behind(aggregate: Aggregate, taxes: Iterable[TaxRow]) -> str:
    """``plain and nixl_both``: which sides of these taxes did not keep up, in the campaign's order; empty where all did."""
    found = {"plain" if side == "plain" else tax.config for tax in taxes for side in tax.overloaded}
    order = aggregate.config_ids
    names = [*(c for c in order if c in found), *sorted(found - set(order))]
    return listing(names, len(names))


def left_out(
    aggregate: Aggregate,
    phase: str,
    drawn: Collection[str] | None = None,
    taxes: Iterable[Tax] = (),
    rate_per_s: float | None = None,
    among: Collection[str] | None = None,
) -> str:
    """The caption's sentences on what is not in the picture: skipped configurations, those without a number, invalid cells.

    Args:
        drawn: the configurations that the figure has a number of; None where the figure names the others by itself.
        taxes: those drawn; of one over blocks of launches the cells of its blocks count as well.
        rate_per_s: the rate that the figure is of; None where it is of several.
        among: the configurations that the figure is about; None where it is about all.
    """
    asked = [c for c in aggregate.config_ids if among is None or c in among]
    statuses = {c: aggregate.configs[c].status for c in asked}
    absent = [f"{c} ({status})" for c, status in statuses.items() if status not in MEASURED]
    cells = excluded_cells(aggregate, phase, taxes, rate_per_s, among)
    sentences = []
    if absent:
        sentences.append(f"Not in the picture: {listing(absent, len(absent))}.")
    if drawn is not None:
        measured = [c for c, status in statuses.items() if status in MEASURED]
        silent = [c for c in measured if is_connector(c) and c not in drawn]
        if silent:
            sentences.append(f"Without a number here: {listing(silent, len(silent))}.")
    sentences.append(f"Excluded cells: {listing(cells)}." if cells else "Excluded cells: none.")
    return " ".join(sentences)
