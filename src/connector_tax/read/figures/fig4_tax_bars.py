"""Figure 4: the tax of every connector at both reference rates, TTFT p90 and TPOT p90."""

from collections.abc import Collection

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from connector_tax.base.documents.aggregate import Aggregate, Interval, LatencyMetric
from connector_tax.base.documents.rates import REFERENCES, Reference
from connector_tax.read.figures.forms import form_in_use, stroke, type_size
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    connectors_or_all,
    main_taxes,
    phase_a_shape,
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
    percent_ticks,
    set_claim,
    side_by_side,
)
from connector_tax.read.figures.words import (
    caption_of,
    counted_sides,
    fell_behind,
    launches,
    left_out,
    percent,
    rate,
    short_label,
    title_of,
)

METRICS: dict[LatencyMetric, str] = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
BAR = 0.38
FLOOR = "#E9E9E9"
GAP = "#B2182B"

Taxes = dict[tuple[LatencyMetric, Reference], dict[str, Tax]]


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    every: Taxes = {
        (metric, reference): main_taxes(aggregate, metric=metric, reference=reference)
        for metric in METRICS
        for reference in REFERENCES
    }
    known = list(dict.fromkeys(config for found in every.values() for config in found))
    order = connectors_or_all(known)
    taxes = {place: {c: tax for c, tax in found.items() if c in order} for place, found in every.items()}
    if not order:
        return Omitted("no tax of TTFT or TPOT p90 is available at either reference rate and Phase A's shape")
    metrics = [m for m in METRICS if any(taxes[m, r] for r in REFERENCES)]
    references = _distinct_references(aggregate, taxes)
    floors = _noise_floors(aggregate, metrics) if "ref_safe" in references else {}

    row = 0.16 if len(references) == 1 else 0.27
    figure = new_figure(
        10.4, max(3.0, 1.5 + 0.62 * len(order)), narrow=len(metrics) * (0.45 + row * len(order))
    )
    panels = side_by_side(figure, len(metrics))
    for axes, metric in zip(panels, metrics, strict=True):
        _panel(axes, aggregate, metric, references, order, taxes)
        if metric in floors:
            axes.axvspan(*floors[metric], color=FLOOR, linewidth=0, zorder=0)
        if metric == metrics[0] or form_in_use().narrow:
            axes.set_yticks(range(len(order)), [short_label(aggregate.label_of(c)) for c in order])
            axes.set_ylim(len(order) - 0.45, -0.55)
    legend: list[Artist] = [
        Patch(
            facecolor="#999999" if r == "ref_safe" else "#E4E4E4",
            edgecolor="#333333",
            hatch="" if r == "ref_safe" else "///",
            label=_reference_text(aggregate, r, references),
        )
        for r in references
    ]
    if len(references) == 2:
        legend.append(Line2D([], [], color=GAP, linewidth=stroke(2), marker="|", label="gap: what load adds"))
    if floors:
        legend.append(Patch(facecolor=FLOOR, label="plain against itself"))
    title = title_of(aggregate, "fig4_tax_bars")
    set_claim(figure, title, source_note(aggregate), legend)
    shown = [tax for r in references for m in METRICS for tax in taxes[m, r].values()]
    caption = caption_of(
        aggregate,
        "fig4_tax_bars",
        counted_sides(shown),
        launches(shown),
        *(text for r in references for text in _missing_bars(taxes, r)),
        left_out(aggregate, "a", {tax.config for tax in shown}, shown),
        saturated=fell_behind(aggregate, shown),
    )
    return Drawn(figure, title, caption, _rows(taxes, references))


def _noise_floors(aggregate: Aggregate, metrics: Collection[str]) -> dict[str, tuple[float, float]]:
    """Of these latencies the interval of plain's second launches against its first at ref_safe, over blocks of launches."""
    return {
        entry.metric: (low, high)
        for entry in aggregate.repeats
        if entry.reference == "ref_safe"
        and entry.metric in metrics
        and (low := entry.noise_floor.low) is not None
        and (high := entry.noise_floor.high) is not None
    }


def _distinct_references(aggregate: Aggregate, taxes: Taxes) -> list[Reference]:
    """Both reference rates, or one where they are equal: the same bar twice would look like agreement."""
    present = [r for r in REFERENCES if any(taxes[m, r] for m in METRICS)]
    if len(present) == 2 and reference_rate(aggregate, "ref_safe") == reference_rate(aggregate, "ref_load"):
        return ["ref_safe"]
    return present


def _panel(
    axes: Axes,
    aggregate: Aggregate,
    metric: LatencyMetric,
    references: list[Reference],
    order: list[str],
    taxes: Taxes,
) -> None:
    values: list[Interval] = []
    labels: list[str] = [""]
    for row, config in enumerate(order):
        ends: dict[Reference, float] = {}
        gap = _gap(aggregate, config, metric)
        for position, reference in enumerate(references):
            tax = taxes[metric, reference].get(config)
            if tax is None or (value := tax.interval) is None:
                continue
            values.append(value)
            ends[reference] = value.point
            y = row + (position - (len(references) - 1) / 2) * BAR
            look = look_of(config)
            safe = reference == "ref_safe"
            axes.barh(
                y, value.point, height=BAR * 0.92, color=look.colour if safe else "#FFFFFF",
                edgecolor=look.colour, hatch="" if safe else "////", linewidth=stroke(1),
            )  # fmt: skip
            error_bar(axes, y, value, horizontal=True)
            added = f"  gap {percent(gap.point).replace(' %', ' pp')}" if gap is not None and not safe else ""
            labels.append(percent(value.point) + added)
            _write_value(axes, y, value, labels[-1])
        if gap is not None and len(ends) == 2:
            axes.plot(
                list(ends.values()),
                [row, row],
                color=GAP,
                linewidth=stroke(2),
                marker="|",
                markersize=stroke(7),
            )
    if values:
        axes.set_xlim(*_limits(values, labels))
    axes.axvline(0, color="#333333", linewidth=stroke(0.9))
    axes.xaxis.set_major_formatter(FuncFormatter(percent_ticks))
    # Percentages of four digits are as wide as a quarter of the panel.
    axes.xaxis.set_major_locator(MaxNLocator(3 if form_in_use().narrow else 5))
    axes.set_xlabel(f"tax of {METRICS[metric]} against plain (%)")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _write_value(axes: Axes, y: float, value: Interval, text: str) -> None:
    right = max(v for v in (value.point, value.high, 0.0) if v is not None)
    axes.annotate(
        text,
        (right, y),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=type_size(8.5),
    )


def _limits(values: list[Interval], labels: list[str]) -> tuple[float, float]:
    """Zero and every whisker, with room at the right for the longest label of a bar."""
    ends = [e for v in values for e in (v.low, v.high, v.point) if e is not None]
    low, high = min(0.0, *ends), max(0.0, *ends)
    span = max(high - low, 0.01)
    return low - span * (0.06 if low < 0 else 0.02), high + span * (0.06 + 0.027 * max(map(len, labels)))


def _gap(aggregate: Aggregate, config: str, metric: LatencyMetric) -> Interval | None:
    """What load adds to a tax at Phase A's shape."""
    rows = (a for a in aggregate.amplification if (a.config, a.metric) == (config, metric))
    row = next((a for a in rows if a.input_tokens is None or a.shape == phase_a_shape(aggregate)), None)
    return None if row is None else row.interval


def _reference_text(aggregate: Aggregate, reference: Reference, references: list[Reference]) -> str:
    value = reference_rate(aggregate, reference)
    name = "ref_safe = ref_load" if len(references) == 1 and reference == "ref_safe" and value == reference_rate(
        aggregate, "ref_load"
    ) else reference  # fmt: skip
    return f"{name} ({rate(value)})" if value is not None else name


def _missing_bars(taxes: Taxes, reference: Reference) -> list[str]:
    """Of those that are drawn somewhere, who lacks which bar there."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for config in sorted({c for found in taxes.values() for c in found}):
        lacks = tuple(METRICS[m].removesuffix(" p90") for m in METRICS if config not in taxes[m, reference])
        if lacks:
            lacking.setdefault(lacks, []).append(config)
    return [
        f"Without a {' or '.join(lacks)} bar at {reference}: {', '.join(configs)}."
        for lacks, configs in sorted(lacking.items())
    ]


def _rows(taxes: Taxes, references: list[Reference]) -> list[Row]:
    return [
        {
            "config": config,
            "metric": metric,
            "reference": reference,
            "rate_per_s": tax.rate_per_s,
            "input_tokens": tax.input_tokens,
            "output_tokens": tax.output_tokens,
            "phase": tax.phase,
            "blocks": blocks_of(tax),
            "point": tax.point,
            "low": tax.low,
            "high": tax.high,
            "n": tax.n,
            "n_plain": tax.n_plain,
        }
        for (metric, reference), found in taxes.items()
        if reference in references
        for config, tax in found.items()
    ]
