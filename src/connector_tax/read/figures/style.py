"""The look of all figures: a colour and a marker per configuration, axes, keys and files; and titles and
captions, made from codes and the words of ``labels.yaml``.

Colours are Okabe and Ito's (2008), distinct with any common colour vision; markers carry the same information
in grey. Both are fixed per id, so a configuration looks the same in every figure of every campaign. The same
code draws for the report's page and for papers; a ``Form`` sets width and type size.
"""

import hashlib
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ticker import AutoLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from connector_tax.base.documents.aggregate import Aggregate, Interval, MeasuredCell, TaxRow
from connector_tax.base.records.cell import is_repeat, phase_word
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.words import (
    MINUS,
    blocks_of,
    label,
    listing,
    phase_a_shape,
    problem_text,
    source_note,
)

# A row of the CSV beside a figure.
Row = dict[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Form:
    """A medium of figures: the report's page, or one or two columns of a paper.

    Attributes:
        suffix: of the files' names.
        width: inches; None: as the figure asks.
        tallness: height relative to the page's.
        text: type size, points.
        formats: suffixes of the files.
        titled: the title is above the picture; a paper has it in the caption.
        narrow: panels are stacked vertically.
        mark: marker size, points.
    """

    suffix: str = ""
    width: float | None = None
    tallness: float = 1.0
    text: float = 10.0
    formats: tuple[str, ...] = ("svg", "png")
    titled: bool = True
    narrow: bool = False
    mark: float = 5.0

    @property
    def small(self) -> float:
        """Return Matplotlib's "small" in points: ticks, keys and notes."""
        return self.text * 0.833


PAGE = Form()
_PAPER: dict[str, Any] = {"text": 8.0, "mark": 3.5, "formats": ("pdf", "svg"), "titled": False}
FORMS = {
    "page": (PAGE,),
    "paper": (
        Form("_1col", width=3.4, tallness=0.45, narrow=True, **_PAPER),
        Form("_2col", width=7.0, tallness=0.7, **_PAPER),
    ),
}
FORM: ContextVar[Form] = ContextVar("FORM", default=PAGE)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A finished picture with title, caption and the numbers in it."""

    figure: Figure
    title: str
    caption: str
    data_rows: list[Row]


@dataclass(frozen=True, slots=True)
class Omitted:
    """A reason why there is no picture."""

    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    colour: str
    marker: str


_LOOKS = {
    "plain": Look("#000000", "o"),
    "noop_connector": Look("#7F7F7F", "s"),
    "mooncake_producer": Look("#56B4E9", "^"),
    "mooncake_consumer": Look("#009E73", "v"),
    "mooncake_both": Look("#D55E00", "D"),
    "nixl_both": Look("#0072B2", "P"),
    "lmcache_only": Look("#E69F00", "X"),
    "multi_mooncake_lmcache": Look("#CC79A7", "*"),
    "example_connector": Look("#8C6D31", "<"),
    "decode_bench": Look("#5E4FA2", ">"),
    "multi_noop_example": Look("#A6761D", "h"),
    "nixl_cpu": Look("#3A6EA5", "8"),
    "nixl_virtual": Look("#0072B2", "P"),
    "multi_mooncake_nixl": Look("#CC79A7", "*"),
    "offloading": Look("#1B7837", "d"),
    "simple_cpu_offload": Look("#762A83", "H"),
}
_OTHER_COLOURS = ("#1B7837", "#762A83", "#B2182B", "#35978F", "#BF812D", "#4D4D4D", "#C51B7D", "#2166AC")
_OTHER_MARKERS = ("8", "d", "H", "^", "v", "<", ">", "s", "D", "p", "P")

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # ships with Matplotlib: the same glyphs on every machine
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,  # TrueType, which can be searched and edited; Type 3 is refused by many a publisher
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "text.parse_math": False,  # a `$` in a connector's label is a dollar sign
    "xtick.labelsize": "small",
    "ytick.labelsize": "small",
}


def look_of(config_id: str) -> Look:
    """Return the look of an id: fixed for known ids, derived from the id alone for others."""
    if config_id in _LOOKS:
        return _LOOKS[config_id]
    digest = hashlib.sha256(config_id.encode()).digest()
    return Look(
        _OTHER_COLOURS[digest[0] % len(_OTHER_COLOURS)], _OTHER_MARKERS[digest[1] % len(_OTHER_MARKERS)]
    )


def use_own_fonts() -> None:
    """Use the DejaVu files shipped with this Matplotlib.

    A host's build may number glyphs differently, and Matplotlib's font list, shared by a user's environments,
    may name only those.
    """
    shipped_fonts = {
        str(path) for path in Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVu*.ttf")
    }
    listed_fonts = {font.fname for font in fontManager.ttflist if font.name.startswith("DejaVu")}
    if (
        shipped_fonts and listed_fonts != shipped_fonts
    ):  # no files if a distribution replaced them with its own
        fontManager.ttflist = [f for f in fontManager.ttflist if not f.name.startswith("DejaVu")]
        for path in sorted(shipped_fonts):
            fontManager.addfont(path)


@contextmanager
def drawing_style(salt: str, form: Form = PAGE) -> Iterator[None]:
    """Configure Matplotlib for one figure; ``salt`` makes the ids inside its SVG repeatable.

    Settings start from the defaults, not from the user's ``matplotlibrc``, so that the bytes are the same on
    every machine.
    """
    use_own_fonts()
    token = FORM.set(form)
    try:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            sizes = {"font.size": form.text, "lines.markersize": form.mark}
            matplotlib.rcParams.update(_STYLE | sizes | {"svg.hashsalt": salt})
            yield
    finally:
        FORM.reset(token)


def new_figure(width: float, height: float, panels: int = 1) -> Figure:
    """Return an empty figure for the form in use.

    Args:
        width, height: of the panels on the page, inches.
        panels: number side by side on the page, stacked in one column of a paper.
    """
    form = FORM.get()
    height *= form.tallness * (panels if form.narrow else 1)
    figure = Figure(figsize=(form.width or width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def side_by_side(figure: Figure, n: int) -> list[Axes]:
    """Return panels with shared rows, stacked in one column of a paper."""
    shape = (n, 1) if FORM.get().narrow else (1, n)
    return list(figure.subplots(*shape, sharey=True, squeeze=False).flat)


def set_around(figure: Figure, title: str, note: str = "", legend: Sequence[Artist] = ()) -> None:
    """Add the title, and below the panels source note and legend, each with its own space."""
    form, width = FORM.get(), figure.get_figwidth()
    extra_lines = 0.0
    if form.titled:
        text = textwrap.wrap(title, int(width * 90 / form.text))
        extra_lines = 1.8 * len(text)
        figure.suptitle("\n".join(text), x=0.012, ha="left", fontsize="large", fontweight="bold")
    chars_per_line = int(width * 145 / form.text)
    # The handle of a key and the gap to the next one are as wide as eight letters.
    longest = max((len(str(handle.get_label())) for handle in legend), default=0) + 8
    columns = min(len(legend), max(1, chars_per_line // longest)) or 1
    notes = textwrap.wrap(note, chars_per_line)
    extra_lines += len(notes) + -(-len(legend) // columns)
    figure.set_figheight(figure.get_figheight() + 1.5 * extra_lines * form.small / 72)
    if notes or legend:
        legend_box = figure.legend(
            handles=list(legend),
            ncols=columns,
            title="\n".join(notes),
            loc="outside lower left",
            alignment="left",
            borderaxespad=0,
        )
        legend_box.get_title().set_color("#A02020")


def ends_of(value: Interval) -> list[float]:
    """Return the known numbers of an interval."""
    return [e for e in (value.low, value.point, value.high) if e is not None]


def error_bar(
    axes: Axes, position: float, value: Interval, *, horizontal: bool = False, colour: str = "#222222"
) -> None:
    """Draw the interval of one point; an open upper end is an arrow head on the point."""

    def draw(values: list[float], marker: str, zorder: float) -> None:
        across = [position] * len(values)
        x, y = (values, across) if horizontal else (across, values)
        size = 1.2 * FORM.get().mark
        axes.plot(x, y, marker=marker, markersize=size, linewidth=1.2, color=colour, zorder=zorder)

    # A line with caps as end marks; Axes.errorbar builds the same from four artists, ten times slower.
    draw([min(ends_of(value)), max(ends_of(value))], "|" if horizontal else "_", 3)
    if value.high is None and value.low is not None:
        draw([value.point], ">" if horizontal else "^", 4)


def rate_axis(axes: Axes, rates: Iterable[float]) -> None:
    """Make a base-2 logarithmic x axis with one tick per measured rate."""
    ticks = sorted(rates)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(ticks[0] / 1.35, ticks[-1] * 1.35)


def plain_log_axis(axes: Axes) -> None:
    """Make a logarithmic y axis labelled 20, 50, 100 rather than in powers."""
    axes.set_yscale("log")
    axes.margins(y=0.09)
    plain_numbers(axes.yaxis)


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 20, 50, 100, more densely if it spans few decades."""
    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if high > 30 * low else (1, 2, 3, 4, 6, 8)
    axis.set_major_locator(AutoLocator() if high < 3 * low else LogLocator(subs=subs))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(NullFormatter())


def percent_axis(axis: Axis) -> None:
    axis.set_major_formatter(lambda ratio, _: f"{100 * ratio:,.6g} %".replace("-", MINUS))


def write_behind(axes: Axes, y: float, ends: Sequence[float], text: str, colour: str = "#000000") -> None:
    """Write text to the right of a bar and its whisker."""
    annotation_style: Any = {
        "xytext": (6, 0),
        "textcoords": "offset points",
        "va": "center",
        "fontsize": "small",
    }
    axes.annotate(text, (max([0.0, *ends]), y), color=colour, **annotation_style)


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel of bars, one per row, whose x axis leaves space for whiskers and texts.

    Attributes:
        ends: positions that bars and whiskers reach.
        texts: texts behind them.
    """

    axes: Axes
    ends: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def interval(self, y: float, value: Interval, text: str, *, colour: str = "#222222") -> None:
        """Draw a whisker with text behind it."""
        error_bar(self.axes, y, value, horizontal=True, colour=colour)
        self.write(y, ends_of(value), text)

    def write(self, y: float, ends: Sequence[float], text: str) -> None:
        write_behind(self.axes, y, ends, text)
        self.ends.extend(ends)
        self.texts.append(text)

    def label(self, names: Sequence[str], label: str) -> None:
        """Lay out the axes: a row per name from the top, and an x axis over all ends."""
        axes, narrow = self.axes, FORM.get().narrow
        low, high = min([0.0, *self.ends]), max([0.0, *self.ends])
        span = max(high - low, 1e-6)
        room = 0.06 + (0.05 if narrow else 0.027) * max(map(len, self.texts), default=0)
        axes.set_xlim(low - span * (0.06 if low < 0 else 0.02), high + span * room)
        axes.axvline(0, color="#333333", linewidth=0.9)
        axes.xaxis.set_major_locator(MaxNLocator(3 if narrow else 6, steps=[1, 2, 5, 10]))
        if label.endswith("(%)"):
            percent_axis(axes.xaxis)
        axes.set_xlabel(label)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)


# No dates or versions: the same numbers give the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "connector-tax"},
    "png": {"Software": None},
    "pdf": {"Creator": "connector-tax", "Producer": None, "CreationDate": None},
}


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write the figure in every format of the form in use.

    The layout is fixed first: the solver's last bits differ between processes, and names inside an SVG depend
    on them.
    """
    figure.draw_without_rendering()
    positions = [(axes, axes.get_position(original=True)) for axes in figure.axes]
    figure.set_layout_engine("none")
    for axes, position in positions:
        axes.set_position([round(v, 6) for v in position.bounds])  # type: ignore[arg-type]
    form = FORM.get()
    for suffix in form.formats:
        file = folder / f"{name}{form.suffix}.{suffix}"
        figure.savefig(file, format=suffix, metadata=_METADATA[suffix])


# Statuses of configurations with at least one number.
MEASURED = ("measured", "partial")
# Longest list of names.
MOST_LISTED = 12
# The lists of a caption, by code.
Lists = Mapping[str, Sequence[str]]


def finished(
    aggregate: Aggregate,
    name: str,
    figure: Figure,
    data_rows: list[Row],
    *,
    lists: Lists,
    taxes: Sequence[TaxRow] = (),
    n: Iterable[int] = (),
    legend: Sequence[Artist] = (),
    rate_per_s: float | None = None,
    shape: bool = True,
) -> Drawn:
    """Add title, keys and source to the panels, and write the caption.

    Args:
        lists: configurations left out, or from other launches than the rest.
        taxes: those drawn; the caption has their number of observations and saturated sides.
        n: observations behind each number, if these are no taxes.
        rate_per_s: the figure's only rate; None if it has several.
        shape: the figure covers only Phase A's shape.
    """
    title = label("title", name)
    if rate_per_s is not None:
        title += label("condition", "rate").format(rate=rate_per_s)
    if shape and (lengths := phase_a_shape(aggregate)) is not None:
        title += label("condition", "shape").format(input=lengths[0], output=lengths[1])
    caption = label("caption", name).format(
        confidence=100 * aggregate.provenance.confidence,
        n=span(n or [tax.n for tax in taxes]),
        n_plain=span(tax.n_plain for tax in taxes),
    )
    for code, names in {**lists, **(saturated(aggregate, taxes) if taxes else {})}.items():
        if names:
            caption += " " + label("listed", code).format(listing(names, MOST_LISTED))
    set_around(figure, title, source_note(aggregate), legend)
    return Drawn(figure, title, caption, data_rows)


def omitted(code: str, **values: Any) -> Omitted:
    return Omitted(label("omitted", code).format(**values))


def span(counts: Iterable[int]) -> str:
    """Format the range of the counts: ``"200 to 1,920"``."""
    known = [n for n in counts if n]
    ends = [min(known), max(known)] if known else []
    return " to ".join(dict.fromkeys(f"{n:,}" for n in ends)) or "unknown"


def launches(taxes: Sequence[TaxRow]) -> Lists:
    """List the taxes' numbers of blocks, taxes of one launch beside them, and those outside Phase A."""
    blocks = sorted({n for tax in taxes if (n := blocks_of(tax)) is not None})
    phase_of_one_launch = {tax.config: str(tax.phase) for tax in taxes if blocks_of(tax) is None}
    return {
        "blocks": [*map(str, blocks)],
        "once": list(phase_of_one_launch) if blocks else [],
        "other_phase": [
            f"{c} (phase {phase_word(p)})" for c, p in phase_of_one_launch.items() if p not in ("a", "None")
        ],
    }


def saturated(aggregate: Aggregate, taxes: Iterable[TaxRow]) -> Lists:
    """List which sides of these taxes were saturated."""
    saturated_configs = {
        "plain" if side == "plain" else tax.config for tax in taxes for side in tax.overloaded
    }
    return {"saturated": [c for c in aggregate.config_ids if c in saturated_configs]}


def not_shown(
    aggregate: Aggregate,
    phase: str,
    drawn: Collection[str] | None = None,
    *,
    taxes: Iterable[TaxRow] = (),
    rate_per_s: float | None = None,
    among: Collection[str] | None = None,
    every: bool = False,
) -> Lists:
    """List what is not in the picture: skipped configurations, those without a number, and unusable cells.

    Args:
        drawn: configurations with a number in the figure; None if the figure names the others itself.
        taxes: those drawn; a tax over blocks also counts its blocks' cells, a tax of another phase that
            phase's.
        rate_per_s: the figure's rate; None if it has several.
        among: configurations that the figure covers; None: all.
        every: plain vLLM belongs in the picture, too.
    """
    status = {c: aggregate.configs[c].status for c in aggregate.config_ids if among is None or c in among}
    blocks = {cell.phase for cell in aggregate.cells if cell.phase in ("a", "b") or is_repeat(cell.phase)}
    shown_loads = {
        (tax.rate_per_s, tax.shape, place)
        for tax in taxes
        for place in ([str(tax.phase)] if tax.of_one_launch else blocks)
    }
    cells = [
        f"{cell.config} {'' if cell.phase == phase else f'{cell.phase}/'}{cell.cell_id} "
        f"({'; '.join(map(problem_text, cell.reasons)) or label('listed', 'unreadable')})"
        for cell in aggregate.cells
        if (cell.phase == phase or (cell.rate_per_s, cell.shape, cell.phase) in shown_loads)
        and not isinstance(cell, MeasuredCell)
        and cell.recorded
        and rate_per_s in (None, cell.rate_per_s)
        and (among is None or cell.config in among)
    ]
    measured_configs = [c for c, s in status.items() if s in MEASURED and (every or is_connector(c))]
    return {
        "absent": [f"{c} ({s})" for c, s in status.items() if s not in MEASURED],
        "no_number": [] if drawn is None else [c for c in measured_configs if c not in drawn],
        "excluded": cells,
    }
