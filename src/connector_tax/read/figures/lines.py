"""Draws figures 1 to 3, 6 and 9: TTFT p90, TPOT p90 and achieved throughput against the send rate, scheduler
step durations, and the parts of a connector's added time per decoding step.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from connector_tax.base.documents.aggregate import Aggregate, Interval, Latency, MeasuredCell, Part, Steps
from connector_tax.base.documents.rates import REFERENCES
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.style import (
    FORM,
    Bars,
    Drawn,
    Lists,
    Omitted,
    Row,
    ends_of,
    error_bar,
    finished,
    look_of,
    new_figure,
    not_shown,
    omitted,
    plain_log_axis,
    plain_numbers,
    rate_axis,
    saturated,
)
from connector_tax.read.figures.words import (
    connectors_or_all,
    label,
    listing,
    microseconds,
    names_of,
    problem_text,
    rate,
    rated_cells,
    reference_rate,
    why_absent,
)

LATENCIES: dict[str, tuple[Latency, str]] = {
    "fig1_ttft_vs_rate": ("ttft_ms", "TTFT p90 (ms)"),
    "fig2_tpot_vs_rate": ("tpot_ms", "TPOT p90 (ms)"),
}
CRITERIA = {"throughput": "_", "waiting": "+", "ttft_growth": "1"}
REQUESTED = "requested send rate (req/s)"
GREY = "#333333"
# Neighbouring lines are shifted sideways by this factor per configuration, so their intervals stay distinct.
SIDESTEP = 1.022
# Relative sizes of Figure 3's markers: where all keep up they coincide, and earlier ones show behind later
# ones.
LARGEST, SMALLEST = 2.6, 0.8


def draw_latency(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    quantity, axis_label = LATENCIES[name]
    cells = {c: rated_cells(aggregate, "a", c) for c in aggregate.config_ids}
    lines = {
        config: points
        for config, config_cells in cells.items()
        if (
            points := [
                (c, v) for c in config_cells if (v := c.latency(quantity).p90.interval) and v.point > 0
            ]
        )
    }
    if not lines:
        return omitted("no_points", quantity=axis_label.partition(" (")[0])
    names = dict(zip(lines, names_of(aggregate, lines), strict=True))
    fired = {c: [cell for cell in cells[c] if cell.saturation_criteria.fired] for c in lines}
    with_strip = any(fired.values())
    form = FORM.get()
    strip_height = (0.3 + 1.5 * form.small / 72 * len(lines) / form.tallness) * with_strip
    figure = new_figure(9.6, 4.4 + strip_height)
    heights = [4.4, strip_height][: 1 + with_strip]
    axes, *below = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False).flat
    legend: list[Artist] = []
    for position, (config, points) in enumerate(lines.items()):
        look, x_factor = look_of(config), SIDESTEP ** (position - (len(lines) - 1) / 2)
        xs = [cell.rate_per_s * x_factor for cell, _ in points]
        legend += axes.plot(
            xs,
            [v.point for _, v in points],
            color=look.colour,
            marker=look.marker,
            label=names[config],
        )
        for x, (cell, value) in zip(xs, points, strict=True):
            error_bar(axes, x, value, colour=look.colour)
            if cell.saturation_criteria.fired:
                axes.plot(x, value.point, "x", color=GREY, markersize=2 * form.mark, zorder=5)
    rate_axis(axes, {cell.rate_per_s for c in lines for cell in cells[c]})
    plain_log_axis(axes)
    axes.set_ylabel(axis_label)
    for reference, dashes in zip(REFERENCES, ("--", ":"), strict=True):
        if (at := reference_rate(aggregate, reference)) is not None:
            words = f"{reference} ({rate(at)})"
            legend.append(axes.axvline(at, color="#777777", linestyle=dashes, zorder=0, label=words))
    for strip in below:
        _strip(strip, fired, [*names.values()])
        marks = {"saturated": "x"} | {
            f"criterion: {label('saturation', code)}": marker for code, marker in CRITERIA.items()
        }
        legend += [
            Line2D([], [], linestyle="none", marker=marker, color=GREY, label=words)
            for words, marker in marks.items()
        ]
    [axes, *below][-1].set_xlabel(REQUESTED)
    # A configuration without any point has no line, but its cells are still named.
    missing = {
        c: [
            rate(cell.rate_per_s)
            for cell in config_cells
            if cell not in [drawn for drawn, _ in lines.get(c, ())]
        ]
        for c, config_cells in cells.items()
    }
    rows = [
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
    lists = {"no_point": [f"{c} at {listing(at, 9)}" for c, at in missing.items() if at]}
    n = [cell.n_window for points in lines.values() for cell, _ in points]
    return finished(
        aggregate, name, figure, rows, n=n, lists={**lists, **not_shown(aggregate, "a")}, legend=legend
    )


def _strip(axes: Axes, fired: Mapping[str, Sequence[MeasuredCell]], names: Sequence[str]) -> None:
    """Draw a row per configuration: which criteria fired at which rate."""
    for row, (config, cells) in enumerate(fired.items()):
        for cell in cells:
            for column, (criterion, marker) in enumerate(CRITERIA.items()):
                if criterion in cell.saturation_criteria.fired:
                    axes.plot(
                        cell.rate_per_s * 1.15 ** (column - 1), row, marker, color=look_of(config).colour
                    )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", visible=False)


def draw_throughput(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw throughput with the line of a server that keeps up (y = x) and the knees."""
    cells_by_config = {c: rated_cells(aggregate, "a", c) for c in aggregate.config_ids}
    lines = {
        c: [cell for cell in config_cells if cell.effective_throughput_per_s > 0]
        for c, config_cells in cells_by_config.items()
    }
    lines = {c: config_cells for c, config_cells in lines.items() if config_cells}
    if not lines:
        return omitted("no_throughput")
    cells = [cell for config_cells in lines.values() for cell in config_cells]
    rates = sorted({cell.rate_per_s for cell in cells})
    saturation = {c: s.saturation_rate_per_s for c, s in aggregate.saturation.items() if c in lines}
    knees = {c: knee for c, knee in saturation.items() if knee is not None}
    figure = new_figure(9.6, 5.0)
    axes = figure.subplots()
    diagonal = "achieved = requested (y = x)"
    legend: list[Artist] = [*axes.plot(rates, rates, "--", color="#555555", zorder=5, label=diagonal)]
    mark = FORM.get().mark
    ring: Any = {"linestyle": "none", "marker": "o", "markersize": 3.4 * mark, "markerfacecolor": "none"}
    names = names_of(aggregate, lines)
    for position, (config, config_cells) in enumerate(lines.items()):
        look, size = look_of(config), LARGEST - (LARGEST - SMALLEST) * position / len(lines)
        points = [(cell.rate_per_s, cell.effective_throughput_per_s) for cell in config_cells]
        legend += axes.plot(
            *zip(*points, strict=True),
            color=look.colour,
            marker=look.marker,
            markersize=size * mark,
            label=names[position],
        )
        for x, y in points:
            if x == knees.get(config):
                axes.plot(x, y, markeredgecolor=look.colour, **ring)
    # Each knee's rate is written below all its points, every other one lower, so that neighbours do not
    # overlap.
    for k, knee in enumerate(sorted({*knees.values()} & {*rates}, reverse=True)):
        lowest = min(cell.effective_throughput_per_s for cell in cells if cell.rate_per_s == knee)
        axes.annotate(rate(knee), (knee, lowest), xytext=(3, -11 - 12 * (k % 2)), textcoords="offset points",
                      va="top", fontsize="small")  # fmt: skip
    if knees:
        words = "knee: lowest saturated rate"
        legend.append(Line2D([], [], markeredgecolor=GREY, label=words, **ring))
    rate_axis(axes, rates)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_yticks(rates)
    axes.set_xlabel(REQUESTED)
    axes.set_ylabel("achieved throughput (req/s)")
    rows = [
        {
            "config": cell.config,
            "requested_per_s": cell.rate_per_s,
            "achieved_per_s": cell.effective_throughput_per_s,
            "low": None,
            "high": None,
            "n": cell.n_window,
            "saturation_rate_per_s": knees.get(cell.config),
        }
        for cell in cells
    ]
    n = [cell.n_window for cell in cells]
    return finished(aggregate, name, figure, rows, n=n, lists=not_shown(aggregate, "a"), legend=legend)


# Part -> colour and hatch (which distinguishes it in grey) and words; from the connector's own code outwards.
LOOKS: dict[Part, tuple[str, str, str]] = {
    "scheduler_hooks": ("#D55E00", "", "hooks, scheduler"),
    "worker_hooks": ("#E69F00", "////", "hooks, worker"),
    "schedule": ("#0072B2", "xxxx", "schedule()"),
    "update": ("#56B4E9", "\\\\\\\\", "update_from_output()"),
    "round_trip": ("#BBBBBB", "", "executor and model"),
}


def _no_step_times(aggregate: Aggregate) -> Omitted | None:
    if aggregate.step_timing_available:
        return None
    return omitted("no_step_times", reason=problem_text(aggregate.step_timing_reason))


def _steps(aggregate: Aggregate) -> dict[str, Steps]:
    """Return the step records of each configuration's cell of Phase A at ref_safe."""
    ref_safe_per_s = reference_rate(aggregate, "ref_safe")
    return {
        config: cell.steps
        for config in aggregate.config_ids
        for cell in rated_cells(aggregate, "a", config)
        if cell.rate_per_s == ref_safe_per_s and cell.steps is not None
    }


def _saturated_steps(aggregate: Aggregate, configs: Collection[str]) -> Lists:
    key = ("step_p50_us", "ref_safe", "a")
    taxes = (t for t in aggregate.taxes if (t.metric, t.reference, t.phase) == key)
    return saturated(aggregate, (tax for tax in taxes if tax.config in configs))


def draw_durations(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw a CDF of step durations per configuration, at ref_safe (Phase A)."""
    if (no_times := _no_step_times(aggregate)) is not None:
        return no_times
    curves = _steps(aggregate)
    if not curves:
        return omitted("no_steps")
    figure = new_figure(9.6, 4.6)
    axes = figure.subplots()
    durations_by_config = {c: sorted(steps.cdf.step_duration_us) for c, steps in curves.items()}
    shares = np.linspace(0, 1, 200)
    names = names_of(aggregate, curves)
    for position, (config, steps) in enumerate(curves.items()):
        look = look_of(config)
        # Marks at different heights keep coinciding lines distinguishable.
        axes.plot(
            durations_by_config[config],
            shares,
            color=look.colour,
            marker=look.marker,
            markevery=(0.1 * position / len(curves), 0.1),
            label=names[position],
        )
        if (median := steps.step_duration_us.p50.interval) is not None:
            error_bar(axes, 0.5, median, horizontal=True, colour=look.colour)
    # The slowest and fastest steps would stretch the axis for every line.
    low, high = np.quantile(
        [v for durations_us in durations_by_config.values() for v in durations_us], (0.002, 0.998)
    )
    axes.set_xscale("log")
    axes.set_xlim(max(low, 1e-3) / 1.05, max(high, 1e-3) * 1.05)
    plain_numbers(axes.xaxis)
    axes.xaxis.set_major_formatter(lambda us, _: f"{us / 1000:,.10g}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("step duration (ms)")
    axes.set_ylabel("share of steps")
    rows: list[Row] = [
        {"config": c, "share": round(float(share), 6), "step_duration_us": value}
        for c, durations_us in durations_by_config.items()
        for share, value in zip(shares, durations_us, strict=True)
    ]
    rate_per_s = reference_rate(aggregate, "ref_safe")
    lists = not_shown(aggregate, "a", curves, rate_per_s=rate_per_s, every=True)
    return finished(
        aggregate,
        name,
        figure,
        rows,
        n=[steps.n_steps for steps in curves.values()],
        lists={**lists, **_saturated_steps(aggregate, curves)},
        legend=axes.get_legend_handles_labels()[0],
        rate_per_s=rate_per_s,
    )


def draw_attribution(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw positive parts to the right and negative ones to the left; the marker is their sum."""
    if (no_times := _no_step_times(aggregate)) is not None:
        return no_times
    entries = {e.config: e for e in aggregate.attribution if e.difference_us.interval is not None}
    parts: dict[str, dict[Part, Interval]] = {}
    for config in [c for c in aggregate.config_ids if c in entries]:
        part_values = {p.part: value for p in entries[config].parts if (value := p.interval) is not None}
        if part_values.keys() == LOOKS.keys():
            parts[config] = part_values
    order = connectors_or_all(parts)
    if not order:
        return _no_attribution(aggregate)
    figure = new_figure(10.4, 1.0 + 0.5 * len(order))
    axes = figure.subplots()
    bars = Bars(axes)
    rows: list[Row] = []
    for row, config in enumerate(order):
        right = left = 0.0
        for part, (colour, hatch, _) in LOOKS.items():
            width = parts[config][part].point
            start = right if width >= 0 else left
            face: Any = {"facecolor": colour, "edgecolor": "#FFFFFF", "hatch": hatch, "linewidth": 0.6}
            axes.barh(row, width, left=start, height=0.5, **face)
            right, left = right + max(width, 0.0), left + min(width, 0.0)
        whole = entries[config].difference_us.interval
        assert whole is not None, "entries without a difference are left out"
        error_bar(axes, row, whole, horizontal=True, colour="#111111")
        axes.plot(whole.point, row, "D", color="#111111", zorder=5)
        bars.write(row, [right, left, *ends_of(whole)], microseconds(whole.point))
        rows += [
            {"config": config, "part": part, "us_per_step": v.point, "low": v.low, "high": v.high}
            for part, v in [*parts[config].items(), ("total", whole)]
        ]
    bars.label(names_of(aggregate, order), "mean step less plain's (µs)")
    axes.xaxis.set_major_formatter("{x:,.6g}")
    rate_per_s = reference_rate(aggregate, "ref_safe")
    return finished(
        aggregate,
        name,
        figure,
        rows,
        n=[entries[c].n_steps for c in order],
        lists={
            **not_shown(aggregate, "a", order, rate_per_s=rate_per_s),
            **_saturated_steps(aggregate, order),
        },
        legend=[
            Patch(facecolor=colour, edgecolor="#FFFFFF", hatch=hatch, label=words)
            for colour, hatch, words in LOOKS.values()
        ],
        rate_per_s=rate_per_s,
    )


def _no_attribution(aggregate: Aggregate) -> Omitted:
    """Return whose decoding steps are missing; without plain's there is no comparison at all."""
    steps = {c for c, config_steps in _steps(aggregate).items() if config_steps.by_kind.decode_only.n}
    if "plain" not in steps:
        return omitted("no_plain_steps", plain=why_absent(aggregate, "plain"))
    if any(map(is_connector, steps)):
        return omitted("few_decoding_steps")
    reasons = [why_absent(aggregate, c) for c in aggregate.config_ids if is_connector(c)]
    return omitted("no_decoding_steps", configs=listing(reasons, 9)) if reasons else omitted("no_connector")
