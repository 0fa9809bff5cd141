"""Figure 6: how long a scheduler step takes, as a CDF per configuration, at ref_safe (phase A)."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from connector_tax.base.documents.aggregate import Aggregate, Steps
from connector_tax.read.figures.forms import form_in_use, stroke
from connector_tax.read.figures.questions import (
    rated_cells,
    reference_rate,
    source_note,
    tax_rows,
)
from connector_tax.read.figures.style import Drawn, Omitted, Row, error_bar, look_of, new_figure, set_claim
from connector_tax.read.figures.words import (
    MEASURED,
    caption_of,
    counted,
    fell_behind,
    left_out,
    no_step_times,
    rate,
    short_label,
    title_of,
)

MARKS = (0.1, 0.25, 0.5, 0.75, 0.9)
# By configuration.
Curves = Mapping[str, Steps]


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    if not aggregate.step_timing_available:
        return Omitted(no_step_times(aggregate))
    at = reference_rate(aggregate, "ref_safe")
    if at is None:
        return Omitted("there is no ref_safe rate")
    curves: dict[str, Steps] = {}
    for config in aggregate.config_ids:
        for cell in rated_cells(aggregate, "a", config):
            if cell.rate_per_s == at and (steps := cell.steps) is not None and len(_quantiles(steps)) >= 2:
                curves[config] = steps
    if not curves:
        return Omitted(f"no valid cell of phase A at ref_safe ({rate(at)}) has step records")

    figure = new_figure(9.6, 5.0, narrow=2.5)
    axes = figure.subplots()
    for position, (config, steps) in enumerate(curves.items()):
        look, values = look_of(config), _quantiles(steps)
        heights = [i / (len(values) - 1) for i in range(len(values))]
        # Markers at other heights per line, so that lines on top of each other still show who they are.
        marks = sorted({min(len(values) - 1, int((m + 0.012 * position) * len(values))) for m in MARKS})
        axes.plot(
            values, heights, color=look.colour, marker=look.marker, markevery=marks, markersize=stroke(5.5), linewidth=stroke(1.5),
            label=short_label(aggregate.label_of(config)),
        )  # fmt: skip
        median = steps.step_duration_us.p50.interval
        if median is not None:
            error_bar(axes, 0.5, median, horizontal=True, colour=look.colour)
    every = [v for steps in curves.values() for v in _quantiles(steps)]
    # The slowest and fastest half percent would stretch the axis for every line.
    low, high = _at(every, 0.002), _at(every, 0.998)
    if low > 0 and high / low > 8:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.05, high * 1.05)
        _log_x(axes)
    else:
        axes.set_xlim(low - 0.03 * (high - low) - 1e-9, high + 0.03 * (high - low) + 1e-9)
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlabel("step duration (µs)")
    axes.set_ylabel("share of steps at most this long")
    beside = not form_in_use().narrow
    if beside:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    title = title_of(aggregate, "fig6_step_cdf", "ref_safe")
    set_claim(figure, title, source_note(aggregate), [] if beside else axes.get_legend_handles_labels()[0])
    count = counted([steps.n_steps for steps in curves.values() if steps.n_steps], "steps per line")
    without = [c for c in aggregate.config_ids if aggregate.configs[c].status in MEASURED and c not in curves]
    missing = f"Without steps here: {', '.join(without)}." if without else ""
    caption = caption_of(
        aggregate,
        "fig6_step_cdf",
        count,
        missing,
        left_out(aggregate, "a", rate_per_s=at),
        saturated=fell_behind(
            aggregate, tax_rows(aggregate, metric="step_p50_us", reference="ref_safe", phase="a")
        ),
    )
    return Drawn(figure, title, caption, _rows(curves))


def _quantiles(steps: Steps) -> list[float]:
    return sorted(steps.cdf.step_duration_us)


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _log_x(axes: Axes) -> None:
    """A logarithmic x axis with plain numbers."""
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _rows(curves: Curves) -> list[Row]:
    return [
        {"config": config, "share": round(i / (len(values) - 1), 6), "step_duration_us": value}
        for config, steps in curves.items()
        for values in [_quantiles(steps)]
        for i, value in enumerate(values)
    ]
