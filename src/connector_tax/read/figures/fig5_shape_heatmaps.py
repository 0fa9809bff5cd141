"""Figure 5: the TTFT tax over prompt and output length, one heatmap per connector (phase B).

A shape that somebody could not hold at ref_safe was measured at a lower rate; then every cell names its own. At Phase A's shape
the main tax stands, as in Figure 4, also where Phase B's own cell is lost.
"""

from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from connector_tax.base.documents.aggregate import Aggregate, Interval, TaxRow
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.outcomes import GAIN, NO_TAX_FOUND, TAX, UNDETERMINED
from connector_tax.read.figures.claims import drawn_of, not_drawn
from connector_tax.read.figures.forms import MOST_HEIGHT, Form, form_in_use
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    confidence_words,
    main_taxes,
    reference_rate,
    source_note,
    standing_tax,
)
from connector_tax.read.figures.style import (
    Drawn,
    Omitted,
    Row,
    new_figure,
    percent_ticks,
    set_claim,
    text_width,
)
from connector_tax.read.figures.words import (
    PHASES,
    clean,
    counted_sides,
    interval_texts,
    launch_of,
    left_out,
    listing,
    of_reference_rates,
    rate,
    short_label,
    with_interval,
)

PER_ROW = 4
# Room for axis labels and the scale, in a paper's two columns or in one, inches; and above and below the panels of a slide, in lines.
OF_LENGTHS = {False: 1.35, True: 0.6}
AROUND = 10
# Cells of a slide are read from near by, points.
LEAST_ON_SLIDES = 8.0
# Where an interval does not exclude zero.
HATCHES: dict[str, str] = {NO_TAX_FOUND: "////", UNDETERMINED: "...."}
# Prompt and output tokens -> the tax there.
Grid = dict[tuple[int, int], Tax]


@dataclass(frozen=True, slots=True)
class _Cells:
    """How numbers are written in the cells of a heatmap.

    Attributes:
        stacked: the ends of the interval below each other.
        points: size of type.
    """

    with_rates: bool
    stacked: bool = False
    points: float = 7.5
    spacing: float = 1.35


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    every = _grids(aggregate)
    grids = {c: every[c] for c in drawn_of(every)}
    if not grids:
        return Omitted("no tax of TTFT p90 at ref_safe stands at any of phase B's shapes")
    order = list(grids)
    shapes = {tax.shape for tax in _measured(aggregate)}
    inputs, outputs = sorted({i for i, _ in shapes}), sorted({o for _, o in shapes})

    rates = _rates(grids)
    form = form_in_use()
    cells = _Cells(with_rates=len(rates) > 1)
    columns = min(PER_ROW, len(order))
    names = [short_label(aggregate.label_of(c)) for c in order]
    if not form.is_page:
        fitting = _fitting(form, grids, names, len(inputs), len(outputs), cells)
        if fitting is None:
            return Omitted(
                f"{len(inputs)} x {len(outputs)} shapes of {len(order)} connectors are too many for numbers of a readable size in this form"
            )
        columns, cells = fitting
    lines = -(-len(order) // columns)
    width = max(8.0, 1.6 + 2.75 * columns * max(1.0, len(outputs) / 3))
    height = max(3.4, 1.35 + 2.35 * lines * max(0.75, len(inputs) / 3))
    if form.width is not None and form.height is None:
        height = _height(form, lines, len(inputs), _tallest(grids, cells))
    figure = new_figure(width, height, exact=not form.is_page)
    panels = figure.subplots(lines, columns, squeeze=False)
    points = [v.point for grid in grids.values() for tax in grid.values() if (v := tax.interval) is not None]
    # One saturated cell must not bleach the rest: the scale ends at three times the median, the text has the number.
    middle = sorted(abs(p) for p in points)[len(points) // 2]
    limit = max(min(max(abs(p) for p in points), 3 * middle), 0.02)
    norm = Normalize(-limit, limit)
    colours = matplotlib.colormaps["PuOr_r"]
    for position, axes in enumerate(panels.flat):
        if position >= len(order):
            axes.set_axis_off()
            continue
        _heatmap(axes, grids[order[position]], inputs, outputs, norm, colours, cells)
        if not form.is_page and position % columns:
            axes.tick_params(labelleft=False)
        axes.set_title(names[position], loc="left", **({} if form.is_page else {"fontsize": form.small}))
        if position % columns == 0:
            axes.set_ylabel("prompt length (tokens)")
        if position + columns >= len(order) if form.is_page else position >= columns * (lines - 1):
            axes.set_xlabel("output length (tokens)")
    below: Any = {"location": "bottom", "aspect": 40} if form.narrow else {}
    bar = figure.colorbar(
        matplotlib.cm.ScalarMappable(norm, colours), ax=panels, shrink=0.8, pad=0.015,
        extend="both" if max(abs(p) for p in points) > limit else "neither", **below,
    )  # fmt: skip
    bar.set_label("tax of TTFT p90 (%)\nhatched: interval covers 0")
    bar.formatter = FuncFormatter(percent_ticks)
    title = _title(aggregate, grids)
    set_claim(figure, title, source_note(aggregate))
    missing = [f"{c} {i}x{o}" for c in order for i in inputs for o in outputs if (i, o) not in grids[c]]
    return Drawn(
        figure, title, _caption(aggregate, grids, order, missing, not_drawn(every)), _rows(grids, order)
    )


def _grids(aggregate: Aggregate) -> dict[str, Grid]:
    """Of each configuration, the tax that stands at each of Phase B's shapes; its own cell there may be lost, or all of Phase B."""
    own = _measured(aggregate)
    grids: dict[str, Grid] = {}
    for measured in own:
        tax = standing_tax(aggregate, measured)
        if tax.known:
            grids.setdefault(tax.config, {})[measured.shape] = tax
    for config, main in main_taxes(aggregate, metric="ttft_p90", reference="ref_safe").items():
        if (main.shape, main.rate_per_s) in {(tax.shape, tax.rate_per_s) for tax in own}:
            grids.setdefault(config, {}).setdefault(main.shape, main)
    place = {c: k for k, c in enumerate(aggregate.config_ids)}
    return {c: grids[c] for c in sorted(grids, key=lambda c: place.get(c, len(place)))}


def _measured(aggregate: Aggregate) -> list[TaxRow]:
    """The tax of each of Phase B's cells, those without a number too."""
    return [
        tax
        for tax in aggregate.taxes
        if (tax.phase, tax.metric, tax.reference) == ("b", "ttft_p90", "ref_safe") and tax.config != "plain"
    ]


def _heatmap(
    axes: Axes,
    grid: Grid,
    inputs: list[int],
    outputs: list[int],
    norm: Normalize,
    colours: matplotlib.colors.Colormap,
    cells: _Cells,
) -> None:
    for row, tokens_in in enumerate(inputs):
        for column, tokens_out in enumerate(outputs):
            tax = grid.get((tokens_in, tokens_out))
            if tax is None or (value := tax.interval) is None:
                _tile(axes, column, row, "#EDEDED")
                axes.text(
                    column,
                    row,
                    "not\navailable",
                    ha="center",
                    va="center",
                    fontsize=cells.points,
                    color="#666666",
                )
                continue
            colour = colours(norm(value.point))
            _tile(axes, column, row, colour, hatch=HATCHES.get(value.told, ""))
            red, green, blue = colour[:3]
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            lines = _lines(tax, value, cells)
            points = cells.points
            if form_in_use().is_page:
                points *= min(1, 11.5 / max(map(len, lines)))
            axes.text(
                column, row, "\n".join(lines), ha="center", va="center", fontsize=points,
                color="#FFFFFF" if dark else "#000000", linespacing=cells.spacing,
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.4} if value.told in HATCHES else None,
            )  # fmt: skip
    axes.set_xlim(-0.5, len(outputs) - 0.5)
    axes.set_ylim(len(inputs) - 0.5, -0.5)
    axes.set_xticks(range(len(outputs)), [f"{o:,}" for o in outputs])
    axes.set_yticks(range(len(inputs)), [f"{i:,}" for i in inputs])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _lines(tax: Tax, value: Interval, cells: _Cells) -> list[str]:
    """What stands in a cell."""
    point, *bounds = interval_texts(value)
    known = (value.low is not None, value.high is not None)
    low, high = (b.removesuffix(" %") if k else "?" for b, k in zip(bounds, known, strict=True))
    lines = [point, *([f"[{low},", f"{high}]"] if cells.stacked else [f"[{low}, {high}]"])]
    if cells.with_rates:
        lines.append(rate(tax.rate_per_s))
    if (blocks := blocks_of(tax)) is not None:
        lines.append(f"{blocks} blocks")
    return lines


def _fitting(
    form: Form, grids: dict[str, Grid], names: list[str], inputs: int, outputs: int, cells: _Cells
) -> tuple[int, _Cells] | None:
    """Panels side by side and how numbers are written in their cells: as many panels as leave room for type of the form's size, on a
    slide as leave room for the largest. None where no arrangement does, or where the figure would be taller than a page."""
    assert form.width is not None
    best: tuple[int, _Cells] | None = None
    for columns in range(min(PER_ROW if form.height is None else len(grids), len(grids)), 0, -1):
        lines = -(-len(grids) // columns)
        room = ((form.width - OF_LENGTHS[form.narrow] * form.text / 7.5) / columns - 0.006 * form.text) * 72
        if max(text_width(n, form.small) for n in names) > room:
            continue
        for stacked in (False, True):
            found = replace(cells, stacked=stacked, spacing=1.2)
            texts = [
                _lines(tax, v, found)
                for g in grids.values()
                for tax in g.values()
                if (v := tax.interval) is not None
            ]
            widest = max(text_width(t, 1.0) for t in {t for text in texts for t in text})
            tallest = max(map(len, texts))
            size = min(form.small, (room / outputs - 0.2 * form.text) / widest)
            if form.height is not None:
                panel = (form.height - AROUND * form.text / 72) / lines - 2 * form.text / 72
                size = min(size, (panel / inputs * 72 - 3) / (1.25 * tallest))
            found = replace(found, points=size)
            if form.height is None and size >= form.least:
                tall = _height(form, lines, inputs, tallest)
                return (columns, found) if tall <= MOST_HEIGHT else None
            if (
                form.height is not None
                and size >= LEAST_ON_SLIDES
                and (best is None or size > best[1].points)
            ):
                best = columns, found
    return best


def _tallest(grids: dict[str, Grid], cells: _Cells) -> int:
    """Lines of the cell with the most."""
    found = [(tax, v) for g in grids.values() for tax in g.values() if (v := tax.interval) is not None]
    return max(len(_lines(tax, value, cells)) for tax, value in found)


def _height(form: Form, lines: int, inputs: int, tallest: int) -> float:
    """Of ``lines`` rows of panels whose cells hold ``tallest`` lines, inches."""
    cell = (1.27 * tallest * form.small + 3) / 72
    return lines * (inputs * cell + 1.9 * form.text / 72) + (5 + 5 * form.narrow) * form.text / 72


def _tile(axes: Axes, column: int, row: int, colour: Any, hatch: str = "") -> None:
    axes.add_patch(
        Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="#8A8A8A" if hatch else "#FFFFFF",
                  hatch=hatch, linewidth=0.0 if hatch else 1.5)
    )  # fmt: skip
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#FFFFFF", linewidth=1.5))


def _rates(grids: dict[str, Grid]) -> list[float]:
    """Those that occur, in order."""
    return sorted({tax.rate_per_s for grid in grids.values() for tax in grid.values()})


def _title(aggregate: Aggregate, grids: dict[str, Grid]) -> str:
    """How many taxes and gains of connectors are told apart from zero; of those the largest tax and where, else the largest gain."""
    own = {c: grid for c, grid in grids.items() if is_connector(c)}
    found = [(v, tax) for grid in own.values() for tax in grid.values() if (v := tax.interval) is not None]
    clear = [f for f in found if f[0].told == TAX]
    lower = [f for f in found if f[0].told == GAIN]
    if not found:
        return "No connector has a TTFT tax at any shape"
    unknown = sum(v.told == UNDETERMINED for v, _ in found)
    not_known = f"; of {unknown} it is not known" if unknown else ""
    if not clear and not lower:
        return f"At no shape is a connector's TTFT tax told apart from zero ({len(found)} cells{not_known})"
    if not clear:
        lowest = _place(aggregate, grids, *min(lower, key=lambda f: f[0].point))
        return f"The TTFT tax is below zero in {len(lower)} of {len(found)} cells and above it in none; the lowest is {lowest}{not_known}"
    largest = _place(aggregate, grids, *max(clear, key=lambda f: f[0].point))
    below = f" and below it in {len(lower)}" if lower else ""
    which = "that tax" if len(clear) == 1 else "the largest of these taxes"
    return f"The TTFT tax is above zero in {len(clear)} of {len(found)} cells{below}; {which} is {largest}{not_known}"


def _place(aggregate: Aggregate, grids: dict[str, Grid], value: Interval, tax: Tax) -> str:
    """A tax, whose it is and where."""
    queueing = ", where a side did not keep up" if tax.overloaded else ""
    at = f" at {rate(tax.rate_per_s)}" if len(_rates(grids)) > 1 else ""
    kind = f" {tax.kind}" if blocks_of(tax) is not None else ""
    return (
        f"{with_interval(value)}{kind}, {clean(aggregate.label_of(tax.config), 40)} at {tax.input_tokens:,} prompt and "
        f"{tax.output_tokens:,} output tokens{at}{queueing}"
    )


def _caption(
    aggregate: Aggregate, grids: dict[str, Grid], order: list[str], missing: list[str], others: list[str]
) -> str:
    found = [tax for grid in grids.values() for tax in grid.values()]
    queued = sum(bool(tax.overloaded) for tax in found)
    return " ".join(
        [
            f"Tax of TTFT p90 against plain {_where(aggregate, grids)}, phase B.",
            _instead(grids),
            f"In brackets the {confidence_words(aggregate)} interval in percent, {_launches(grids)}; hatched where it covers zero{_dotted(found)}.",
            f"{counted_sides(found, 'cell')}.",
            f"In {queued} of the {len(found)} cells drawn plain or the connector did not keep up: those taxes hold queueing."
            if queued
            else "",
            f"Not available: {listing(missing)}." if missing else "",
            of_reference_rates(aggregate),
            *others,
            left_out(aggregate, "b", grids, found),
        ]
    ).replace("  ", " ")


def _instead(grids: dict[str, Grid]) -> str:
    """At Phase A's shape, where not all taxes are of Phase B's launch: whose each is."""
    whose: dict[tuple[int, int], dict[str, list[str]]] = {}
    for config, grid in grids.items():
        for shape, tax in grid.items():
            whose.setdefault(shape, {}).setdefault(_launch_of(tax), []).append(config)
    sentences = []
    for shape, found in whose.items():
        if set(found) != {OWN}:
            told = "; ".join(f"{words} for {listing(found[words], 9)}" for words in sorted(found))
            sentences.append(f"At {shape[0]} x {shape[1]} tokens, Phase A's shape, the tax is {told}.")
    return " ".join(sentences)


OWN = "of Phase B's own launch"


def _launch_of(tax: Tax) -> str:
    if (blocks := blocks_of(tax)) is not None:
        return f"over {blocks} blocks of launches"
    phase = str(tax.phase)
    return OWN if phase == "b" else f"of {launch_of(PHASES.get(phase, phase.upper()), 'Phase')}"


def _dotted(found: list[Tax]) -> str:
    is_open = any(tax.known and tax.told == UNDETERMINED for tax in found)
    return ", dotted where an open end leaves it open which" if is_open else ""


def _launches(grids: dict[str, Grid]) -> str:
    """Of how many launches the cells are; those over blocks say so themselves."""
    taxes = [tax for grid in grids.values() for tax in grid.values()]
    several = {tax.shape for tax in taxes if blocks_of(tax) is not None}
    if not several:
        return "of one launch each"
    return (
        f"at {listing([f'{i} x {o} tokens' for i, o in sorted(several)])} over as many blocks of launches as the cell names, else of "
        "one launch each"
    )


def _where(aggregate: Aggregate, grids: dict[str, Grid]) -> str:
    at, rates = reference_rate(aggregate, "ref_safe"), _rates(grids)
    safe = f"ref_safe{f' ({rate(at)})' if at is not None else ''}"
    if len(rates) < 2:
        # Phase B ran at the rates of its day; where they were worked out anew since, ref_safe may be another.
        other = rates and at is not None and rates != [at]
        return f"at {rate(rates[0])}, and not at {safe}" if other else f"at {safe}"
    if at is not None and rates[-1] > at:
        return f"at the rate in each cell, {rates[0]:g} to {rate(rates[-1])}, and not at {safe} in all"
    return (
        f"at the rate in each cell, {rates[0]:g} to {rate(rates[-1])}: {safe} where the capacity estimate says that every configuration holds the shape, else a lower "
        "one, the same for all configurations"
    )


def _rows(grids: dict[str, Grid], order: list[str]) -> list[Row]:
    return [
        {
            "config": config,
            "input_tokens": shape[0],
            "output_tokens": shape[1],
            "rate_per_s": tax.rate_per_s,
            "kind": tax.kind,
            "point": tax.point,
            "low": tax.low,
            "high": tax.high,
            "n": tax.n,
            "n_plain": tax.n_plain,
            "verdict": tax.verdict,
        }
        for config in order
        for shape, tax in sorted(grids[config].items())
    ]
