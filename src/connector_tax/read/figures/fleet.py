"""The fleet's figure: share of requests that miss their SLO against load, a panel for each policy and size.

With one configuration, as where profiles are given, policies are the lines. Reads ``fleet.json``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from connector_tax.base.documents.aggregate import Interval
from connector_tax.base.documents.fleet import Fleet, FleetRow, Mean
from connector_tax.read.figures.labels import label
from connector_tax.read.figures.style import drawing_style, error_bar, look_of, new_figure, save, set_claim
from connector_tax.read.figures.words import clean, short_label

NAME = "fleet"
ROUTER_LOOKS = {
    "random_push": ("#333333", "o"),
    "least_load_push": ("#E69F00", "s"),
    "least_load_pull": ("#0072B2", "^"),
    "binpack_pull": ("#CC79A7", "D"),
}
DASHES = (0, (4, 2))


@dataclass(frozen=True, slots=True)
class _Line:
    """How one configuration or policy is drawn; ``rows`` are its own, in every panel."""

    label: str
    colour: str
    marker: str
    dashed: bool
    rows: tuple[FleetRow, ...]

    @property
    def style(self) -> dict[str, Any]:
        return {"color": self.colour, "linewidth": 1.3, "linestyle": DASHES if self.dashed else "-"}

    def example(self) -> Line2D:
        return Line2D([], [], marker=self.marker, label=self.label, **self.style)


def draw_fleet(fleet: Fleet, folder: Path) -> None:
    """Write ``fleet.svg`` and ``fleet.png`` into ``folder``."""
    rows = fleet.fleets
    sizes = list(dict.fromkeys(r.instances for r in rows))
    policies = list(dict.fromkeys(r.policy for r in rows))
    of_profiles = len({r.config for r in rows}) == 1
    lines = _by_policy(rows) if of_profiles else _by_config(rows)
    panels = [""] if of_profiles else policies
    with drawing_style(NAME):
        figure = new_figure(3.6 + 3.1 * len(sizes), 1.4 + 2.5 * len(panels))
        grid = figure.subplots(len(panels), len(sizes), squeeze=False, sharex=True, sharey=True)
        for axes_row, policy in zip(grid, panels, strict=True):
            for axes, n in zip(axes_row, sizes, strict=True):
                _panel(axes, lines, n, policy)
                axes.set_title(", ".join(filter(None, (_size(n), policy))), fontsize=9.5)
            axes_row[0].set_ylabel("requests that miss their SLO")
        for axes in grid[-1]:
            axes.set_xlabel("offered load" if of_profiles else "offered load (1: plain at its profile)")
        piling = Line2D(
            *([], []),
            color="#555555",
            marker="o",
            markerfacecolor="white",
            linestyle="",
            label="does not keep up",
        )
        handles = [*(line.example() for line in lines), piling]
        grid[0][-1].legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1.0))
        set_claim(figure, label("title", "fleet"), _note(fleet.notes, of_profiles))
        save(figure, folder, NAME)


def _note(notes: Sequence[str], of_profiles: bool) -> str:
    """One line: what fits below a narrow figure, and how much more there is to read."""
    parts = [] if of_profiles else ["Modelled fleets, not measured ones"]
    short = [clean(n) for n in notes if len(n) <= 60][:1]
    more = len(notes) - len(short)
    parts += short + ([f"{more} note{'s' if more > 1 else ''} in fleet.json"] if more else [])
    return "; ".join(parts)


def _by_config(rows: Sequence[FleetRow]) -> list[_Line]:
    found = []
    for config in dict.fromkeys(r.config for r in rows):
        look = look_of(config)
        own = tuple(r for r in rows if r.config == config)
        found.append(_Line(short_label(config), look.colour, look.marker, False, own))
    return found


def _by_policy(rows: Sequence[FleetRow]) -> list[_Line]:
    """Routers by colour and marker, queues by dashes."""
    found = []
    for policy in dict.fromkeys(r.policy for r in rows):
        own = tuple(r for r in rows if r.policy == policy)
        dashed = own[0].queue == "by_pattern"
        found.append(_Line(policy, *ROUTER_LOOKS[own[0].router], dashed, own))
    return found


def _panel(axes: Axes, lines: Sequence[_Line], n: int, policy: str) -> None:
    for position, line in enumerate(lines):
        own = sorted(
            (r for r in line.rows if r.instances == n and policy in ("", r.policy) and r.missed is not None),
            key=lambda r: r.load,
        )
        # Set apart a little, so that whiskers can be told apart.
        aside = 0.006 * (position - (len(lines) - 1) / 2)
        xs = [r.load + aside for r in own]
        missed = [_known(r) for r in own]
        axes.plot(xs, [m.point for m in missed], **line.style)
        for x, row, m in zip(xs, own, missed, strict=True):
            error_bar(axes, x, Interval(m.point, m.low, m.high), colour=line.colour)
            face = line.colour if row.keeps_up else "white"
            axes.plot(
                x,
                m.point,
                marker=line.marker,
                color=line.colour,
                markerfacecolor=face,
                markersize=5.5,
                zorder=4,
            )
    axes.set_ylim(-0.03, 1.03)
    axes.set_xticks(sorted({r.load for line in lines for r in line.rows}))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: _percent(share)))


def _known(row: FleetRow) -> Mean:
    """Of a row with requests: the share that misses its SLO."""
    assert row.missed is not None, "rows without requests are left out"
    return row.missed


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _size(n: int) -> str:
    return f"{n} instance{'s' if n > 1 else ''}"
