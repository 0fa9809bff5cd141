"""Figure 6: how long a scheduler step takes, as a CDF per configuration, at ref_safe (phase A)."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from connector_tax.base.documents.aggregate import Aggregate, Interval, Steps, TaxRow
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.texts import digits_apart
from connector_tax.read.figures.claims import not_among, of_connectors, told_apart, uncounted
from connector_tax.read.figures.forms import form_in_use, stroke
from connector_tax.read.figures.questions import (
    confidence_words,
    rated_cells,
    reference_rate,
    source_note,
    tax_rows,
)
from connector_tax.read.figures.style import Drawn, Omitted, Row, error_bar, look_of, new_figure, set_claim
from connector_tax.read.figures.words import (
    MEASURED,
    counted,
    fell_behind,
    left_out,
    no_step_times,
    of_reference_rates,
    rate,
    short_label,
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
    title = _title(aggregate, curves, at)
    set_claim(figure, title, source_note(aggregate), [] if beside else axes.get_legend_handles_labels()[0])
    return Drawn(figure, title, _caption(aggregate, curves, at), _rows(curves))


def _quantiles(steps: Steps) -> list[float]:
    return sorted(steps.cdf.step_duration_us)


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _log_x(axes: Axes) -> None:
    """A logarithmic x axis with plain numbers."""
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _medians(curves: Curves) -> dict[str, Interval]:
    found = {c: steps.step_duration_us.p50.interval for c, steps in curves.items()}
    return {c: median for c, median in found.items() if median is not None}


def _title(aggregate: Aggregate, curves: Curves, at: float) -> str:
    medians = _medians(curves)
    if "plain" not in medians and "plain" in curves:
        return f"Distribution of step durations at {rate(at)}; plain has too few steps for a median with an interval"
    if "plain" not in medians:
        return f"Distribution of step durations at {rate(at)}, without plain's to hold them against"
    head = f"The median step of plain takes {_in_us(medians['plain'])} at {rate(at)}"
    found = {
        tax.config: value
        for tax in _differences(aggregate)
        if tax.config in medians and (value := tax.interval) is not None
    }
    longer = of_connectors(found)
    if not longer:
        return head
    words = {"unit": "us", "above": "a longer one", "below": "a shorter one"}
    return f"{head}; {told_apart(aggregate, longer, without=not_among(aggregate, longer), **words)}"


def _differences(aggregate: Aggregate) -> list[TaxRow]:
    return tax_rows(aggregate, metric="step_p50_us", reference="ref_safe", phase="a")


def _in_us(value: Interval) -> str:
    point, low, high = _digits(value)
    return f"{point} µs [{low}, {high}]"


def _digits(value: Interval) -> tuple[str, str, str]:
    """Whole microseconds, or as many digits as tell the median from its ends."""
    known = [v for v in (value.point, value.low, value.high) if v is not None]
    texts = iter(digits_apart(known, lambda _: 0, no_zero=True))
    point, low, high = ("?" if v is None else next(texts) for v in (value.point, value.low, value.high))
    return point, low, high


def _caption(aggregate: Aggregate, curves: Curves, at: float) -> str:
    count = counted([steps.n_steps for steps in curves.values() if steps.n_steps], "steps per line")
    medians = [
        "{} {} [{}, {}]".format(c, *_digits(m))
        for c, m in _medians(curves).items()
        if m.low is not None and m.high is not None
    ]
    measured = [c for c in aggregate.config_ids if aggregate.configs[c].status in MEASURED]
    without = [c for c in measured if c not in curves]
    has_cell = {cell.config for cell in aggregate.measured("a") if cell.rate_per_s == at}
    unrecorded, lost = ([c for c in without if (c in has_cell) == there] for there in (True, False))
    behind = fell_behind(aggregate, _differences(aggregate))
    parts = [
        f"Distribution of step durations at ref_safe ({rate(at)}), phase A, one launch each; steps without tokens excluded; {count}.",
        "A step runs from the scheduler's entry, or from the end of the step before where the two overlap, to the end of the update with its output.",
        f"Whiskers at 0.5: median with {confidence_words(aggregate)} interval of one launch, in µs: {'; '.join(medians)}."
        if medians
        else "",
        f"{behind} did not keep up at this rate, which moves the median step to another mixture of steps."
        if behind
        else "",
        f"No step records at this rate: {', '.join(unrecorded)}." if unrecorded else "",
        f"No usable cell of phase A at this rate: {', '.join(lost)}." if lost else "",
        *[
            f"{row.config} has no number in the title: {row.reason}."
            for row in aggregate.taxes
            if (row.metric, row.reference, row.phase) == ("step_p50_us", "ref_safe", "a")
            and not row.known
            and is_connector(row.config)
            and row.config in curves
            and "plain" in _medians(curves)
        ],
        *uncounted(curves),
        of_reference_rates(aggregate),
        left_out(aggregate, "a", rate_per_s=at),
    ]
    return " ".join(p for p in parts if p)


def _rows(curves: Curves) -> list[Row]:
    return [
        {"config": config, "share": round(i / (len(values) - 1), 6), "step_duration_us": value}
        for config, steps in curves.items()
        for values in [_quantiles(steps)]
        for i, value in enumerate(values)
    ]
