"""Figures 6 and 9: how long a scheduler step takes, and where the microseconds go that a connector adds to a decoding step."""

from collections.abc import Collection

import numpy as np
from matplotlib.patches import Patch

from connector_tax.base.documents.aggregate import Aggregate, Interval, Part, Steps
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.captions import Lists, finished, left_out, omitted, saturated
from connector_tax.read.figures.style import (
    Drawn,
    Omitted,
    Row,
    ends_of,
    error_bar,
    look_of,
    new_figure,
    plain_numbers,
    row_axis,
    write_behind,
)
from connector_tax.read.figures.words import (
    connectors_or_all,
    listing,
    microseconds,
    problem_text,
    rated_cells,
    reference_rate,
    short_label,
    why_absent,
)

# Part -> colour and hatch (which tells them apart in grey) and words; from the connector's own code outwards.
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
    at = reference_rate(aggregate, "ref_safe")
    return {
        config: cell.steps
        for config in aggregate.config_ids
        for cell in rated_cells(aggregate, "a", config)
        if cell.rate_per_s == at and cell.steps is not None
    }


def _late(aggregate: Aggregate, configs: Collection[str]) -> Lists:
    place = ("step_p50_us", "ref_safe", "a")
    taxes = (t for t in aggregate.taxes if (t.metric, t.reference, t.phase) == place)
    return saturated(aggregate, (tax for tax in taxes if tax.config in configs))


def draw_durations(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw a CDF per configuration, at ref_safe (phase A)."""
    if (no_times := _no_step_times(aggregate)) is not None:
        return no_times
    curves = _steps(aggregate)
    if not curves:
        return omitted("no_steps")
    figure = new_figure(9.6, 4.6)
    axes = figure.subplots()
    values = {c: sorted(steps.cdf.step_duration_us) for c, steps in curves.items()}
    shares = np.linspace(0, 1, 200)
    for position, (config, steps) in enumerate(curves.items()):
        look = look_of(config)
        # Marks at other heights per line, so that lines on top of each other still show who they are.
        axes.plot(values[config], shares, color=look.colour, marker=look.marker,
                  markevery=(0.1 * position / len(curves), 0.1), label=short_label(aggregate.label_of(config)))  # fmt: skip
        if (median := steps.step_duration_us.p50.interval) is not None:
            error_bar(axes, 0.5, median, horizontal=True, colour=look.colour)
    # The slowest and fastest half percent would stretch the axis for every line.
    low, high = np.quantile([v for own in values.values() for v in own], (0.002, 0.998))
    axes.set_xscale("log")
    axes.set_xlim(max(low, 1e-3) / 1.05, max(high, 1e-3) * 1.05)
    plain_numbers(axes.xaxis)
    axes.xaxis.set_major_formatter(lambda us, _: f"{us / 1000:,.10g}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("step duration (ms)")
    axes.set_ylabel("share of steps")
    rows: list[Row] = [
        {"config": c, "share": round(float(share), 6), "step_duration_us": value}
        for c, own in values.items()
        for share, value in zip(shares, own, strict=True)
    ]
    at = reference_rate(aggregate, "ref_safe")
    lists = left_out(aggregate, "a", curves, rate_per_s=at, every=True)
    return finished(
        aggregate,
        name,
        figure,
        rows,
        n=[steps.n_steps for steps in curves.values()],
        lists={**lists, **_late(aggregate, curves)},
        legend=axes.get_legend_handles_labels()[0],
        rate_per_s=at,
    )


def draw_attribution(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw parts above zero to the right and those below to the left; the marker is their sum."""
    if (no_times := _no_step_times(aggregate)) is not None:
        return no_times
    entries = {e.config: e for e in aggregate.attribution if e.difference_us.interval is not None}
    parts: dict[str, dict[Part, Interval]] = {}
    for config in [c for c in aggregate.config_ids if c in entries]:
        found = {p.part: value for p in entries[config].parts if (value := p.interval) is not None}
        if found.keys() == LOOKS.keys():
            parts[config] = found
    order = connectors_or_all(parts)
    if not order:
        return _no_attribution(aggregate)
    figure = new_figure(10.4, 1.0 + 0.5 * len(order))
    axes = figure.subplots()
    every, texts = [0.0], [""]
    rows: list[Row] = []
    for row, config in enumerate(order):
        right = left = 0.0
        for part, (colour, hatch, _) in LOOKS.items():
            width = parts[config][part].point
            axes.barh(row, width, left=right if width >= 0 else left, height=0.5, facecolor=colour, edgecolor="#FFFFFF",
                      hatch=hatch, linewidth=0.6)  # fmt: skip
            right, left = right + max(width, 0.0), left + min(width, 0.0)
        whole = entries[config].difference_us.interval
        assert whole is not None, "entries without a difference are left out"
        error_bar(axes, row, whole, horizontal=True, colour="#111111")
        axes.plot(whole.point, row, "D", color="#111111", zorder=5)
        ends = [right, left, *ends_of(whole)]
        texts.append(microseconds(whole.point))
        write_behind(axes, row, ends, texts[-1])
        every += ends
        rows += [
            {"config": config, "part": part, "us_per_step": v.point, "low": v.low, "high": v.high}
            for part, v in [*parts[config].items(), ("total", whole)]
        ]
    row_axis(axes, [short_label(aggregate.label_of(c)) for c in order], every, texts)
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.set_xlabel("mean step less plain's (µs)")
    at = reference_rate(aggregate, "ref_safe")
    return finished(
        aggregate,
        name,
        figure,
        rows,
        n=[entries[c].n_steps for c in order],
        lists={**left_out(aggregate, "a", order, rate_per_s=at), **_late(aggregate, order)},
        legend=[
            Patch(facecolor=colour, edgecolor="#FFFFFF", hatch=hatch, label=words)
            for colour, hatch, words in LOOKS.values()
        ],
        rate_per_s=at,
    )


def _no_attribution(aggregate: Aggregate) -> Omitted:
    """Say whose decoding steps are missing: without plain's nobody's have anything to be set beside."""
    steps = {c for c, found in _steps(aggregate).items() if found.by_kind.decode_only.n}
    if "plain" not in steps:
        return omitted("no_plain_steps", plain=why_absent(aggregate, "plain"))
    if any(map(is_connector, steps)):
        return omitted("few_decoding_steps")
    without = [why_absent(aggregate, c) for c in aggregate.config_ids if is_connector(c)]
    return omitted("no_decoding_steps", configs=listing(without, 9)) if without else omitted("no_connector")
