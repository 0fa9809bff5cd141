"""Figure 3: achieved throughput against the requested rate, with the line of a server that keeps up (y = x) and the knees."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from connector_tax.base.documents.aggregate import Aggregate, MeasuredCell
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.claims import uncounted
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
    RANDOM_WORDS,
    clean,
    counted,
    left_out,
    listing,
    rate,
    short_label,
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
    title = _title(aggregate, lines, knees)
    if form.is_page:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        set_claim(figure, title, source_note(aggregate))
    else:
        set_claim(figure, title, source_note(aggregate), handles)
        label_ends(axes, ends)
    return Drawn(figure, title, _caption(aggregate, lines, knees), _rows(lines, knees))


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


def _title(aggregate: Aggregate, lines: Lines, knees: Knees) -> str:
    measured = {c: {cell.rate_per_s for cell in cells} for c, cells in lines.items()}
    tops = {c: max(rates) for c, rates in measured.items()}
    highest = max(tops.values())
    if not knees:
        # Of rates at which it has no number nothing is said.
        short = [
            f"{clean(aggregate.label_of(c), 40)} to {rate(top)}" for c, top in tops.items() if top < highest
        ]
        but = f", as far as measured: {listing(short, len(short))}" if short else ""
        return f"Every configuration that was measured keeps up with the requested rate up to {rate(highest)}{but}"
    if "plain" not in lines:
        lowest, most = min(knees.values()), max(knees.values())
        between = f"between {rate(lowest)} and {rate(most)}" if lowest < most else f"at {rate(lowest)}"
        return f"Saturation begins {between}"
    limit = knees.get("plain")
    beyond = set().union(*measured.values()) - measured["plain"]
    gaps = any(r < (limit if limit is not None else tops["plain"]) for r in beyond)
    head = (
        f"Plain saturates at {rate(limit)}"
        if limit is not None
        else f"Plain stays unsaturated up to {rate(tops['plain'])}"
    ) + (", as far as measured" if gaps else "")
    connectors = [c for c in aggregate.config_ids if is_connector(c)]
    return head + (_of_connectors(aggregate, measured, knees, tops["plain"]) if connectors else "")


def _of_connectors(aggregate: Aggregate, measured: dict[str, set[float]], knees: Knees, top: float) -> str:
    """Which of them saturate at a lower rate than plain, and of which that is not known: they lack a cell at one of these rates.

    Args:
        measured: rates of each configuration.
        top: the highest of plain's.
    """
    connectors = [c for c in aggregate.config_ids if is_connector(c)]
    limit = knees.get("plain")
    if limit is not None and limit == min(set().union(*measured.values())):
        return _none_below(
            aggregate, [c for c in connectors if knees.get(c, math.inf) <= limit or not measured.get(c)]
        )
    asked = {
        r for rates in measured.values() for r in rates if (r < limit if limit is not None else r <= top)
    }
    earlier = [c for c in connectors if c in knees and (limit is None or knees[c] < limit)]
    unknown = [c for c in connectors if c not in earlier and not asked <= measured.get(c, set())]
    when = "earlier" if limit is not None else "within the measured rates"
    parts = []
    if earlier:
        lowest = min(knees[c] for c in earlier)
        first = [clean(aggregate.label_of(c), 40) for c in earlier if knees[c] == lowest]
        below = {r for rates in measured.values() for r in rates if r < lowest}
        gaps = any(below - measured[c] for c in earlier if knees[c] == lowest)
        parts.append(
            f"{len(earlier)} of {len(connectors)} connectors {'saturates' if len(earlier) == 1 else 'saturate'} {when}, "
            f"{listing(first, len(first))} first at {rate(lowest)}{', as far as measured' if gaps else ''}"
        )
    if not unknown:
        return f"; {parts[0]}" if parts else f", and no connector saturates {when}"
    all_of_them = len(unknown) == len(connectors)
    names = (
        "a connector"
        if all_of_them
        else listing([clean(aggregate.label_of(c), 40) for c in unknown], len(unknown))
    )
    parts.append(
        f"whether {names} {'saturates' if all_of_them or len(unknown) == 1 else 'saturate'} {when} is not known"
    )
    if not earlier and not all_of_them:
        parts.append("no other connector does")
    return f"; {', and '.join(parts)}"


def _none_below(aggregate: Aggregate, unknown: list[str]) -> str:
    """Where plain saturates at the lowest rate of all: a connector that does not, there or above, does not saturate earlier."""
    lowest = ", the lowest rate that was measured"
    connectors = [c for c in aggregate.config_ids if is_connector(c)]
    if len(unknown) == len(connectors):
        return f"{lowest}, so whether a connector saturates earlier is not known"
    if not unknown:
        return f"{lowest}, and no connector saturates earlier"
    names = listing([clean(aggregate.label_of(c), 40) for c in unknown], len(unknown))
    return f"{lowest}; whether {names} {'saturates' if len(unknown) == 1 else 'saturate'} earlier is not known, and no other connector does"


def _caption(aggregate: Aggregate, lines: Lines, knees: Knees) -> str:
    sizes = [cell.n_window for cells in lines.values() for cell in cells if cell.n_window]
    return " ".join(
        [
            "Completions per second in the window, phase A, one launch each; both axes are logarithmic.",
            "Rings mark the lowest rate at which a saturation criterion fired, which need not be throughput."
            if knees
            else "No saturation criterion fired.",
            f"Throughput is a count over the window and carries no interval here; {counted(sizes)}.",
            *[RANDOM_WORDS] * aggregate.provenance.random_arrivals,
            *uncounted(lines),
            left_out(aggregate, "a"),
        ]
    )


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
