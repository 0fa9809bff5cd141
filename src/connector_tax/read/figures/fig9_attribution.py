"""Figure 9: where the microseconds of a decoding step go that a connector adds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from connector_tax.base.documents.aggregate import Aggregate, Attribution, Interval, Part
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.forms import form_in_use, stroke, type_size
from connector_tax.read.figures.questions import (
    connectors_or_all,
    in_order,
    rated_cells,
    reference_rate,
    source_note,
    tax_rows,
    why_absent,
)
from connector_tax.read.figures.style import (
    Drawn,
    Omitted,
    Row,
    error_bar,
    microsecond_ticks,
    new_figure,
    set_claim,
)
from connector_tax.read.figures.words import (
    MEASURED,
    caption_of,
    counted,
    fell_behind,
    left_out,
    microseconds,
    no_step_times,
    rate,
    short_label,
    title_of,
)

# Part -> colour, hatch (which tells them apart in grey) and words; from the connector's own code outwards.
LOOKS: dict[Part, tuple[str, str, str]] = {
    "scheduler_hooks": ("#D55E00", "", "hooks, scheduler"),
    "worker_hooks": ("#E69F00", "////", "hooks, worker"),
    "schedule": ("#0072B2", "xxxx", "schedule()"),
    "update": ("#56B4E9", "\\\\\\\\", "update_from_output()"),
    "round_trip": ("#BBBBBB", "", "executor and model"),
}


@dataclass(frozen=True, slots=True)
class _Split:
    difference: Interval
    parts: dict[Part, Interval]
    n: int
    in_hooks: Interval | None


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    if not aggregate.step_timing_available:
        return Omitted(no_step_times(aggregate))
    every = _splits(aggregate)
    splits = {c: every[c] for c in connectors_or_all(every)}
    if not splits:
        return Omitted(_why_not(aggregate))
    figure = new_figure(10.4, max(3.0, 1.6 + 0.62 * len(splits)), narrow=0.45 + 0.21 * len(splits))
    axes = figure.subplots()
    ends = [0.0]
    for row, split in enumerate(splits.values()):
        ends += _stack(axes, row, split)
    axes.set_yticks(range(len(splits)), [short_label(aggregate.label_of(c)) for c in splits])
    axes.set_ylim(len(splits) - 0.45, -0.55)
    span = max(max(ends) - min(ends), 1e-6)
    axes.set_xlim(min(ends) - span * (0.06 if min(ends) < 0 else 0.015), max(ends) + span * 0.16)
    axes.axvline(0, color="#333333", linewidth=stroke(0.9))
    axes.xaxis.set_major_formatter(FuncFormatter(microsecond_ticks))
    axes.xaxis.set_major_locator(MaxNLocator(4 if form_in_use().narrow else 8))
    axes.set_xlabel("mean decoding step less plain's (µs)")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    legend = [Patch(label=words, **_face(colour, hatch)) for colour, hatch, words in LOOKS.values()]
    title = title_of(aggregate, "fig9_attribution", "ref_safe")
    set_claim(figure, title, source_note(aggregate), legend)
    at = reference_rate(aggregate, "ref_safe")
    taxes = tax_rows(aggregate, metric="step_p50_us", reference="ref_safe", phase="a")
    late = fell_behind(aggregate, (tax for tax in taxes if tax.config in splits))
    count, missing = (
        counted([s.n for s in splits.values()], "steps"),
        left_out(aggregate, "a", splits, rate_per_s=at),
    )
    caption = caption_of(aggregate, "fig9_attribution", count, missing, saturated=late)
    return Drawn(figure, title, caption, _rows(splits))


def _why_not(aggregate: Aggregate) -> str:
    """Whose decoding steps are missing: without plain's nobody's have anything to be set beside."""
    found = {c: _decoding_steps(aggregate, c) for c in aggregate.config_ids}
    others = [c for c, n in found.items() if n and is_connector(c)]
    at = reference_rate(aggregate, "ref_safe")
    where = "in phase A at ref_safe" + (f" ({rate(at)})" if at is not None else "")
    if not found.get("plain"):
        return f"{_why_not_plain(aggregate, where)}, so nobody's decoding steps can be set beside plain's"
    if not others:
        return f"no connector has decoding steps {where} to set beside plain's"
    return f"plain or each connector has too few decoding steps {where} for an interval"


def _why_not_plain(aggregate: Aggregate, where: str) -> str:
    state = aggregate.configs.get("plain")
    if state is None or state.status not in MEASURED:
        return why_absent(aggregate, "plain")
    at = reference_rate(aggregate, "ref_safe")
    if all(cell.rate_per_s != at for cell in rated_cells(aggregate, "a", "plain")):
        return f"plain has no usable cell {where}"
    return f"plain has no decoding steps {where}"


def _decoding_steps(aggregate: Aggregate, config: str) -> int:
    """In its cell of Phase A at ref_safe; none where that is lost or unrecorded."""
    at = reference_rate(aggregate, "ref_safe")
    cells = [cell for cell in rated_cells(aggregate, "a", config) if cell.rate_per_s == at]
    return sum(steps.by_kind.decode_only.n for cell in cells if (steps := cell.steps) is not None)


def _splits(aggregate: Aggregate) -> dict[str, _Split]:
    entries = in_order(aggregate, aggregate.attribution)
    return {e.config: split for e in entries if (split := _split(e)) is not None}


def _split(entry: Attribution) -> _Split | None:
    """None where the whole or a part of it has no number."""
    difference, share = entry.difference_us.interval, entry.in_hooks_share
    parts = {p.part: value for p in entry.parts if (value := p.interval) is not None}
    if difference is None or set(parts) != set(LOOKS):
        return None
    return _Split(difference, parts, entry.n_steps, None if share is None else share.interval)


def _stack(axes: Axes, row: int, split: _Split) -> list[float]:
    """Parts above zero stack to the right, those below to the left; the marker is their sum."""
    right = left = 0.0
    for part, (colour, hatch, _) in LOOKS.items():
        width = split.parts[part].point
        axes.barh(row, width, left=right if width >= 0 else left, height=0.5,
                  linewidth=stroke(0.6), **_face(colour, hatch))  # fmt: skip
        right, left = right + max(width, 0.0), left + min(width, 0.0)
    whole = split.difference
    error_bar(axes, row, whole, horizontal=True, colour="#111111")
    axes.plot([whole.point], [row], "D", color="#111111", markersize=stroke(4.5), zorder=5)
    ends = [right, left, *(e for e in (whole.low, whole.high, whole.point) if e is not None)]
    axes.annotate(microseconds(whole.point), (max(ends), row), xytext=(7, 0), textcoords="offset points", va="center",
                  fontsize=type_size(8.5))  # fmt: skip
    return ends


def _face(colour: str, hatch: str) -> dict[str, Any]:
    return {"facecolor": colour, "edgecolor": "#FFFFFF", "hatch": hatch}


def _rows(splits: Mapping[str, _Split]) -> list[Row]:
    return [
        {"config": config, "part": part, "us_per_step": v.point, "low": v.low, "high": v.high}
        for config, split in splits.items()
        for part, v in [*split.parts.items(), ("total", split.difference)]
    ]
