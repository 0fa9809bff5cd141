"""Draws figures 4, 5, 7 and 8: the taxes of all connectors at both reference rates, over prompt and output
length, in parts, and of a stack beside its parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from connector_tax.base.documents.aggregate import Aggregate, Decomposition, Interval, LatencyMetric, TaxRow
from connector_tax.base.documents.rates import REFERENCES, Reference
from connector_tax.base.records.connector import MATCHED, PLAIN_AGAIN
from connector_tax.base.statistics.decisions import NO_TAX_FOUND, UNDETERMINED
from connector_tax.read.figures.style import (
    FORM,
    MEASURED,
    Bars,
    Drawn,
    Omitted,
    Row,
    ends_of,
    error_bar,
    finished,
    launches,
    look_of,
    new_figure,
    not_shown,
    omitted,
    percent_axis,
    side_by_side,
    write_behind,
)
from connector_tax.read.figures.words import (
    METRICS,
    blocks_of,
    connectors_or_all,
    interval_texts,
    listing,
    main_tax_for,
    main_taxes,
    names_of,
    percent,
    phase_a_shape,
    rate,
    reason_text,
    reference_rate,
    why_absent,
)

BAR = 0.38
FLOOR = "#E9E9E9"
GAP = "#B2182B"
HATCH_OF = {"ref_safe": "", "ref_load": "////"}
# Hatches of Figure 5's cells whose interval does not exclude zero.
HATCHES = {NO_TAX_FOUND: "////", UNDETERMINED: "...."}
# Columns of the CSV beside each figure.
BAR_COLUMNS = (
    "config metric reference rate_per_s input_tokens output_tokens phase n_blocks point low high n n_plain"
)
CELL_COLUMNS = "config input_tokens output_tokens rate_per_s n_blocks point low high n n_plain verdict"
# Prompt and output tokens -> the tax there.
Grid = dict[tuple[int, int], TaxRow]


def draw_bars(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    all_taxes = {
        (m, r): main_taxes(aggregate, metric=m, reference=r) for m, r in product(METRICS, REFERENCES)
    }
    known = {c for tax_by_config in all_taxes.values() for c in tax_by_config}
    order = connectors_or_all([c for c in aggregate.config_ids if c in known])
    if not order:
        return omitted("no_taxes")
    taxes = {
        key: {c: tax for c, tax in tax_by_config.items() if c in order}
        for key, tax_by_config in all_taxes.items()
    }
    metrics = [m for m in METRICS if any(taxes[m, r] for r in REFERENCES)]
    names: dict[Reference, str] = {r: r for r in REFERENCES if any(taxes[m, r] for m in METRICS)}
    safe, load = (reference_rate(aggregate, r) for r in REFERENCES)
    if len(names) == 2 and safe == load:  # the same bar twice would look like agreement
        names = {"ref_safe": "ref_safe = ref_load"}

    form = FORM.get()
    figure = new_figure(10.4, 1.0 + (0.1 + 0.29 * len(names)) * len(order), len(metrics))
    floors = []
    for axes, metric in zip(side_by_side(figure, len(metrics)), metrics, strict=True):
        bars = Bars(axes)
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
                added = f"  gap {percent(gap.point).replace(' %', ' pp')}" if gap and hatch else ""
                bars.interval(y, value, percent(value.point) + added)
            if gap and len(points) == 2:
                axes.plot(points, [row, row], color=GAP, linewidth=2, marker="|", markersize=1.4 * form.mark)
        bars.label(names_of(aggregate, order), f"tax of {METRICS[metric]} (%)")
        for entry in aggregate.repeats:
            low, high = entry.noise_floor.low, entry.noise_floor.high
            at_safe = "ref_safe" in names and (entry.reference, entry.metric) == ("ref_safe", metric)
            if at_safe and low is not None and high is not None:
                floors.append(axes.axvspan(low, high, color=FLOOR, linewidth=0, zorder=0))
    legend: list[Artist] = [
        Patch(facecolor="#FFFFFF" if HATCH_OF[r] else "#999999", edgecolor="#333333", hatch=HATCH_OF[r],
              label=words if (per_s := reference_rate(aggregate, r)) is None else f"{words} ({rate(per_s)})")
        for r, words in names.items()
    ]  # fmt: skip
    if len(names) == 2:
        legend.append(Line2D([], [], color=GAP, linewidth=2, marker="|", label="gap: what load adds"))
    if floors:
        legend.append(Patch(facecolor=FLOOR, label="plain against itself"))
    shown = [tax for m in metrics for r in names for tax in taxes[m, r].values()]
    shown_configs = {tax.config for tax in shown}
    missing = [
        f"{METRICS[m].removesuffix(' p90')} of {c} at {r}"
        for r in names
        for m in METRICS
        for c in order
        if c in shown_configs and c not in taxes[m, r]
    ]
    return finished(
        aggregate,
        name,
        figure,
        [_columns(tax, BAR_COLUMNS) for tax in shown],
        taxes=shown,
        lists={**launches(shown), "no_bar": missing, **not_shown(aggregate, "a", shown_configs, taxes=shown)},
        legend=legend,
    )


def _columns(tax: TaxRow, names: str) -> Row:
    return {name: getattr(tax, name) for name in names.split()}


def _gap(aggregate: Aggregate, config: str, metric: LatencyMetric) -> Interval | None:
    """Return by how much load increases a tax at Phase A's shape."""
    rows = (a for a in aggregate.amplification if (a.config, a.metric) == (config, metric))
    row = next((a for a in rows if a.input_tokens is None or a.shape == phase_a_shape(aggregate)), None)
    return None if row is None else row.interval


def draw_shapes(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw the TTFT tax over prompt and output length, one heatmap per connector (Phase B).

    A shape that some configuration could not hold at ref_safe was measured at a lower rate; then every cell
    shows its rate. At Phase A's shape the main tax counts, as in Figure 4, even if Phase B's cell is missing.
    """
    phase_b_taxes = [
        tax
        for tax in aggregate.taxes
        if (tax.phase, tax.metric, tax.reference) == ("b", "ttft_p90", "ref_safe") and tax.config != "plain"
    ]
    grids = _grids(aggregate, phase_b_taxes)
    order = connectors_or_all([c for c in aggregate.config_ids if c in grids])
    if not order:
        return omitted("no_shapes")
    inputs, outputs = (
        sorted({t.input_tokens for t in phase_b_taxes}),
        sorted({t.output_tokens for t in phase_b_taxes}),
    )
    names = names_of(aggregate, order)
    taxes = [tax for c in order for _, tax in sorted(grids[c].items())]
    rates = {tax.rate_per_s for tax in taxes}
    form = FORM.get()
    texts = {id(tax): _cell_text(tax, len(rates) > 1, "\n" if form.narrow else " ") for tax in taxes}
    cells = [text.split("\n") for text in texts.values()]

    # Cells are as large as their numbers need; as many panels as fit stand side by side.
    max_chars, max_lines = max(len(line) for cell in cells for line in cell), max(map(len, cells))
    grid_width_pt = max(
        len(outputs) * (0.57 * form.small * max_chars + 3), 0.6 * form.small * max(map(len, names))
    )
    panel_width_in = (grid_width_pt + form.small) / 72
    space_in = (form.width or 11.0) - 0.09 * form.text
    n_columns = max(1, min(len(order), 4, int(space_in / (0.85 * panel_width_in))))
    n_rows = -(-len(order) // n_columns)
    panel_height_pt = len(inputs) * (1.35 * max_lines * form.small + 4) + 2.2 * form.text
    height = (n_rows * panel_height_pt + 9 * form.text) / 72
    figure = new_figure(max(8.0, n_columns * panel_width_in + 0.1 * form.text), height / form.tallness)
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    text_scale = min(1.0, (figure.get_figwidth() - 0.09 * form.text) / n_columns / panel_width_in)
    points = sorted(abs(tax.point) for tax in taxes if tax.point is not None)
    # One saturated cell must not bleach the rest: the scale ends at three times the median; the text has the
    # number.
    limit = max(min(points[-1], 3 * points[len(points) // 2]), 0.02)
    norm = Normalize(-limit, limit)
    colours = colormaps["PuOr_r"].with_extremes(bad="#EDEDED")
    for position, axes in enumerate(panels.flat):
        if position >= len(order):
            axes.set_axis_off()
            continue
        grid = grids[order[position]]
        values = np.array([[grid[i, o].point if (i, o) in grid else np.nan for o in outputs] for i in inputs])
        axes.pcolormesh(values, cmap=colours, norm=norm, edgecolors="#FFFFFF", linewidth=1.5)
        for (row, i), (column, o) in product(enumerate(inputs), enumerate(outputs)):
            tax = grid.get((i, o))
            text, colour = texts.get(id(tax), "n/a"), colours(norm(values[row, column]))
            _write_cell(axes, column, row, tax, text, colour, form.small * text_scale)
        axes.set_xticks(np.arange(len(outputs)) + 0.5, [f"{o:,}" for o in outputs])
        axes.set_yticks(np.arange(len(inputs)) + 0.5, [f"{i:,}" for i in inputs])
        axes.set_ylim(len(inputs), 0)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(names[position], loc="left", fontsize=form.small * text_scale)
        if position % n_columns == 0:
            axes.set_ylabel("prompt (tokens)")
        if position >= n_columns * (n_rows - 1):
            axes.set_xlabel("output (tokens)")
    extend = "both" if points[-1] > limit else "neither"
    bar = figure.colorbar(
        panels.flat[0].collections[0], ax=panels, location="bottom", shrink=0.8, aspect=50, extend=extend
    )
    bar.set_label("tax of TTFT p90 (%); hatched: interval covers 0")
    percent_axis(bar.ax.xaxis)
    missing = [f"{c} {i}x{o}" for c, i, o in product(order, inputs, outputs) if (i, o) not in grids[c]]
    return finished(
        aggregate,
        name,
        figure,
        [_columns(tax, CELL_COLUMNS) for tax in taxes],
        taxes=taxes,
        lists={"not_available": missing, **not_shown(aggregate, "b", order, taxes=taxes)},
        rate_per_s=rates.pop() if len(rates) == 1 else None,
        shape=False,
    )


def _grids(aggregate: Aggregate, phase_b_taxes: Sequence[TaxRow]) -> dict[str, Grid]:
    """Return configuration -> shape -> main tax, for Phase B's shapes; Phase B's own cells may be missing."""
    grids: dict[str, Grid] = {}
    for phase_b_tax in phase_b_taxes:
        tax = main_tax_for(aggregate, phase_b_tax)
        if tax.known:
            grids.setdefault(tax.config, {})[phase_b_tax.shape] = tax
    for config, main_tax in main_taxes(aggregate, metric="ttft_p90", reference="ref_safe").items():
        if (main_tax.shape, main_tax.rate_per_s) in {(tax.shape, tax.rate_per_s) for tax in phase_b_taxes}:
            grids.setdefault(config, {}).setdefault(main_tax.shape, main_tax)
    return grids


def _cell_text(tax: TaxRow, with_rate: bool, between: str) -> str:
    """Return a cell's text: tax, interval, and where they differ, rate and blocks."""
    value = tax.interval
    assert value is not None, "a grid has taxes with a number"
    point, low, high = (text.removesuffix(" %") for text in interval_texts(value, no_low="?", no_high="?"))
    lines = [f"{point} %", f"[{low},{between}{high}]"]
    if with_rate:
        lines.append(rate(tax.rate_per_s))
    if (blocks := blocks_of(tax)) is not None:
        lines.append(f"{blocks} blocks")
    return "\n".join(lines)


def _write_cell(axes: Any, x: int, y: int, tax: TaxRow | None, text: str, colour: Any, points: float) -> None:
    """Write a cell's numbers in a contrasting colour, and hatch it if its interval contains zero."""
    hatch = HATCHES.get(tax.effect) if tax else None
    if hatch:
        axes.add_patch(Rectangle((x, y), 1, 1, hatch=hatch, fill=False, edgecolor="#8A8A8A", linewidth=0))
    dark = float(np.dot(colour[:3], (0.299, 0.587, 0.114))) < 0.5
    axes.text(
        x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=points, linespacing=1.25,
        color="#FFFFFF" if dark else "#000000",
        bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.4} if hatch else None,
    )  # fmt: skip


NOOP = "noop_connector"
PARTS = ("flags", "framework", "implementation")
FLAGS_COLOUR, WHISKER, WHOLE, GREY = "#F0E442", "#333333", "#111111", "#666666"
# Offsets of one connector's rows: three parts, then the whole.
OFFSETS = (-0.3, -0.1, 0.1, 0.3)
PART_BAR = 0.17
# Stacked configuration -> its parts; the first whose members all have a tax is drawn. The second runs on
# hosts without a GPU.
STACKS = {
    "multi_mooncake_lmcache": ("mooncake_both", "lmcache_only"),
    "multi_noop_example": ("noop_connector", "example_connector"),
}


@dataclass(frozen=True, slots=True)
class Stack:
    """A connector's tax on one latency.

    ``parts`` is empty if the tax is not split, and lacks flags if they are unknown.
    """

    total: Interval
    parts: dict[str, Interval]


def draw_decomposition(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw each tax in three parts: switched settings, vLLM's framework, the connector's own code.

    If no launch of plain had the connector's settings, draw the published experiment's two parts: the no-op
    connector's tax, and what the connector adds to it.
    """
    stacks: dict[LatencyMetric, dict[str, Stack]] = {}
    for row in aggregate.decomposition:
        if (stack := _stack(row)) is not None and row.metric in METRICS:
            stacks.setdefault(row.metric, {})[row.config] = stack
    all_stacks = [stack for stack_by_config in stacks.values() for stack in stack_by_config.values()]
    if not any(stack.parts for stack in all_stacks):
        return _not_split(aggregate)
    order = [
        c for c in aggregate.config_ids if any(c in stack_by_config for stack_by_config in stacks.values())
    ]
    figure = new_figure(10.4, 1.0 + 0.8 * len(order), len(stacks))
    rows: list[Row] = []
    shown: list[TaxRow] = []
    metrics = [m for m in METRICS if m in stacks]
    for axes, metric in zip(side_by_side(figure, len(metrics)), metrics, strict=True):
        stack_by_config, bars = stacks[metric], Bars(axes)
        for position, config in enumerate(order):
            stack = stack_by_config.get(config)
            if stack is None:
                write_behind(axes, position, [], "not available", GREY)
                continue
            if "flags" not in stack.parts:
                words = f"{'flags' if stack.parts else 'parts'} not told apart"
                write_behind(axes, position + OFFSETS[0], [], words, GREY)
            start = 0.0
            for offset, part in zip(OFFSETS, PARTS, strict=False):
                if (value := stack.parts.get(part)) is not None:
                    bars.ends.extend(_bar(axes, position + offset, config, part, start, value))
                    start += value.point
            y, whole = position + OFFSETS[-1], stack.total
            bars.interval(y, whole, percent(whole.point), colour=WHOLE)
            axes.plot(whole.point, y, "|", color=WHOLE, markersize=2 * FORM.get().mark, markeredgewidth=1.8)
            rows += [
                {"config": config, "metric": metric, "part": p, "tax": v.point, "low": v.low, "high": v.high}
                for p, v in {**stack.parts, "total": whole}.items()
            ]
            axes.axhline(position + 0.5, color="#DDDDDD", linewidth=0.6)
        bars.label(names_of(aggregate, order), f"tax of {METRICS[metric]} (%)")
        # The taxes behind the bars: those that are split, and those that are parts.
        configs_behind = {
            *stack_by_config,
            *(MATCHED + c for c, s in stack_by_config.items() if "flags" in s.parts),
        }
        configs_behind |= {NOOP for s in stack_by_config.values() if "framework" in s.parts}
        taxes = main_taxes(aggregate, metric=metric, reference="ref_safe")
        shown += [tax for c, tax in taxes.items() if c in configs_behind]
    legend: list[Artist] = [
        Patch(facecolor=FLAGS_COLOUR, label="flags: settings it switches"),
        Patch(facecolor=look_of(NOOP).colour, label="framework: the no-op connector"),
        Patch(facecolor="#FFFFFF", edgecolor=WHISKER, hatch="////", label="implementation: the rest"),
        Line2D([], [], color=WHISKER, marker="o", label="a part's interval"),
        Line2D([], [], color=WHOLE, marker="|", markersize=2 * FORM.get().mark, label="whole tax"),
    ]
    rate_per_s = reference_rate(aggregate, "ref_safe")
    not_split = [
        c
        for c in order
        if any(c in stack_by_config and not stack_by_config[c].parts for stack_by_config in stacks.values())
    ]
    return finished(
        aggregate,
        name,
        figure,
        rows,
        taxes=shown,
        lists={
            **launches(shown),
            "not_split": not_split,
            **not_shown(aggregate, "a", {NOOP, *order}, taxes=shown, rate_per_s=rate_per_s),
        },
        legend=legend if any("flags" in stack.parts for stack in all_stacks) else legend[1:],
        rate_per_s=rate_per_s,
    )


def _stack(row: Decomposition) -> Stack | None:
    if (total := row.total.interval) is None:
        return None
    part_names = PARTS[1:] if row.parts == 2 else PARTS
    parts = {p: value for p in part_names if (value := getattr(row, p).interval) is not None}
    return Stack(total, parts if len(parts) == len(part_names) else {})


def _not_split(aggregate: Aggregate) -> Omitted:
    state = aggregate.configs.get(NOOP)
    if state is None or state.status not in MEASURED:
        return omitted("no_framework", reason=why_absent(aggregate, NOOP))
    rows = aggregate.decomposition
    parts = [p for r in rows for p in (r.total, r.framework, r.flags, r.implementation) if p.reason]
    reasons = [reason_text(p.reason, p.subject) for p in parts]
    return omitted(
        "no_split", reasons=listing([*dict.fromkeys(reasons)]) or "no connector has a tax at ref_safe"
    )


def _bar(axes: Any, y: float, config: str, part: str, start: float, value: Interval) -> list[float]:
    """Draw one part from the end of the previous one; return the positions that its whisker reaches."""
    style: Any = {
        "flags": {"color": FLAGS_COLOUR},
        "framework": {"color": look_of(NOOP).colour},
        "implementation": {"facecolor": "#FFFFFF", "edgecolor": look_of(config).colour, "hatch": "////"},
    }[part]
    axes.barh(y, value.point, left=start, height=PART_BAR, linewidth=1.0, **style)
    low, high = (None if e is None else start + e for e in (value.low, value.high))
    shifted = Interval(start + value.point, low, high)
    error_bar(axes, y, shifted, horizontal=True, colour=WHISKER)
    # The dot distinguishes it from the outline of a bar that ends at the whisker's end.
    axes.plot(shifted.point, y, "o", color=WHISKER, zorder=3)
    return ends_of(shifted)


def draw_additivity(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    taxes = main_taxes(aggregate, metric="ttft_p90", reference="ref_safe")
    candidates = dict(STACKS)
    for verdict in aggregate.hypotheses:
        if verdict.id == "H4" and len(verdict.numbers.parts or {}) == 2:
            first, second = verdict.numbers.parts or {}
            candidates.setdefault(verdict.subject, (first, second))
    # A tax of one launch and one over blocks are never added.
    members = {whole: (*parts, whole) for whole, parts in candidates.items()}
    stacks = [
        ids
        for ids in members.values()
        if {*ids} <= taxes.keys() and len({taxes[c].of_one_launch for c in ids}) == 1
    ]
    if not stacks:
        return _no_stack(aggregate, members, taxes)
    shown = [taxes[c] for c in stacks[0]]
    first_value, second_value, whole = (value for tax in shown if (value := tax.interval) is not None)
    first, second, together = stacks[0]
    total = _sum(aggregate, together, first_value, second_value)
    values = {first: first_value, second: second_value, "sum": total, together: whole}
    first_name, second_name, whole_name = names_of(aggregate, stacks[0])
    figure = new_figure(9.6, 3.4)
    axes = figure.subplots()
    bars = Bars(axes)
    for row, (config, value) in enumerate(values.items()):
        style: Any = {"color": look_of(config).colour}
        if config == "sum":
            style = {"facecolor": "#FFFFFF", "edgecolor": "#555555", "hatch": "////"}
        axes.barh(row, value.point, height=0.62, **style)
        bars.interval(row, value, percent(value.point))
    axes.plot([total.point] * 2, [1.6, 3.4], color="#777777", linewidth=0.9, linestyle="--", zorder=0)
    bars.label([first_name, second_name, "sum of the two", whole_name], "tax of TTFT p90 (%)")
    rate_per_s = reference_rate(aggregate, "ref_safe")
    # Over blocks a tax is relative to the mean of plain's two launches in each.
    plains = ["plain"] if shown[0].of_one_launch else ["plain", PLAIN_AGAIN]
    return finished(
        aggregate,
        name,
        figure,
        [
            {"config": c, "tax_ttft_p90": v.point, "low": v.low, "high": v.high} for c, v in values.items()
        ],
        taxes=shown,
        lists={
            **launches(shown),
            **not_shown(aggregate, "a", taxes=shown, rate_per_s=rate_per_s, among=[*plains, *stacks[0]]),
        },
        rate_per_s=rate_per_s,
    )  # fmt: skip


def _sum(aggregate: Aggregate, whole: str, first_value: Interval, second_value: Interval) -> Interval:
    """Return the verdict's sum of the parts; without a verdict the bounds are summed, which never narrows."""
    verdict = aggregate.hypothesis("H4", whole)
    if (
        verdict is not None
        and (sum_of_parts := verdict.numbers.sum_of_parts) is not None
        and sum_of_parts.interval
    ):
        return sum_of_parts.interval
    low = None if first_value.low is None or second_value.low is None else first_value.low + second_value.low
    high = (
        None
        if first_value.high is None or second_value.high is None
        else first_value.high + second_value.high
    )
    return Interval(first_value.point + second_value.point, low, high)


def _no_stack(
    aggregate: Aggregate, members: dict[str, tuple[str, str, str]], taxes: dict[str, TaxRow]
) -> Omitted:
    """Name the stack that this campaign planned, else the first, whose tax is missing."""
    stacks_in_campaign = [ids for whole, ids in members.items() if whole in aggregate.configs]
    h4_verdicts = [h for h in aggregate.hypotheses if h.id == "H4" and h.subject in aggregate.configs]
    if not stacks_in_campaign and h4_verdicts:
        reasons = "; ".join(reason_text(m.reason, m.subject) for m in h4_verdicts[0].missing)
        return omitted(
            "stack_of_h4", stack=h4_verdicts[0].subject, outcome=h4_verdicts[0].outcome, why=reasons
        )
    ids = [*stacks_in_campaign, *members.values()][0]
    metric_and_reference = ("ttft_p90", "ref_safe")
    reason_by_config = {
        t.config: reason_text(t.reason, t.subject)
        for t in aggregate.main_taxes
        if (t.metric, t.reference) == metric_and_reference and t.reason
    }
    missing = [
        f"{c}: {reason_by_config[c]}" if reason_by_config.get(c) else why_absent(aggregate, c)
        for c in ids
        if c not in taxes
    ]
    if missing:
        return omitted("no_stack", reasons="; ".join(missing))
    return omitted("unlike_launches", once=" and ".join(c for c in ids if taxes[c].of_one_launch))
