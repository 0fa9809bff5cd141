"""One percentile against the send rate, a line per configuration, with a strip of the saturation criteria below."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from connector_tax.base.documents.aggregate import Aggregate, Interval, Latency, MeasuredCell
from connector_tax.read.figures.direct import End, label_ends
from connector_tax.read.figures.forms import form_in_use, stroke, type_size
from connector_tax.read.figures.questions import (
    rated_cells,
    reference_rate,
    source_note,
)
from connector_tax.read.figures.style import (
    Drawn,
    Omitted,
    Row,
    error_bar,
    look_of,
    new_figure,
    plain_log_axis,
    rate_axis,
    set_claim,
)
from connector_tax.read.figures.words import (
    caption_of,
    counted,
    left_out,
    rate,
    short_label,
    title_of,
)

CRITERIA = {
    "throughput": ("x", "throughput below 95 % of requested"),
    "waiting": ("+", "median of waiting requests above 1"),
    "ttft_growth": ("1", "TTFT p90 above 1.5x that at half the rate"),
}
# Growth is not judged where arrivals are random.
RANDOM_CRITERIA = {
    "throughput": ("x", "throughput below 95 % of what was sent"),
    "waiting": CRITERIA["waiting"],
}
# Neighbouring lines are set apart sideways by this factor per configuration, so their intervals can be told apart.
SIDESTEP = 1.022

Point = tuple[MeasuredCell, Interval]
# By configuration.
Lines = Mapping[str, Sequence[Point]]


def draw_rate_lines(
    aggregate: Aggregate, *, figure_name: str, quantity: Latency, name: str, axis_label: str
) -> Drawn | Omitted:
    """Figure 1 and Figure 2; ``quantity`` is the key of the cells, ``name`` what it is called."""
    lines = {c: _points(aggregate, c, quantity) for c in aggregate.config_ids}
    lines = {c: points for c, points in lines.items() if points}
    if not lines:
        return Omitted(f"no valid cell of phase A has a {name} p90")
    cells = {c: rated_cells(aggregate, "a", c) for c in lines}
    rates = sorted({cell.rate_per_s for found in cells.values() for cell in found})
    fired = {c: [cell for cell in found if cell.saturation_criteria.fired] for c, found in cells.items()}
    with_strip = any(fired.values())

    strip_height = 0.45 + 0.19 * len(lines) if with_strip else 0
    form = form_in_use()
    figure = new_figure(9.6, 5.0 + strip_height, narrow=2.5 + 0.75 * strip_height)
    axes, strip = _panels(figure, with_strip, strip_height)
    ends = [
        _line(axes, aggregate, config, points, SIDESTEP ** (position - (len(lines) - 1) / 2))
        for position, (config, points) in enumerate(lines.items())
    ]
    rate_axis(axes, rates)
    plain_log_axis(axes)
    axes.set_ylabel(axis_label)
    _mark_references(axes, aggregate)
    handles = [_legend_entry(aggregate, c) for c in lines] if form.is_page else []
    if with_strip:
        handles.append(
            Line2D(
                [],
                [],
                linestyle="none" if form.is_page else "-",
                linewidth=stroke(1.4),
                marker="x",
                markersize=stroke(10),
                color="#333333",
                label="saturated" if form.is_page else "on a line: saturated",
            )
        )
    if form.is_page:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    if strip is not None:
        words = RANDOM_CRITERIA if aggregate.provenance.random_arrivals else CRITERIA
        handles += _strip(strip, aggregate, fired, words)
    (strip or axes).set_xlabel("requested send rate (req/s)")
    title = title_of(aggregate, figure_name)
    if form.is_page:
        set_claim(figure, title, source_note(aggregate))
    else:
        set_claim(figure, title, source_note(aggregate), handles)
        label_ends(axes, ends)
    sizes = [cell.n_window for points in lines.values() for cell, _ in points if cell.n_window]
    # A configuration without any point has no line, and its cells are named all the same.
    lost = [
        f"{c} at {rate(cell.rate_per_s)}"
        for c in aggregate.config_ids
        for cell in rated_cells(aggregate, "a", c)
        if cell.rate_per_s not in [p.rate_per_s for p, _ in lines.get(c, [])]
    ]
    missing = f"No point: {'; '.join(lost)}." if lost else ""
    caption = caption_of(aggregate, figure_name, counted(sizes), missing, left_out(aggregate, "a"))
    return Drawn(figure, title, caption, _rows(lines, quantity))


def _points(aggregate: Aggregate, config: str, quantity: Latency) -> list[Point]:
    found = [(cell, cell.latency(quantity).p90.interval) for cell in rated_cells(aggregate, "a", config)]
    return [(cell, value) for cell, value in found if value is not None and value.point > 0]


def _panels(figure: Figure, with_strip: bool, strip_height: float) -> tuple[Axes, Axes | None]:
    if not with_strip:
        return figure.subplots(), None
    if form_in_use().height is not None:  # whose type grows, and whose height does not
        strip_height *= 1.4
    panels = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, strip_height])
    return panels[0], panels[1]


def _line(axes: Axes, aggregate: Aggregate, config: str, points: Sequence[Point], sidestep: float) -> End:
    look = look_of(config)
    xs = [cell.rate_per_s * sidestep for cell, _ in points]
    ys = [v.point for _, v in points]
    axes.plot(xs, ys, color=look.colour, marker=look.marker, markersize=stroke(5.5), linewidth=stroke(1.4))
    for x, (cell, value) in zip(xs, points, strict=True):
        error_bar(axes, x, value, colour=look.colour)
        if cell.saturation_criteria.fired:
            axes.plot(
                [x], [value.point], "x", color="#333333", markersize=stroke(10), markeredgewidth=stroke(1.1), zorder=5
            )  # fmt: skip
    return End(xs[-1], ys[-1], short_label(aggregate.label_of(config)), look)


def _legend_entry(aggregate: Aggregate, config: str) -> Line2D:
    look, label = look_of(config), short_label(aggregate.label_of(config))
    return Line2D([], [], color=look.colour, marker=look.marker, markersize=5.5, label=label)


def _mark_references(axes: Axes, aggregate: Aggregate) -> None:
    safe, load = reference_rate(aggregate, "ref_safe"), reference_rate(aggregate, "ref_load")
    marks = {safe: "ref_safe", load: "ref_load"} if safe != load else {safe: "ref_safe = ref_load"}
    low, high = axes.get_xlim()
    page = form_in_use().is_page
    if not page:  # a line for each of their names
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top * (top / bottom) ** (0.08 * len(marks)))
    for line, (value, text) in enumerate(marks.items()):
        if value is not None and low < value < high:
            # Where lines end their names begin, and beside the first of two stands the other one.
            share = math.log(value / low) / math.log(high / low)
            left = not page and share > (0.3 if line + 1 < len(marks) else 0.5)
            axes.axvline(value, color="#888888", linewidth=stroke(0.9), linestyle=(0, (4, 3)), zorder=0)
            axes.annotate(
                text, (value, 1), xycoords=("data", "axes fraction"), xytext=(-3 if left else 3, -2 if page else -2 - 1.2 * line * type_size(8.5)), textcoords="offset points",
                ha="right" if left else "left", va="top", fontsize=type_size(8.5), color="#555555",
            )  # fmt: skip


def _strip(
    axes: Axes,
    aggregate: Aggregate,
    fired: Mapping[str, Sequence[MeasuredCell]],
    words: Mapping[str, tuple[str, str]],
) -> list[Line2D]:
    """One row per configuration: which criteria fired at which rate; returns the key of the criteria."""
    apart, size = (1.2, 5) if form_in_use().narrow else (1.12, 7)
    for row, (config, cells) in enumerate(fired.items()):
        for cell in cells:
            for column, (criterion, (marker, _)) in enumerate(CRITERIA.items()):
                if criterion in cell.saturation_criteria.fired:
                    x = cell.rate_per_s * apart ** (column - 1)
                    axes.plot(
                        [x], [row], marker, color=look_of(config).colour, markersize=stroke(size),
                        markeredgewidth=stroke(1.4),
                    )  # fmt: skip
    axes.set_yticks(
        range(len(fired)), [short_label(aggregate.label_of(c)) for c in fired], fontsize=type_size(8)
    )
    axes.set_ylim(len(fired) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", visible=False)
    handles = [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=m,
            color="#333333",
            markersize=stroke(size),
            markeredgewidth=stroke(1.4),
            label=text,
        )
        for m, text in words.values()
    ]
    if form_in_use().is_page:
        axes.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, title="saturated because",
            title_fontsize=8, alignment="left", handletextpad=0.3,
        )  # fmt: skip
    else:
        # Where the lines' names are, so that they take no width a second time.
        axes.yaxis.tick_right()
    return handles


def _rows(lines: Lines, quantity: Latency) -> list[Row]:
    return [
        {
            "config": config,
            "rate_per_s": cell.rate_per_s,
            f"{quantity}_p90": value.point,
            "low": value.low,
            "high": value.high,
            "n": cell.n_window,
            "saturated_because": "+".join(cell.saturation_criteria.fired),
        }
        for config, points in lines.items()
        for cell, value in points
    ]
