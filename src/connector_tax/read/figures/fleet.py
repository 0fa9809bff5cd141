"""Draws the fleet's figure: share of requests that miss their SLO against load, per policy and size.

With one configuration, as from profiles, policies are the lines. Reads ``fleet.json``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from connector_tax.base.documents.aggregate import Interval
from connector_tax.base.documents.fleet import Fleet
from connector_tax.read.figures.style import drawing_style, error_bar, look_of, new_figure, save, set_around
from connector_tax.read.figures.words import clean, label, short_label

NAME = "fleet"
ROUTER_LOOKS = {
    "random_push": ("#333333", "o"),
    "least_load_push": ("#E69F00", "s"),
    "least_load_pull": ("#0072B2", "^"),
    "binpack_pull": ("#CC79A7", "D"),
}


def draw_fleet(fleet: Fleet, folder: Path) -> None:
    """Write ``fleet.svg`` and ``fleet.png`` into ``folder``."""
    rows = fleet.fleets
    sizes = list(dict.fromkeys(r.instances for r in rows))
    of_profiles = len({r.config for r in rows}) == 1
    panels = [""] if of_profiles else list(dict.fromkeys(r.policy for r in rows))
    # Policies' lines: routers by colour and marker, queues by dashes.
    lines: dict[str, dict[str, Any]] = {}
    for r in rows:
        look = look_of(r.config)
        colour, marker = ROUTER_LOOKS[r.router] if of_profiles else (look.colour, look.marker)
        dashed = of_profiles and r.queue == "by_pattern"
        lines[r.policy if of_profiles else r.config] = {
            "color": colour,
            "marker": marker,
            "linestyle": "--" if dashed else "-",
        }
    with drawing_style(NAME):
        figure = new_figure(3.6 + 3.1 * len(sizes), 1.0 + 2.5 * len(panels))
        grid = figure.subplots(len(panels), len(sizes), squeeze=False, sharex=True, sharey=True)
        for axes_row, policy in zip(grid, panels, strict=True):
            for axes, n in zip(axes_row, sizes, strict=True):
                for position, (name, style) in enumerate(lines.items()):
                    points = sorted(
                        (
                            (r.load, missed, r.keeps_up)
                            for r in rows
                            if name in (r.policy, r.config)
                            and (r.instances, policy or r.policy) == (n, r.policy)
                            and (missed := r.missed) is not None
                        ),
                        key=lambda point: point[0],
                    )
                    # A small shift keeps whiskers from overlapping.
                    x_offset = 0.006 * (position - (len(lines) - 1) / 2)
                    axes.plot(
                        [load + x_offset for load, *_ in points],
                        [m.point for _, m, _ in points],
                        **{**style, "marker": ""},
                    )
                    for load, m, keeps_up in points:
                        error_bar(
                            axes, load + x_offset, Interval(m.point, m.low, m.high), colour=style["color"]
                        )
                        face = style["color"] if keeps_up else "white"
                        axes.plot(load + x_offset, m.point, markerfacecolor=face, zorder=4, **style)
                size = f"{n} instance{'s' if n > 1 else ''}"
                axes.set_title(", ".join(filter(None, (size, policy))), fontsize="small")
                axes.set_ylim(-0.03, 1.03)
                axes.set_xticks(sorted({r.load for r in rows}))
                axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
            axes_row[0].set_ylabel("requests that miss their SLO")
        for axes in grid[-1]:
            axes.set_xlabel("offered load" if of_profiles else "offered load (1: plain at its profile)")
        legend: list[Artist] = [
            Line2D([], [], label=short_label(name), **style) for name, style in lines.items()
        ]
        legend.append(
            Line2D(
                [],
                [],
                color="#555555",
                marker="o",
                markerfacecolor="white",
                linestyle="",
                label="does not keep up",
            )
        )
        set_around(figure, label("title", NAME), _note(fleet.notes, of_profiles), legend)
        save(figure, folder, NAME)


def _note(notes: Sequence[str], of_profiles: bool) -> str:
    """Return the note: fleets are modelled, the first short note, and how many more there are."""
    parts = [] if of_profiles else ["Modelled fleets, not measured ones"]
    short = [clean(n) for n in notes if len(n) <= 60][:1]
    more = len(notes) - len(short)
    parts += short + ([f"{more} note{'s' if more > 1 else ''} in fleet.json"] if more else [])
    return "; ".join(parts)
