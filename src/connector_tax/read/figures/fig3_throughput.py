"""Figure 3: achieved throughput against the requested rate, with the line of a server that keeps up (y = x) and the knees."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from connector_tax.base.documents.aggregate import Aggregate, MeasuredCell
from connector_tax.read.figures.direct import End, label_ends
from connector_tax.read.figures.forms import form_in_use, stroke, type_size
from connector_tax.read.figures.questions import rated_cells, saturation_rate, source_note
from connector_tax.read.figures.style import (
    Drawn,
    Omitted,
    Row,
    look_of,
    new_figure,
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

# Of markers, in points: where all keep up they lie on one another, and the earlier ones show behind the later.
LARGEST, SMALLEST = 13.0, 4.0
# By configuration, in order of rate.
Lines = dict[str, list[MeasuredCell]]
Knees = dict[str, float]


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    lines: Lines = {}
    for config in aggregate.config_ids:
        cells = [c for c in rated_cells(aggregate, "a", config) if c.effective_throughput_per_s > 0]
        if cells:
            lines[config] = cells
    if not lines:
        return Omitted("no valid cell of phase A has an effective throughput")

    rates = sorted({cell.rate_per_s for cells in lines.values() for cell in cells})
    form = form_in_use()
    figure = new_figure(9.6, 5.4, narrow=2.6)
    axes = figure.subplots()
    dashed: Any = {"color": "#555555", "linewidth": stroke(1), "linestyle": (0, (5, 3))}
    axes.plot(rates, rates, zorder=5, **dashed)
    handles = [Line2D([], [], label="achieved = requested (y = x)", **dashed)]
    ends = []
    knees = _knees(aggregate, lines)
    for position, (config, cells) in enumerate(lines.items()):
        size = LARGEST - (LARGEST - SMALLEST) * position / len(lines)
        label = short_label(aggregate.label_of(config))
        handle, end = _line(axes, config, label, cells, size, knees.get(config))
        handles += [handle] * form.is_page
        ends.append(end)
    if knees:
        handles.append(_ring([], [], "#333333", label="knee: lowest saturated rate"))
    rate_axis(axes, rates)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(rates)
    _name_knees(axes, lines, knees)
    axes.set_xlabel("requested send rate (req/s)")
    axes.set_ylabel("achieved throughput (req/s)")
    title = title_of(aggregate, "fig3_throughput")
    if form.is_page:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        set_claim(figure, title, source_note(aggregate))
    else:
        set_claim(figure, title, source_note(aggregate), handles)
        label_ends(axes, ends)
    sizes = [cell.n_window for cells in lines.values() for cell in cells if cell.n_window]
    caption = caption_of(aggregate, "fig3_throughput", counted(sizes), left_out(aggregate, "a"))
    return Drawn(figure, title, caption, _rows(lines, knees))


def _line(
    axes: Axes, config: str, label: str, cells: list[MeasuredCell], size: float, knee: float | None
) -> tuple[Line2D, End]:
    """One configuration with markers of ``size`` points; its entry of the key, and where its line ends."""
    look = look_of(config)
    xs = [cell.rate_per_s for cell in cells]
    ys = [cell.effective_throughput_per_s for cell in cells]
    mark: Any = {"color": look.colour, "marker": look.marker, "markersize": stroke(size)}
    axes.plot(xs, ys, linewidth=stroke(1.4), **mark)
    for x, y, cell in zip(xs, ys, cells, strict=True):
        if cell.rate_per_s == knee:
            axes.add_line(_ring([x], [y], look.colour))
    return Line2D([], [], label=label, **mark), End(xs[-1], ys[-1], label, look)


def _name_knees(axes: Axes, lines: Lines, knees: Knees) -> None:
    """Below all points at each knee: its rate, every other one further down, so that neighbours do not meet."""
    cells = [cell for of_one in lines.values() for cell in of_one]
    for k, knee in enumerate(
        sorted({cell.rate_per_s for cell in cells}.intersection(knees.values()), reverse=True)
    ):
        lowest = min(cell.effective_throughput_per_s for cell in cells if cell.rate_per_s == knee)
        axes.annotate(
            rate(knee),
            (knee, lowest),
            xytext=(3, -stroke(11) - type_size(12) * (k % 2)),
            textcoords="offset points",
            va="top",
            fontsize=type_size(8.5),
        )


def _ring(xs: list[float], ys: list[float], colour: str, label: str = "") -> Line2D:
    return Line2D(
        xs, ys, linestyle="none", marker="o", markersize=stroke(17), markerfacecolor="none", markeredgecolor=colour,
        markeredgewidth=stroke(1.2), label=label,
    )  # fmt: skip


def _knees(aggregate: Aggregate, lines: Lines) -> Knees:
    found = {c: saturation_rate(aggregate, c) for c in lines}
    return {c: knee for c, knee in found.items() if knee is not None}


def _rows(lines: Lines, knees: Knees) -> list[Row]:
    return [
        {
            "config": config,
            "requested_per_s": cell.rate_per_s,
            "achieved_per_s": cell.effective_throughput_per_s,
            "low": None,
            "high": None,
            "n": cell.n_window,
            "saturation_rate_per_s": knees.get(config),
        }
        for config, cells in lines.items()
        for cell in cells
    ]
