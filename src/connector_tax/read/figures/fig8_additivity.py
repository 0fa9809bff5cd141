"""Figure 8: do the taxes of two connectors add up when they are stacked?"""

import textwrap
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FuncFormatter

from connector_tax.base.documents.aggregate import Aggregate, Interval
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.figures.forms import form_in_use, stroke, type_size
from connector_tax.read.figures.labels import reason_text
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    main_taxes,
    reference_rate,
    source_note,
    why_absent,
    why_no_number,
    without_number,
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
)
from connector_tax.read.figures.words import (
    caption_of,
    counted_sides,
    fell_behind,
    launches,
    left_out,
    percent,
    short_label,
    title_of,
)

# The stacked configuration and its parts; the first whose members all have a tax is drawn. The second runs
# on hosts without a GPU.
STACKS = (
    ("multi_mooncake_lmcache", ("mooncake_both", "lmcache_only")),
    ("multi_noop_example", ("noop_connector", "example_connector")),
)


@dataclass(frozen=True, slots=True)
class _Stack:
    whole_id: str
    part_ids: tuple[str, str]
    whole: Interval
    parts: tuple[Interval, Interval]
    judged: Interval | None

    @property
    def total(self) -> Interval:
        """The verdict's sum of the parts; without a verdict its ends are the sums of theirs, at least as wide as need be."""
        if self.judged is not None:
            return self.judged
        lows, highs = [p.low for p in self.parts], [p.high for p in self.parts]
        return Interval(
            self.parts[0].point + self.parts[1].point,
            sum(v for v in lows if v is not None) if None not in lows else None,
            sum(v for v in highs if v is not None) if None not in highs else None,
        )


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    taxes = main_taxes(aggregate, metric="ttft_p90", reference="ref_safe")
    values = {c: v for c, tax in taxes.items() if (v := tax.interval) is not None}
    once = {c for c in values if taxes[c].of_one_launch}
    stacks = (
        _stack(aggregate, values, once, whole, parts) for whole, parts in _candidates(aggregate).items()
    )
    stack = next((s for s in stacks if s is not None), None)
    if stack is None:
        return Omitted(_why_not(aggregate, values, once))

    figure = new_figure(8.6, 4.6, narrow=2.5)
    axes = figure.subplots()
    first, second = stack.part_ids
    bars = [
        (first, stack.parts[0]),
        (second, stack.parts[1]),
        ("sum", stack.total),
        (stack.whole_id, stack.whole),
    ]
    for position, (config, value) in enumerate(bars):
        if config == "sum":
            _sum_bar(axes, position, stack)
        else:
            look = look_of(config)
            axes.bar(position, value.point, width=0.62, color=look.colour, edgecolor=look.colour)
        error_bar(axes, position, value)
        top = max(v for v in (value.high, value.point, 0.0) if v is not None)
        axes.annotate(
            percent(value.point),
            (position, top),
            xytext=(0, stroke(5)),
            textcoords="offset points",
            ha="center",
            fontsize=type_size(9.5),
            bbox={"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.5},
        )
    axes.axhline(stack.total.point, color="#777777", linewidth=stroke(0.9), linestyle=(0, (4, 3)), zorder=0)
    axes.axhline(0, color="#333333", linewidth=stroke(0.9))
    names = [
        *(short_label(aggregate.label_of(c)) for c in stack.part_ids),
        "sum of the two",
        f"{short_label(aggregate.label_of(stack.whole_id))}\n(measured together)",
    ]
    if form_in_use().narrow:
        names = ["\n".join(textwrap.wrap(name, 12)) for name in names]
    axes.set_xticks(range(4), names)
    ends = [e for _, v in bars for e in (v.low, v.high, v.point, 0.0) if e is not None]
    span = max(max(ends) - min(ends), 1e-6)
    axes.set_ylim(min(ends) - (0.06 * span if min(ends) < 0 else 0), max(ends) + 0.14 * span)
    axes.yaxis.set_major_formatter(FuncFormatter(percent_ticks))
    axes.set_ylabel("tax of TTFT p90 against plain (%)")
    axes.grid(axis="x", visible=False)
    title = title_of(aggregate, "fig8_additivity", "ref_safe")
    set_claim(figure, title, source_note(aggregate))
    shown = [taxes[c] for c in (*stack.part_ids, stack.whole_id)]
    asked = [*_plains(shown), *(tax.config for tax in shown)]
    at = reference_rate(aggregate, "ref_safe")
    missing = left_out(aggregate, "a", taxes=shown, rate_per_s=at, among=asked)
    caption = caption_of(
        aggregate,
        "fig8_additivity",
        counted_sides(shown, "bar"),
        launches(shown),
        missing,
        saturated=fell_behind(aggregate, shown),
    )
    return Drawn(figure, title, caption, _rows(bars))


def _candidates(aggregate: Aggregate) -> dict[str, tuple[str, str]]:
    """Stack -> its two parts: those that are known by name, then the others of which H4 has a verdict."""
    found = dict(STACKS)
    for verdict in aggregate.hypotheses:
        parts = verdict.numbers.parts or {}
        if verdict.id == "H4" and len(parts) == 2:
            first, second = parts
            found.setdefault(verdict.subject, (first, second))
    return found


def _stack(
    aggregate: Aggregate, values: dict[str, Interval], once: set[str], whole: str, parts: tuple[str, str]
) -> _Stack | None:
    """None where a tax is missing, or one is of one launch (``once``) and another over blocks."""
    if not {whole, *parts} <= values.keys() or len({c in once for c in (whole, *parts)}) > 1:
        return None
    verdict = aggregate.hypothesis("H4", whole)
    judged = verdict.numbers.sum_of_parts.interval if verdict and verdict.numbers.sum_of_parts else None
    return _Stack(whole, parts, values[whole], (values[parts[0]], values[parts[1]]), judged)


def _sum_bar(axes: Any, position: int, stack: _Stack) -> None:
    """Stacked where both parts point the same way; a single bar where stacking would mislead."""
    one, two = stack.parts
    if one.point >= 0 and two.point >= 0:
        for config, height, bottom, hatch in [
            (stack.part_ids[0], one.point, 0.0, "////"),
            (stack.part_ids[1], two.point, one.point, "\\\\\\\\"),
        ]:
            look = look_of(config)
            axes.bar(
                position,
                height,
                bottom=bottom,
                width=0.62,
                facecolor="#FFFFFF",
                edgecolor=look.colour,
                hatch=hatch,
            )
    else:
        axes.bar(
            position, stack.total.point, width=0.62, facecolor="#FFFFFF", edgecolor="#555555", hatch="////"
        )


def _why_not(aggregate: Aggregate, values: dict[str, Interval], once: set[str]) -> str:
    # The stack this campaign asked for, if any.
    asked = [(w, p) for w, p in _candidates(aggregate).items() if w in aggregate.configs]
    of_h4 = [h for h in aggregate.hypotheses if h.id == "H4" and h.subject in aggregate.configs]
    if not asked and of_h4:
        why = "; ".join(reason_text(m.reason, m.subject) for m in of_h4[0].missing)
        return f"H4 of the stack in this campaign, {of_h4[0].subject}, is {of_h4[0].outcome}: {why}"
    whole, parts = (asked or STACKS)[0]
    lacking = without_number(aggregate, metric="ttft_p90", reference="ref_safe")
    missing = [_named_reason(aggregate, c, lacking.get(c)) for c in (*parts, whole) if c not in values]
    if missing:
        return "the check needs both parts and the stacked configuration: " + "; ".join(missing)
    alone = " and ".join(c for c in (*parts, whole) if c in once)
    return f"taxes of one launch ({alone}) and over blocks of launches are not added up or compared"


def _named_reason(aggregate: Aggregate, config: str, reason: str | None) -> str:
    """Reasons of a tax do not say whose it is."""
    absent = reason in (None, why_no_number(aggregate, config))
    return why_absent(aggregate, config) if absent else f"{config}: {reason}"


def _plains(shown: list[Tax]) -> list[str]:
    """Whose launches the taxes are against: over blocks the mean of plain's two of each block."""
    return ["plain", PLAIN_AGAIN] if any(blocks_of(tax) is not None for tax in shown) else ["plain"]


def _rows(bars: list[tuple[str, Interval]]) -> list[Row]:
    return [{"config": c, "tax_ttft_p90": v.point, "low": v.low, "high": v.high} for c, v in bars]
