"""Figure 7: what of each tax the framework explains (the no-op connector's tax) and what the connector adds."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from connector_tax.figures.lookup import (
    Aggregate,
    Interval,
    interval,
    label_of,
    main_taxes,
    number,
    reference_rate,
    source_note,
    why_absent,
)
from connector_tax.figures.style import (
    Drawn,
    Omitted,
    error_bar,
    look_of,
    microsecond_ticks,
    new_figure,
    percent_ticks,
    set_claim,
)
from connector_tax.figures.words import (
    clean,
    counted,
    left_out,
    microseconds,
    percent,
    rate,
    short_label,
    signed,
)

NOOP = "noop_connector"
METRICS = {
    "ttft_p90": ("ratio", "tax of TTFT p90 against plain (%)"),
    "step_p50_us": ("us", "tax of the median step against plain (µs)"),
}
Taxes = dict[str, Interval]


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    if not aggregate.get("step_timing_available"):
        reason = str(aggregate.get("step_timing_reason") or "the step-timing patch was not active")
        return Omitted(
            f"step times were not recorded ({reason}); the taxes as single numbers are in Figure 4"
        )
    raw = {m: main_taxes(aggregate, metric=m, reference="ref_safe") for m in METRICS}
    taxes = {
        m: {c: v for c, r in found.items() if (v := interval(r)) is not None} for m, found in raw.items()
    }
    taxes = {m: found for m, found in taxes.items() if NOOP in found and len(found) > 1}
    if not taxes:
        if not any(NOOP in found for found in raw.values()):
            return Omitted(f"there is no tax of the framework alone: {why_absent(aggregate, NOOP)}")
        return Omitted("no connector beside the no-op one has a tax at ref_safe")
    order = list(dict.fromkeys(c for found in taxes.values() for c in found if c != NOOP))

    figure = new_figure(10.4, max(3.2, 1.9 + 0.46 * (len(order) + 1)))
    panels = figure.subplots(1, len(taxes), sharey=True, squeeze=False)[0]
    for axes, (metric, found) in zip(panels, taxes.items(), strict=True):
        _panel(axes, metric, found, order)
    names = [NOOP, *order]
    panels[0].set_yticks(range(len(names)), [short_label(label_of(aggregate, c)) for c in names])
    panels[0].set_ylim(len(names) - 0.45, -0.55)
    legend = [
        Patch(facecolor=look_of(NOOP).colour, label="framework: tax of the no-op connector"),
        Patch(facecolor="#FFFFFF", edgecolor="#333333", hatch="////", label="implementation: the rest"),
        Line2D(
            [], [], color="#111111", marker="|", markersize=9, linewidth=1.2, label="whole tax, 95 % interval"
        ),
    ]
    title = _title(aggregate, taxes)
    set_claim(figure, title, source_note(aggregate), legend)
    return Drawn(figure, title, _caption(aggregate, taxes, raw), _rows(taxes))


def _panel(axes: Axes, metric: str, taxes: Taxes, order: list[str]) -> None:
    unit, axis_label = METRICS[metric]
    framework = taxes[NOOP].point
    ends = [0.0]
    for row, config in enumerate([NOOP, *order]):
        value = taxes.get(config)
        if value is None:
            axes.annotate("not available", (0, row), xytext=(6, 0), textcoords="offset points", va="center",
                          fontsize=8, color="#666666")  # fmt: skip
            continue
        axes.barh(row, framework, height=0.62, color=look_of(NOOP).colour)
        if config != NOOP:
            # Narrower, so that a negative rest, which runs back over the framework's part, stays visible.
            axes.barh(
                row, value.point - framework, left=framework, height=0.62 if value.point >= framework else 0.36,
                facecolor="#FFFFFF", edgecolor=look_of(config).colour, hatch="////", linewidth=1.2,
            )  # fmt: skip
        error_bar(axes, row, value, horizontal=True, colour="#111111")
        axes.plot([value.point], [row], "|", color="#111111", markersize=13, markeredgewidth=1.6)
        ends += [e for e in (value.low, value.high, value.point, framework) if e is not None]
        right = max(e for e in (value.high, value.point, framework, 0.0) if e is not None)
        axes.annotate(signed(value.point, unit), (right, row), xytext=(7, 0), textcoords="offset points", va="center",
                      fontsize=8.5)  # fmt: skip
    span = max(max(ends) - min(ends), 1e-6)
    axes.set_xlim(min(ends) - span * (0.06 if min(ends) < 0 else 0.015), max(ends) + span * 0.25)
    axes.axvline(0, color="#333333", linewidth=0.9)
    axes.xaxis.set_major_formatter(FuncFormatter(percent_ticks if unit == "ratio" else microsecond_ticks))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(axis_label)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _title(aggregate: Aggregate, taxes: Mapping[str, Taxes]) -> str:
    """The framework's tax, as a share of the largest one where that one is above zero."""
    metric, found = next(iter(taxes.items()))
    framework = found[NOOP].point
    unclear = found[NOOP].covers_zero
    what = "TTFT p90" if metric == "ttft_p90" else "the median step"
    amount = percent(framework) if metric == "ttft_p90" else microseconds(framework)
    worst = max((c for c in found if c != NOOP), key=lambda c: found[c].point)
    whole = found[worst]
    if whole.low is None or whole.low <= 0:
        if unclear:
            return f"No tax on {what} is told apart from zero, neither the framework's nor a connector's"
        return (
            f"The framework alone adds {amount} to {what}; no connector's whole tax is told apart from zero"
        )
    if unclear:
        total = percent(whole.point) if metric == "ttft_p90" else microseconds(whole.point)
        name = clean(label_of(aggregate, worst), 40)
        return f"The framework alone adds nothing to {what} that is told apart from zero; {name} adds {total}"
    share = framework / whole.point
    total = percent(whole.point) if metric == "ttft_p90" else microseconds(whole.point)
    return (
        f"The framework alone adds {amount} to {what}, {abs(share) * 100:.0f} % of the {total} of "
        f"{clean(label_of(aggregate, worst), 40)}"
        if share >= 0
        else f"The framework alone adds {amount} to {what}; {clean(label_of(aggregate, worst), 40)} adds {total}"
    )


def _caption(aggregate: Aggregate, taxes: Mapping[str, Taxes], raw: Mapping[str, Mapping[str, Any]]) -> str:
    at = reference_rate(aggregate, "ref_safe")
    requests = [
        int(n) for row in raw["ttft_p90"].values() for k in ("n", "n_plain") if (n := number(row.get(k)))
    ]
    counts = [counted(requests)] if "ttft_p90" in taxes else []
    steps = [int(n) for row in raw["step_p50_us"].values() if (n := number(row.get("n")))]
    if "step_p50_us" in taxes and steps:
        counts.append(f"n = {min(steps):,} to {max(steps):,} steps")
    dropped = [m for m in METRICS if m not in taxes]
    parts = [
        f"At ref_safe{f' ({rate(at)})' if at is not None else ''}: framework = tax(no-op connector), "
        "implementation = tax(connector) - tax(no-op connector).",
        f"Whiskers are the 95 % interval of the whole tax; the split itself has no interval; {'; '.join(counts)}.",
        "A narrow bar that runs backwards is a connector cheaper than the no-op one."
        if any(v.point < found[NOOP].point for found in taxes.values() for c, v in found.items() if c != NOOP)
        else "",
        f"Panel left out for want of data: {', '.join(dropped)}." if dropped else "",
        left_out(aggregate, "a"),
    ]
    return " ".join(p for p in parts if p)


def _rows(taxes: Mapping[str, Taxes]) -> list[dict[str, Any]]:
    return [
        {
            "config": config,
            "metric": metric,
            "unit": METRICS[metric][0],
            "tax": value.point,
            "low": value.low,
            "high": value.high,
            "framework": found[NOOP].point,
            "implementation": value.point - found[NOOP].point,
        }
        for metric, found in taxes.items()
        for config, value in found.items()
    ]
