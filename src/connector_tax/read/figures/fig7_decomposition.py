"""Figure 7: each tax in three parts: settings that the connector switches, vLLM's framework, the connector's own code.

Where no launch of plain had the connector's settings, in the two parts of the published experiment: the no-op connector's
tax, and what the connector adds to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from connector_tax.base.documents.aggregate import Aggregate, Decomposition, Interval, LatencyMetric
from connector_tax.base.records.connector import MATCHED
from connector_tax.read.figures.forms import form_in_use, stroke, type_size
from connector_tax.read.figures.labels import reason_text
from connector_tax.read.figures.questions import (
    Tax,
    in_order,
    main_taxes,
    reference_rate,
    source_note,
    why_absent,
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
    MEASURED,
    caption_of,
    counted,
    fell_behind,
    launches,
    left_out,
    listing,
    percent,
    short_label,
    title_of,
)

NOOP = "noop_connector"
METRICS: dict[LatencyMetric, str] = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
PARTS, TWO_PARTS = ("flags", "framework", "implementation"), ("framework", "implementation")
FLAGS_COLOUR, WHISKER = "#F0E442", "#333333"
# Rows of one connector: its three parts, then the whole.
OFFSETS = (-0.3, -0.1, 0.1, 0.3)
BAR = 0.17


@dataclass(frozen=True, slots=True)
class Stack:
    """One connector's tax on one latency; ``parts`` is empty where it is not split, and has no flags where these are not known."""

    total: Interval
    parts: dict[str, Interval]


Stacks = dict[LatencyMetric, dict[str, Stack]]


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    stacks = stacks_of(aggregate)
    if not any(s.parts for found in stacks.values() for s in found.values()):
        return Omitted(_why_not(aggregate, stacks))
    order = list(dict.fromkeys(c for found in stacks.values() for c in found))
    figure = new_figure(
        10.4, max(3.2, 1.8 + 0.8 * len(order)), narrow=len(stacks) * (0.45 + 0.36 * len(order))
    )
    panels = side_by_side(figure, len(stacks))
    for axes, (metric, found) in zip(panels, stacks.items(), strict=True):
        _panel(axes, metric, found, order)
        if axes is panels[0] or form_in_use().narrow:
            axes.set_yticks(range(len(order)), [short_label(aggregate.label_of(c)) for c in order])
            axes.set_ylim(len(order) - 0.5, -0.5)
    with_flags = any("flags" in s.parts for found in stacks.values() for s in found.values())
    legend = [
        Patch(facecolor=FLAGS_COLOUR, label="flags: settings it switches"),
        Patch(facecolor=look_of(NOOP).colour, label="framework: the no-op connector"),
        Patch(facecolor="#FFFFFF", edgecolor="#333333", hatch="////", label="implementation: the rest"),
        Line2D(
            [],
            [],
            color=WHISKER,
            marker="o",
            markersize=stroke(4.2),
            linewidth=stroke(1.2),
            label="a part's interval",
        ),
        Line2D(
            [],
            [],
            color="#111111",
            marker="|",
            markersize=stroke(9),
            linewidth=stroke(1.2),
            label="whole tax",
        ),
    ]
    title = title_of(aggregate, "fig7_decomposition", "ref_safe")
    set_claim(figure, title, source_note(aggregate), legend if with_flags else legend[1:])
    drawn = _drawn(aggregate, stacks)
    at = reference_rate(aggregate, "ref_safe")
    whole = sorted({c for found in stacks.values() for c, s in found.items() if not s.parts})
    caption = caption_of(
        aggregate,
        "fig7_decomposition",
        counted([t.n for t in drawn if t.n]),
        launches(drawn),
        f"Not split: {', '.join(whole)}." if whole else "",
        left_out(aggregate, "a", {NOOP}.union(*stacks.values()), drawn, at),
        saturated=fell_behind(aggregate, drawn),
    )
    return Drawn(figure, title, caption, _rows(stacks))


def stacks_of(aggregate: Aggregate) -> Stacks:
    """Return the split taxes by latency and connector; only those with a tax."""
    rows = in_order(aggregate, aggregate.decomposition)
    found = {
        m: {r.config: s for r in rows if r.metric == m and (s := _stack(r)) is not None} for m in METRICS
    }
    return {metric: own for metric, own in found.items() if own}


def _stack(row: Decomposition) -> Stack | None:
    if (total := row.total.interval) is None:
        return None
    every = {"flags": row.flags, "framework": row.framework, "implementation": row.implementation}
    wanted = TWO_PARTS if row.parts == 2 else PARTS
    parts = {p: value for p in wanted if (value := every[p].interval) is not None}
    return Stack(total, parts if len(parts) == len(wanted) else {})


def _why_not(aggregate: Aggregate, stacks: Stacks) -> str:
    state = aggregate.configs.get(NOOP)
    if state is None or state.status not in MEASURED:
        return f"there is no tax of the framework alone: {why_absent(aggregate, NOOP)}"
    rows = aggregate.decomposition
    parts = [p for r in rows for p in (r.total, r.framework, r.flags, r.implementation) if p.reason]
    reasons = [reason_text(p.reason, p.subject) for p in parts]
    told = listing(list(dict.fromkeys(reasons)))
    return f"no tax can be split: {told}" if stacks or told else "no connector has a tax at ref_safe"


def _drawn(aggregate: Aggregate, stacks: Stacks) -> list[Tax]:
    """Return the taxes behind the bars: those that are split, and those that are parts of them."""
    found = []
    for metric, own in stacks.items():
        shown = set(own)
        shown |= {NOOP for s in own.values() if "framework" in s.parts}
        shown |= {MATCHED + c for c, s in own.items() if "flags" in s.parts}
        taxes = main_taxes(aggregate, metric=metric, reference="ref_safe")
        found += [tax for c, tax in taxes.items() if c in shown]
    return found


def _panel(axes: Axes, metric: LatencyMetric, found: Mapping[str, Stack], order: list[str]) -> None:
    ends = [0.0]
    for row, config in enumerate(order):
        stack = found.get(config)
        if stack is None:
            _say(axes, row, "not available")
            continue
        start = 0.0
        for offset, part in zip(OFFSETS, PARTS, strict=False):
            value = stack.parts.get(part)
            if value is None:
                continue
            ends += _bar(axes, row + offset, config, part, start, value)
            start += value.point
        if not stack.parts:
            _say(axes, row - 0.1, "parts not told apart")
        elif "flags" not in stack.parts:
            _say(axes, row + OFFSETS[0], "flags not told apart")
        y = row + OFFSETS[-1]
        error_bar(axes, y, stack.total, horizontal=True, colour="#111111")
        axes.plot(
            [stack.total.point], [y], "|", color="#111111", markersize=stroke(10), markeredgewidth=stroke(1.8)
        )
        _write(axes, y, max(v for v in (stack.total.high, stack.total.point) if v is not None), stack.total)
        ends += [e for e in (stack.total.low, stack.total.high, stack.total.point) if e is not None]
        if row:
            axes.axhline(row - 0.5, color="#DDDDDD", linewidth=stroke(0.6))
    span = max(max(ends) - min(ends), 1e-6)
    axes.set_xlim(min(ends) - span * (0.06 if min(ends) < 0 else 0.015), max(ends) + span * 0.25)
    axes.axvline(0, color="#333333", linewidth=stroke(0.9))
    axes.xaxis.set_major_formatter(FuncFormatter(percent_ticks))
    axes.xaxis.set_major_locator(MaxNLocator(5 if form_in_use().narrow else 6))
    axes.set_xlabel(f"tax of {METRICS[metric]} against plain (%)")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _bar(axes: Axes, y: float, config: str, part: str, start: float, value: Interval) -> list[float]:
    """One part, from where the one before ended; returns the places its whisker reaches."""
    style: Any = {
        "flags": {"color": FLAGS_COLOUR},
        "framework": {"color": look_of(NOOP).colour},
        "implementation": {"facecolor": "#FFFFFF", "edgecolor": look_of(config).colour, "hatch": "////"},
    }[part]
    axes.barh(y, value.point, left=start, height=BAR, linewidth=stroke(1.0), **style)
    low, high = (None if e is None else start + e for e in (value.low, value.high))
    moved = Interval(start + value.point, low, high)
    # Over bars and hatches alike; the dot tells it from the outline of a bar that ends where the whisker does.
    axes.plot(
        [moved.point if e is None else e for e in (low, high)], [y, y], color="#FFFFFF", linewidth=stroke(2.8), zorder=2.5
    )  # fmt: skip
    error_bar(axes, y, moved, horizontal=True, colour=WHISKER)
    axes.plot([moved.point], [y], "o", color=WHISKER, markersize=stroke(4.2), zorder=3)
    return [e for e in (moved.low, moved.high, moved.point) if e is not None]


def _write(axes: Axes, y: float, right: float, value: Interval) -> None:
    axes.annotate(percent(value.point), (max(right, 0.0), y), xytext=(7, 0), textcoords="offset points", va="center",
                  fontsize=type_size(8.5))  # fmt: skip


def _say(axes: Axes, y: float, text: str) -> None:
    axes.annotate(text, (0, y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=type_size(8),
                  color="#666666")  # fmt: skip


def _rows(stacks: Stacks) -> list[Row]:
    return [
        {"config": config, "metric": metric, "part": part, "tax": v.point, "low": v.low, "high": v.high}
        for metric, found in stacks.items()
        for config, stack in found.items()
        for part, v in {**stack.parts, "total": stack.total}.items()
    ]
