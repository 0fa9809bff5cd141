"""Figure 6: how long a scheduler step takes, as a CDF per configuration, at ref_safe (phase A)."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from connector_tax.base.statistics.texts import digits_apart
from connector_tax.read.figures.claims import not_among, of_connectors, told_apart
from connector_tax.read.figures.lookup import (
    Aggregate,
    ConfigView,
    Interval,
    confidence_words,
    configs,
    interval,
    mapping,
    number,
    reference_rate,
    source_note,
    tax_rows,
    valid_cells,
)
from connector_tax.read.figures.style import Drawn, Omitted, error_bar, look_of, new_figure, set_claim
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


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    if not aggregate.get("step_timing_available"):
        return Omitted(no_step_times(aggregate))
    at = reference_rate(aggregate, "ref_safe")
    if at is None:
        return Omitted("there is no ref_safe rate")
    curves: dict[ConfigView, tuple[list[float], Mapping[str, Any]]] = {}
    for config in configs(aggregate):
        for cell in valid_cells(aggregate, "a", config.id):
            step = mapping(cell.get("step"))
            values = _quantiles(step)
            if cell["rate_per_s"] == at and step.get("available") and len(values) >= 2:
                curves[config] = (values, step)
    if not curves:
        return Omitted(f"no valid cell of phase A at ref_safe ({rate(at)}) has step records")

    figure = new_figure(9.6, 5.0)
    axes = figure.subplots()
    for position, (config, (values, step)) in enumerate(curves.items()):
        look = look_of(config.id)
        heights = [i / (len(values) - 1) for i in range(len(values))]
        # Markers at other heights per line, so that lines on top of each other still show who they are.
        marks = sorted({min(len(values) - 1, int((m + 0.012 * position) * len(values))) for m in MARKS})
        axes.plot(
            values, heights, color=look.colour, marker=look.marker, markevery=marks, markersize=5.5, linewidth=1.5,
            label=short_label(config.label),
        )  # fmt: skip
        median = _median(step)
        if median is not None:
            error_bar(axes, 0.5, median, horizontal=True, colour=look.colour)
    every = [v for values, _ in curves.values() for v in values]
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
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    title = _title(aggregate, curves, at)
    set_claim(figure, title, source_note(aggregate))
    return Drawn(figure, title, _caption(aggregate, curves, at), _rows(curves))


def _quantiles(step: Mapping[str, Any]) -> list[float]:
    values = mapping(step.get("cdf")).get("step_duration_us")
    found = [number(v) for v in values] if isinstance(values, list) else []
    return sorted(v for v in found if v is not None)


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _log_x(axes: Axes) -> None:
    """A logarithmic x axis with plain numbers."""
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _median(step: Mapping[str, Any]) -> Interval | None:
    return interval(mapping(step.get("step_duration_us")).get("p50"))


def _title(
    aggregate: Aggregate, curves: Mapping[ConfigView, tuple[list[float], Mapping[str, Any]]], at: float
) -> str:
    medians = {c.id: m for c, (_, step) in curves.items() if (m := _median(step)) is not None}
    if "plain" not in medians and any(c.id == "plain" for c in curves):
        return f"Distribution of step durations at {rate(at)}; plain has too few steps for a median with an interval"
    if "plain" not in medians:
        return f"Distribution of step durations at {rate(at)}, without plain's to hold them against"
    head = f"The median step of plain takes {_in_us(medians['plain'])} at {rate(at)}"
    found = {
        str(row.get("config")): v
        for row in _differences(aggregate)
        if row.get("config") in medians and (v := interval(row)) is not None
    }
    longer = of_connectors(found)
    if not longer:
        return head
    words = {"unit": "us", "above": "a longer one", "below": "a shorter one"}
    return f"{head}; {told_apart(aggregate, longer, without=not_among(aggregate, longer), **words)}"


def _differences(aggregate: Aggregate) -> list[Mapping[str, Any]]:
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


def _caption(
    aggregate: Aggregate, curves: Mapping[ConfigView, tuple[list[float], Mapping[str, Any]]], at: float
) -> str:
    sizes = [int(n) for _, step in curves.values() if (n := number(step.get("n_steps")))]
    count = counted(sizes, "steps per line")
    medians = [
        "{} {} [{}, {}]".format(c.id, *_digits(m))
        for c, (_, step) in curves.items()
        if (m := _median(step)) is not None and m.low is not None and m.high is not None
    ]
    without = [c.id for c in configs(aggregate) if c.status in MEASURED and c not in curves]
    has_cell = {
        c for c in without if any(cell["rate_per_s"] == at for cell in valid_cells(aggregate, "a", c))
    }
    unrecorded, lost = ([c for c in without if (c in has_cell) == there] for there in (True, False))
    behind = fell_behind(aggregate, _differences(aggregate))
    parts = [
        f"Distribution of step durations at ref_safe ({rate(at)}), phase A, one launch each; steps without tokens excluded; {count}.",
        "A step runs from the scheduler's entry to the end of the update with its output.",
        f"Whiskers at 0.5: median with {confidence_words(aggregate)} interval of one launch, in µs: {'; '.join(medians)}."
        if medians
        else "",
        f"{behind} did not keep up at this rate, which moves the median step to another mixture of steps."
        if behind
        else "",
        f"No step records at this rate: {', '.join(unrecorded)}." if unrecorded else "",
        f"No usable cell at this rate: {', '.join(lost)}." if lost else "",
        of_reference_rates(aggregate),
        left_out(aggregate, "a"),
    ]
    return " ".join(p for p in parts if p)


def _rows(curves: Mapping[ConfigView, tuple[list[float], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"config": config.id, "share": round(i / (len(values) - 1), 6), "step_duration_us": value}
        for config, (values, _) in curves.items()
        for i, value in enumerate(values)
    ]
