"""Figures 4 and 5: the tax of every connector at both reference rates, and over prompt and output length."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from connector_tax.base.documents.aggregate import Aggregate, Interval, LatencyMetric, TaxRow
from connector_tax.base.documents.rates import REFERENCES, Reference
from connector_tax.base.statistics.outcomes import NO_TAX_FOUND, UNDETERMINED
from connector_tax.read.figures.captions import finished, launches, left_out, omitted
from connector_tax.read.figures.style import (
    FORM,
    Drawn,
    Omitted,
    Row,
    ends_of,
    error_bar,
    look_of,
    new_figure,
    percent_axis,
    row_axis,
    side_by_side,
    write_behind,
)
from connector_tax.read.figures.words import (
    METRICS,
    Tax,
    blocks_of,
    connectors_or_all,
    interval_texts,
    main_taxes,
    percent,
    phase_a_shape,
    rate,
    reference_rate,
    short_label,
    standing_tax,
)

BAR = 0.38
FLOOR = "#E9E9E9"
GAP = "#B2182B"
HATCH_OF = {"ref_safe": "", "ref_load": "////"}
# Of Figure 5, where an interval does not exclude zero.
HATCHES = {NO_TAX_FOUND: "////", UNDETERMINED: "...."}
# Of the CSV beside each figure; a tax of one launch has no blocks.
BAR_COLUMNS = (
    "config metric reference rate_per_s input_tokens output_tokens phase n_blocks point low high n n_plain"
)
CELL_COLUMNS = "config input_tokens output_tokens rate_per_s n_blocks point low high n n_plain verdict"
# Prompt and output tokens -> the tax there.
Grid = dict[tuple[int, int], Tax]


def draw_bars(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    every = {(m, r): main_taxes(aggregate, metric=m, reference=r) for m, r in product(METRICS, REFERENCES)}
    known = {c for found in every.values() for c in found}
    order = connectors_or_all([c for c in aggregate.config_ids if c in known])
    if not order:
        return omitted("no_taxes")
    taxes = {place: {c: tax for c, tax in found.items() if c in order} for place, found in every.items()}
    metrics = [m for m in METRICS if any(taxes[m, r] for r in REFERENCES)]
    names: dict[Reference, str] = {r: r for r in REFERENCES if any(taxes[m, r] for m in METRICS)}
    safe, load = (reference_rate(aggregate, r) for r in REFERENCES)
    if len(names) == 2 and safe == load:  # the same bar twice would look like agreement
        names = {"ref_safe": "ref_safe = ref_load"}

    form = FORM.get()
    figure = new_figure(10.4, 1.0 + (0.1 + 0.29 * len(names)) * len(order), len(metrics))
    floors = []
    for axes, metric in zip(side_by_side(figure, len(metrics)), metrics, strict=True):
        ends, texts = [0.0], [""]
        for row, config in enumerate(order):
            points = []
            gap = _gap(aggregate, config, metric)
            for position, reference in enumerate(names):
                tax = taxes[metric, reference].get(config)
                if tax is None or (value := tax.interval) is None:
                    continue
                points.append(value.point)
                y = row + (position - (len(names) - 1) / 2) * BAR
                colour, hatch = look_of(config).colour, HATCH_OF[reference]
                axes.barh(y, value.point, height=BAR * 0.92, color="#FFFFFF" if hatch else colour,
                          edgecolor=colour, hatch=hatch)  # fmt: skip
                error_bar(axes, y, value, horizontal=True)
                added = f"  gap {percent(gap.point).replace(' %', ' pp')}" if gap and hatch else ""
                texts.append(percent(value.point) + added)
                write_behind(axes, y, ends_of(value), texts[-1])
                ends += ends_of(value)
            if gap and len(points) == 2:
                axes.plot(points, [row, row], color=GAP, linewidth=2, marker="|", markersize=1.4 * form.mark)
        row_axis(axes, [short_label(aggregate.label_of(c)) for c in order], ends, texts)
        percent_axis(axes.xaxis)
        axes.set_xlabel(f"tax of {METRICS[metric]} (%)")
        for entry in aggregate.repeats:
            low, high = entry.noise_floor.low, entry.noise_floor.high
            at_safe = "ref_safe" in names and (entry.reference, entry.metric) == ("ref_safe", metric)
            if at_safe and low is not None and high is not None:
                floors.append(axes.axvspan(low, high, color=FLOOR, linewidth=0, zorder=0))
    legend: list[Artist] = [
        Patch(facecolor="#FFFFFF" if HATCH_OF[r] else "#999999", edgecolor="#333333", hatch=HATCH_OF[r],
              label=words if (at := reference_rate(aggregate, r)) is None else f"{words} ({rate(at)})")
        for r, words in names.items()
    ]  # fmt: skip
    if len(names) == 2:
        legend.append(Line2D([], [], color=GAP, linewidth=2, marker="|", label="gap: what load adds"))
    if floors:
        legend.append(Patch(facecolor=FLOOR, label="plain against itself"))
    shown = [tax for m in metrics for r in names for tax in taxes[m, r].values()]
    some = {tax.config for tax in shown}
    lacking = [f"{METRICS[m].removesuffix(' p90')} of {c} at {r}" for r in names for m in METRICS for c in order
               if c in some and c not in taxes[m, r]]  # fmt: skip
    return finished(
        aggregate,
        name,
        figure,
        [_columns(tax, BAR_COLUMNS) for tax in shown],
        taxes=shown,
        lists={**launches(shown), "no_bar": lacking, **left_out(aggregate, "a", some, taxes=shown)},
        legend=legend,
    )


def _columns(tax: Tax, names: str) -> Row:
    return {name: getattr(tax, name) for name in names.split()}


def _gap(aggregate: Aggregate, config: str, metric: LatencyMetric) -> Interval | None:
    """Return what load adds to a tax at Phase A's shape."""
    rows = (a for a in aggregate.amplification if (a.config, a.metric) == (config, metric))
    row = next((a for a in rows if a.input_tokens is None or a.shape == phase_a_shape(aggregate)), None)
    return None if row is None else row.interval


def draw_shapes(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw the TTFT tax over prompt and output length, one heatmap per connector (phase B).

    A shape that somebody could not hold at ref_safe was measured at a lower rate; then every cell names its own. At Phase A's shape
    the main tax stands, as in Figure 4, also where Phase B's own cell is lost.
    """
    own = [
        tax
        for tax in aggregate.taxes
        if (tax.phase, tax.metric, tax.reference) == ("b", "ttft_p90", "ref_safe") and tax.config != "plain"
    ]
    every = _grids(aggregate, own)
    order = connectors_or_all([c for c in aggregate.config_ids if c in every])
    if not order:
        return omitted("no_shapes")
    inputs, outputs = sorted({t.input_tokens for t in own}), sorted({t.output_tokens for t in own})
    names = [short_label(aggregate.label_of(c)) for c in order]
    taxes = [tax for c in order for _, tax in sorted(every[c].items())]
    rates = {tax.rate_per_s for tax in taxes}
    form = FORM.get()
    texts = {id(tax): _text(tax, len(rates) > 1, "\n" if form.narrow else " ") for tax in taxes}
    cells = [text.split("\n") for text in texts.values()]

    # Cells are as large as their numbers need, and panels stand side by side as the width allows.
    widest, tallest = max(len(line) for cell in cells for line in cell), max(map(len, cells))
    wide = max(len(outputs) * (0.57 * form.small * widest + 3), 0.6 * form.small * max(map(len, names)))
    panel = (wide + form.small) / 72
    space = (form.width or 11.0) - 0.09 * form.text
    columns = max(1, min(len(order), 4, int(space / (0.85 * panel))))
    lines = -(-len(order) // columns)
    high = len(inputs) * (1.35 * tallest * form.small + 4) + 2.2 * form.text
    height = (lines * high + 9 * form.text) / 72
    figure = new_figure(max(8.0, columns * panel + 0.1 * form.text), height / form.tallness)
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    fits = min(1.0, (figure.get_figwidth() - 0.09 * form.text) / columns / panel)
    points = sorted(abs(tax.point) for tax in taxes if tax.point is not None)
    # One saturated cell must not bleach the rest: the scale ends at three times the median, the text has the number.
    limit = max(min(points[-1], 3 * points[len(points) // 2]), 0.02)
    norm = Normalize(-limit, limit)
    colours = colormaps["PuOr_r"].with_extremes(bad="#EDEDED")
    for position, axes in enumerate(panels.flat):
        if position >= len(order):
            axes.set_axis_off()
            continue
        grid = every[order[position]]
        values = np.array(
            [[tax.point if (tax := grid.get((i, o))) else np.nan for o in outputs] for i in inputs]
        )
        axes.pcolormesh(values, cmap=colours, norm=norm, edgecolors="#FFFFFF", linewidth=1.5)
        for (row, i), (column, o) in product(enumerate(inputs), enumerate(outputs)):
            text = texts[id(grid[i, o])] if (i, o) in grid else "n/a"
            _write(
                axes,
                column,
                row,
                grid.get((i, o)),
                text,
                colours(norm(values[row, column])),
                form.small * fits,
            )
        axes.set_xticks(np.arange(len(outputs)) + 0.5, [f"{o:,}" for o in outputs])
        axes.set_yticks(np.arange(len(inputs)) + 0.5, [f"{i:,}" for i in inputs])
        axes.set_ylim(len(inputs), 0)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(names[position], loc="left", fontsize=form.small * fits)
        if position % columns == 0:
            axes.set_ylabel("prompt (tokens)")
        if position >= columns * (lines - 1):
            axes.set_xlabel("output (tokens)")
    extend = "both" if points[-1] > limit else "neither"
    bar = figure.colorbar(
        panels.flat[0].collections[0], ax=panels, location="bottom", shrink=0.8, aspect=50, extend=extend
    )
    bar.set_label("tax of TTFT p90 (%); hatched: interval covers 0")
    percent_axis(bar.ax.xaxis)
    missing = [f"{c} {i}x{o}" for c, i, o in product(order, inputs, outputs) if (i, o) not in every[c]]
    return finished(
        aggregate,
        name,
        figure,
        [_columns(tax, CELL_COLUMNS) for tax in taxes],
        taxes=taxes,
        lists={"not_available": missing, **left_out(aggregate, "b", order, taxes=taxes)},
        rate_per_s=rates.pop() if len(rates) == 1 else None,
        shape=False,
    )


def _grids(aggregate: Aggregate, own: Sequence[TaxRow]) -> dict[str, Grid]:
    """Return of each configuration the tax that stands at each of Phase B's shapes; its own cell there may be lost, or all of Phase B."""
    grids: dict[str, Grid] = {}
    for measured in own:
        tax = standing_tax(aggregate, measured)
        if tax.known:
            grids.setdefault(tax.config, {})[measured.shape] = tax
    for config, main in main_taxes(aggregate, metric="ttft_p90", reference="ref_safe").items():
        if (main.shape, main.rate_per_s) in {(tax.shape, tax.rate_per_s) for tax in own}:
            grids.setdefault(config, {}).setdefault(main.shape, main)
    return grids


def _text(tax: Tax, with_rate: bool, between: str) -> str:
    """Return what stands in a cell: the tax, its interval, and where they differ its rate and its blocks."""
    value = tax.interval
    assert value is not None, "a grid has taxes with a number"
    point, low, high = (text.removesuffix(" %") for text in interval_texts(value, no_low="?", no_high="?"))
    lines = [f"{point} %", f"[{low},{between}{high}]"]
    if with_rate:
        lines.append(rate(tax.rate_per_s))
    if (blocks := blocks_of(tax)) is not None:
        lines.append(f"{blocks} blocks")
    return "\n".join(lines)


def _write(axes: Any, x: int, y: int, tax: Tax | None, text: str, colour: Any, points: float) -> None:
    """Write a cell's numbers, dark on light colours and light on dark ones, and hatch a cell whose interval holds zero."""
    hatch = HATCHES.get(tax.told) if tax else None
    if hatch:
        face: Any = {"fill": False, "edgecolor": "#8A8A8A", "linewidth": 0}
        axes.add_patch(Rectangle((x, y), 1, 1, hatch=hatch, **face))
    dark = float(np.dot(colour[:3], (0.299, 0.587, 0.114))) < 0.5
    axes.text(
        x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=points, linespacing=1.25,
        color="#FFFFFF" if dark else "#000000",
        bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.4} if hatch else None,
    )  # fmt: skip
