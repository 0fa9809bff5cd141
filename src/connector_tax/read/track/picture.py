"""One series as a picture: each campaign's tax with its interval, levels, changes, and what is no change."""

import base64
import io
import math
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from connector_tax.base.documents.history import ChangePoint, History, Point, Series
from connector_tax.read.figures.style import drawing_style, look_of, new_figure, percent_ticks, set_claim
from connector_tax.read.track.history import change_text, name_of
from connector_tax.read.track.series import can_be_judged, class_of

RISE, FALL, SUSPECTED = "#A02020", "#1B7837", "#8A5A00"
# Of dates below the axis.
MOST_TICKS = 9


def picture(history: History, series: Series) -> str:
    """An SVG as a data URI, where it runs no script and its ids meet no others."""
    salt = f"{series.config} {series.metric} {series.reference} {series.environment} {series.rate_per_s:g}"
    with drawing_style(salt):
        figure = new_figure(8.6, 3.3)
        axes = figure.subplots()
        _points(axes, series)
        for change in series.changes:
            _change(axes, series, change)
        _levels(axes, series)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.14 * (high - low))  # for what is written at changes
        axes.axhline(0, color="#222222", linewidth=0.8, zorder=1)
        axes.yaxis.set_major_formatter(FuncFormatter(percent_ticks))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylabel("tax")
        _dates(axes, history, series.points)
        set_claim(figure, title(history, series))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "connector-tax"})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def title(history: History, series: Series) -> str:
    """What is to be seen."""
    if not any(p.point is not None for p in series.points):
        return f"{name_of(series)}: no campaign has a number"
    if not series.changes:
        n = sum(p.point is not None for p in series.points)
        word = (
            "no change of level found"
            if can_be_judged(series.points, series.thresholds)
            else "too few campaigns to tell a change"
        )
        return f"{name_of(series)}: {word}, {n} campaign{'s' if n > 1 else ''}"
    told = [
        f"{'rose' if c.point > 0 else 'fell'} by {change_text(c)} on {history.campaigns[c.first].when[:10]}"
        + (", suspected" if c.status == "suspected" else "")
        + (", taken back since" if c.standing == "taken back" else "")
        for c in series.changes[-3:]
    ]
    return f"{name_of(series)}: {'; '.join(told)}"


def _points(axes: Axes, series: Series) -> None:
    look = look_of(series.config)
    for unlike in (False, True):
        own = [(k, p) for k, p in enumerate(series.points) if p.point is not None and p.unlike == unlike]
        if not own:
            continue
        at = [k for k, _ in own]
        values = [p.point or 0.0 for _, p in own]
        low = [v if p.low is None else p.low for (_, p), v in zip(own, values, strict=True)]
        high = [v if p.high is None else p.high for (_, p), v in zip(own, values, strict=True)]
        axes.vlines(at, low, high, color=look.colour, linewidth=1.1, alpha=0.35 if unlike else 0.7, zorder=2)
        face = "white" if unlike else look.colour
        axes.plot(
            at,
            values,
            linestyle="none",
            marker=look.marker,
            markersize=5,
            color=look.colour,
            markerfacecolor=face,
            zorder=3,
        )
        for ends, marker in ((("high", high), "^"), (("low", low), "v")):
            open_at = [(k, v) for (k, p), v in zip(own, ends[1], strict=True) if getattr(p, ends[0]) is None]
            if open_at:
                axes.plot(
                    *zip(*open_at, strict=True),
                    linestyle="none",
                    marker=marker,
                    markersize=7,
                    color=look.colour,
                    zorder=4,
                )
    lost = [k for k, p in enumerate(series.points) if p.point is None]
    if lost:
        # On the lower edge, whatever the scale is.
        axes.plot(
            lost,
            [0.02] * len(lost),
            linestyle="none",
            marker="x",
            color="#777777",
            markersize=6,
            transform=axes.get_xaxis_transform(),
            zorder=4,
        )


def _change(axes: Axes, series: Series, change: ChangePoint) -> None:
    colour = SUSPECTED if change.status == "suspected" else RISE if change.point > 0 else FALL
    places = [p.campaign for p in series.points]
    x = (places.index(change.first) + places.index(change.last_before)) / 2
    style = ":" if change.status == "suspected" else "-"
    axes.axvline(x, color=colour, linestyle=style, linewidth=1.4, zorder=1)
    right = x > 0.8 * len(places)
    axes.annotate(
        f"{change_text(change)}{' suspected' if change.status == 'suspected' else ''}",
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if right else 4, -2),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize=8.5,
        color=colour,
    )


def _levels(axes: Axes, series: Series) -> None:
    """The mean between changes, and around it what plain differs by from itself."""
    for threshold in series.thresholds:
        own = [
            (k, p.point)
            for k, p in enumerate(series.points)
            if p.point is not None and class_of(p) == threshold.kind
        ]
        cuts = [c.first for c in series.changes if c.kind == threshold.kind]
        campaigns = [series.points[k].campaign for k, _ in own]
        ends = [0, *(campaigns.index(c) for c in cuts), len(own)]
        for begin, end in pairwise(ends):
            part = own[begin:end]
            if not part:
                continue
            level = math.expm1(sum(math.log1p(v) for _, v in part) / len(part))
            x = (part[0][0] - 0.4, part[-1][0] + 0.4)
            axes.plot(x, (level, level), color="#222222", linewidth=1.6, zorder=2)
            room = (1 + level) * threshold.ratio
            axes.fill_between(
                x, level - room, level + room, color="#999999", alpha=0.18, linewidth=0, zorder=0
            )


def _dates(axes: Axes, history: History, points: Sequence[Point]) -> None:
    step = max(1, -(-len(points) // MOST_TICKS))
    at = list(range(0, len(points), step))
    axes.set_xticks(at, [history.campaigns[points[k].campaign].when[:10] for k in at], fontsize=8.5)
    axes.set_xlim(-0.7, len(points) - 0.3)
    axes.set_xlabel("campaign, by its first start")
