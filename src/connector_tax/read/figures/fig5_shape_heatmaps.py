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
from connector_tax.base.statistics.outcomes import NO_TAX_FOUND, UNDETERMINED
from connector_tax.read.figures.forms import MOST_HEIGHT, Form, form_in_use
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    connectors_or_all,
    main_taxes,
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
    caption_of,
    counted_sides,
    fell_behind,
    interval_texts,
    left_out,
    listing,
    rate,
    short_label,
    title_of,
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
    grids = {c: every[c] for c in connectors_or_all(every)}
    if not grids:
        return Omitted("no tax of TTFT p90 at ref_safe stands at any of phase B's shapes")
    order = list(grids)
    shapes = {tax.shape for tax in _measured(aggregate)}
    inputs, outputs = sorted({i for i, _ in shapes}), sorted({o for _, o in shapes})

    rates = rates_of(grids)
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
    title = title_of(aggregate, "fig5_shape_heatmaps", "ref_safe" if len(rates) == 1 else None, shape=False)
    set_claim(figure, title, source_note(aggregate))
    missing = [f"{c} {i}x{o}" for c in order for i in inputs for o in outputs if (i, o) not in grids[c]]
    found = [tax for grid in grids.values() for tax in grid.values()]
    caption = caption_of(
        aggregate,
        "fig5_shape_heatmaps",
        counted_sides(found, "cell"),
        f"Not available: {listing(missing)}." if missing else "",
        left_out(aggregate, "b", grids, found),
        saturated=fell_behind(aggregate, found),
    )
    return Drawn(figure, title, caption, _rows(grids, order))


def rates_of(grids: dict[str, Grid]) -> list[float]:
    """Return those that occur, in order."""
    return sorted({tax.rate_per_s for grid in grids.values() for tax in grid.values()})


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


def _rows(grids: dict[str, Grid], order: list[str]) -> list[Row]:
    return [
        {
            "config": config,
            "input_tokens": shape[0],
            "output_tokens": shape[1],
            "rate_per_s": tax.rate_per_s,
            "n_blocks": tax.n_blocks,
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
