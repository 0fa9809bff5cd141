"""Figures 7 and 8: each tax in parts, and whether the taxes of two connectors add up when they are stacked."""

from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from connector_tax.base.documents.aggregate import Aggregate, Decomposition, Interval, LatencyMetric
from connector_tax.base.records.connector import MATCHED, PLAIN_AGAIN
from connector_tax.read.figures.captions import MEASURED, finished, launches, left_out, omitted
from connector_tax.read.figures.style import (
    FORM,
    Drawn,
    Omitted,
    Row,
    ends_of,
    error_bar,
    look_of,
    new_figure,
    percent_axis,
    row_axis,
    side_by_side,
    write_behind,
)
from connector_tax.read.figures.words import (
    METRICS,
    Tax,
    listing,
    main_taxes,
    percent,
    reason_text,
    reference_rate,
    short_label,
    why_absent,
)

NOOP = "noop_connector"
PARTS = ("flags", "framework", "implementation")
FLAGS_COLOUR, WHISKER, WHOLE, GREY = "#F0E442", "#333333", "#111111", "#666666"
# Rows of one connector: its three parts, then the whole.
OFFSETS = (-0.3, -0.1, 0.1, 0.3)
BAR = 0.17
# The stacked configuration and its parts; the first whose members all have a tax is drawn. The second runs
# on hosts without a GPU.
STACKS = {
    "multi_mooncake_lmcache": ("mooncake_both", "lmcache_only"),
    "multi_noop_example": ("noop_connector", "example_connector"),
}


@dataclass(frozen=True, slots=True)
class Stack:
    """One connector's tax on one latency; ``parts`` is empty where it is not split, and has no flags where these are not known."""

    total: Interval
    parts: dict[str, Interval]


def draw_decomposition(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    """Draw each tax in three parts: settings that the connector switches, vLLM's framework, the connector's own code.

    Where no launch of plain had the connector's settings, in the two parts of the published experiment: the no-op connector's
    tax, and what the connector adds to it.
    """
    stacks: dict[LatencyMetric, dict[str, Stack]] = {}
    for row in aggregate.decomposition:
        if (stack := _stack(row)) is not None and row.metric in METRICS:
            stacks.setdefault(row.metric, {})[row.config] = stack
    every = [stack for found in stacks.values() for stack in found.values()]
    if not any(stack.parts for stack in every):
        return _not_split(aggregate)
    order = [c for c in aggregate.config_ids if any(c in found for found in stacks.values())]
    names = [short_label(aggregate.label_of(c)) for c in order]
    figure = new_figure(10.4, 1.0 + 0.8 * len(order), len(stacks))
    rows: list[Row] = []
    shown: list[Tax] = []
    metrics = [m for m in METRICS if m in stacks]
    for axes, metric in zip(side_by_side(figure, len(metrics)), metrics, strict=True):
        found = stacks[metric]
        ends, texts = [0.0], [""]
        for place, config in enumerate(order):
            stack = found.get(config)
            if stack is None:
                write_behind(axes, place, [], "not available", GREY)
                continue
            if "flags" not in stack.parts:
                words = "flags not told apart" if stack.parts else "parts not told apart"
                write_behind(axes, place + OFFSETS[0], [], words, GREY)
            start = 0.0
            for offset, part in zip(OFFSETS, PARTS, strict=False):
                if (value := stack.parts.get(part)) is not None:
                    ends += _bar(axes, place + offset, config, part, start, value)
                    start += value.point
            y = place + OFFSETS[-1]
            error_bar(axes, y, stack.total, horizontal=True, colour=WHOLE)
            axes.plot(
                stack.total.point, y, "|", color=WHOLE, markersize=2 * FORM.get().mark, markeredgewidth=1.8
            )
            texts.append(percent(stack.total.point))
            write_behind(axes, y, ends_of(stack.total), texts[-1])
            ends += ends_of(stack.total)
            rows += [
                {
                    "config": config,
                    "metric": metric,
                    "part": part,
                    "tax": v.point,
                    "low": v.low,
                    "high": v.high,
                }
                for part, v in {**stack.parts, "total": stack.total}.items()
            ]
            axes.axhline(place + 0.5, color="#DDDDDD", linewidth=0.6)
        row_axis(axes, names, ends, texts)
        percent_axis(axes.xaxis)
        axes.set_xlabel(f"tax of {METRICS[metric]} (%)")
        # The taxes behind the bars: those that are split, and those that are parts of them.
        behind = {*found, *(MATCHED + c for c, s in found.items() if "flags" in s.parts)}
        behind |= {NOOP for s in found.values() if "framework" in s.parts}
        taxes = main_taxes(aggregate, metric=metric, reference="ref_safe")
        shown += [tax for c, tax in taxes.items() if c in behind]
    legend: list[Artist] = [
        Patch(facecolor=FLAGS_COLOUR, label="flags: settings it switches"),
        Patch(facecolor=look_of(NOOP).colour, label="framework: the no-op connector"),
        Patch(facecolor="#FFFFFF", edgecolor=WHISKER, hatch="////", label="implementation: the rest"),
        Line2D([], [], color=WHISKER, marker="o", label="a part's interval"),
        Line2D([], [], color=WHOLE, marker="|", markersize=2 * FORM.get().mark, label="whole tax"),
    ]
    at = reference_rate(aggregate, "ref_safe")
    whole = [c for c in order if any(c in found and not found[c].parts for found in stacks.values())]
    return finished(
        aggregate,
        name,
        figure,
        rows,
        taxes=shown,
        lists={
            **launches(shown),
            "not_split": whole,
            **left_out(aggregate, "a", {NOOP, *order}, taxes=shown, rate_per_s=at),
        },
        legend=legend if any("flags" in stack.parts for stack in every) else legend[1:],
        rate_per_s=at,
    )


def _stack(row: Decomposition) -> Stack | None:
    if (total := row.total.interval) is None:
        return None
    every = {"flags": row.flags, "framework": row.framework, "implementation": row.implementation}
    wanted = PARTS[1:] if row.parts == 2 else PARTS
    parts = {p: value for p in wanted if (value := every[p].interval) is not None}
    return Stack(total, parts if len(parts) == len(wanted) else {})


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
    """Draw one part from where the one before ended; return the places that its whisker reaches."""
    style: Any = {
        "flags": {"color": FLAGS_COLOUR},
        "framework": {"color": look_of(NOOP).colour},
        "implementation": {"facecolor": "#FFFFFF", "edgecolor": look_of(config).colour, "hatch": "////"},
    }[part]
    axes.barh(y, value.point, left=start, height=BAR, linewidth=1.0, **style)
    low, high = (None if e is None else start + e for e in (value.low, value.high))
    moved = Interval(start + value.point, low, high)
    error_bar(axes, y, moved, horizontal=True, colour=WHISKER)
    # The dot tells it from the outline of a bar that ends where the whisker does.
    axes.plot(moved.point, y, "o", color=WHISKER, zorder=3)
    return ends_of(moved)


def draw_additivity(aggregate: Aggregate, name: str) -> Drawn | Omitted:
    taxes = main_taxes(aggregate, metric="ttft_p90", reference="ref_safe")
    candidates = dict(STACKS)
    for verdict in aggregate.hypotheses:
        if verdict.id == "H4" and len(verdict.numbers.parts or {}) == 2:
            first, second = verdict.numbers.parts or {}
            candidates.setdefault(verdict.subject, (first, second))
    # Taxes of one launch and over blocks are not added up.
    members = {whole: (*parts, whole) for whole, parts in candidates.items()}
    alike = [
        ids
        for ids in members.values()
        if {*ids} <= taxes.keys() and len({taxes[c].of_one_launch for c in ids}) == 1
    ]
    if not alike:
        return _no_stack(aggregate, members, taxes)
    shown = [taxes[c] for c in alike[0]]
    one, two, whole = (value for tax in shown if (value := tax.interval) is not None)
    bars = [one, two, _sum(aggregate, alike[0][-1], one, two), whole]
    first, second, together = alike[0]
    ids = [first, second, "sum", together]
    names = [short_label(aggregate.label_of(c)) if c != "sum" else "sum of the two" for c in ids]
    figure = new_figure(9.6, 3.4)
    axes = figure.subplots()
    ends, texts = [0.0], []
    for row, (config, value) in enumerate(zip(ids, bars, strict=True)):
        style: Any = {"color": look_of(config).colour}
        if config == "sum":
            style = {"facecolor": "#FFFFFF", "edgecolor": "#555555", "hatch": "////"}
        axes.barh(row, value.point, height=0.62, **style)
        error_bar(axes, row, value, horizontal=True)
        texts.append(percent(value.point))
        write_behind(axes, row, ends_of(value), texts[-1])
        ends += ends_of(value)
    axes.plot([bars[2].point] * 2, [1.6, 3.4], color="#777777", linewidth=0.9, linestyle="--", zorder=0)
    row_axis(axes, names, ends, texts)
    percent_axis(axes.xaxis)
    axes.set_xlabel("tax of TTFT p90 (%)")
    at = reference_rate(aggregate, "ref_safe")
    # Over blocks a tax is against the mean of plain's two launches of each.
    plains = ["plain"] if shown[0].of_one_launch else ["plain", PLAIN_AGAIN]
    return finished(
        aggregate,
        name,
        figure,
        [{"config": c, "tax_ttft_p90": v.point, "low": v.low, "high": v.high} for c, v in zip(ids, bars, strict=True)],
        taxes=shown,
        lists={
            **launches(shown),
            **left_out(aggregate, "a", taxes=shown, rate_per_s=at, among=[*plains, *alike[0]]),
        },
        rate_per_s=at,
    )  # fmt: skip


def _sum(aggregate: Aggregate, whole: str, one: Interval, two: Interval) -> Interval:
    """Return the verdict's sum of the parts; without a verdict its ends are the sums of theirs, at least as wide as need be."""
    verdict = aggregate.hypothesis("H4", whole)
    if verdict is not None and (found := verdict.numbers.sum_of_parts) is not None and found.interval:
        return found.interval
    low = None if one.low is None or two.low is None else one.low + two.low
    high = None if one.high is None or two.high is None else one.high + two.high
    return Interval(one.point + two.point, low, high)


def _no_stack(
    aggregate: Aggregate, members: dict[str, tuple[str, str, str]], taxes: dict[str, Tax]
) -> Omitted:
    """Say of the stack that this campaign asked for, else of the first, whose tax is missing."""
    asked = [ids for whole, ids in members.items() if whole in aggregate.configs]
    of_h4 = [h for h in aggregate.hypotheses if h.id == "H4" and h.subject in aggregate.configs]
    if not asked and of_h4:
        why = "; ".join(reason_text(m.reason, m.subject) for m in of_h4[0].missing)
        return omitted("stack_of_h4", stack=of_h4[0].subject, outcome=of_h4[0].outcome, why=why)
    ids = [*asked, *members.values()][0]
    place = ("ttft_p90", "ref_safe")
    said = {
        t.config: reason_text(t.reason, t.subject)
        for t in aggregate.main_taxes
        if (t.metric, t.reference) == place and t.reason
    }
    missing = [f"{c}: {said[c]}" if said.get(c) else why_absent(aggregate, c) for c in ids if c not in taxes]
    if missing:
        return omitted("no_stack", reasons="; ".join(missing))
    return omitted("unlike_launches", once=" and ".join(c for c in ids if taxes[c].of_one_launch))
