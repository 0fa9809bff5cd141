"""The one look of all figures: a colour, a marker and a hatch per configuration, and how files are written.

Colours are Okabe and Ito's (2008), which people with any common colour vision tell apart; markers and
hatches carry the same information in grey. Both are fixed per id, so a configuration looks the same in
every figure of every campaign.
"""

import hashlib
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.legend import Legend
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from connector_tax.base.documents.aggregate import Interval
from connector_tax.read.figures.forms import PAGE, Form, drawn_as, form_in_use, stroke
from connector_tax.read.figures.words import MINUS, TITLE_LIMIT, clean, hold_together, microseconds

# Of the CSV beside a figure.
Row = dict[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A finished picture, the sentence above it, the one below it, and the numbers in it."""

    figure: Figure
    title: str
    caption: str
    data_rows: list[Row]


@dataclass(frozen=True, slots=True)
class Omitted:
    """Why there is no picture."""

    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    colour: str
    marker: str
    hatch: str


_LOOKS = {
    "plain": Look("#000000", "o", ""),
    "noop_connector": Look("#7F7F7F", "s", ".."),
    "mooncake_producer": Look("#56B4E9", "^", "//"),
    "mooncake_consumer": Look("#009E73", "v", "\\\\"),
    "mooncake_both": Look("#D55E00", "D", "xx"),
    "nixl_both": Look("#0072B2", "P", "--"),
    "lmcache_only": Look("#E69F00", "X", "oo"),
    "multi_mooncake_lmcache": Look("#CC79A7", "*", "++"),
    "example_connector": Look("#8C6D31", "<", "||"),
    "decode_bench": Look("#5E4FA2", ">", "OO"),
    "multi_noop_example": Look("#A6761D", "h", "**"),
    "nixl_cpu": Look("#3A6EA5", "8", "\\|"),
    "nixl_virtual": Look("#0072B2", "P", "--"),
    "multi_mooncake_nixl": Look("#CC79A7", "*", "++"),
    "offloading": Look("#1B7837", "d", "//"),
    "simple_cpu_offload": Look("#762A83", "H", "oo"),
}
_OTHER_COLOURS = ("#1B7837", "#762A83", "#B2182B", "#35978F", "#BF812D", "#4D4D4D", "#C51B7D", "#2166AC")
_OTHER_MARKERS = ("8", "d", "H", "^", "v", "<", ">", "s", "D", "p", "P")
_OTHER_HATCHES = ("//", "\\\\", "||", "--", "++", "xx", "oo")

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # ships with Matplotlib: the same glyphs on every machine
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "text.parse_math": False,  # a `$` in a connector's label is a dollar sign
}
TITLE_SIZE = 12.0
# Of the bold title font; measured with the widest titles, so that none runs out of the picture.
CHARACTERS_PER_INCH = 9.0
# Of a slide; a longer title gets smaller type.
MOST_TITLE_LINES = 4


def look_of(config_id: str) -> Look:
    """Fixed for known ids; derived from the id itself for others, so it never depends on the company."""
    known = _LOOKS.get(config_id)
    if known is not None:
        return known
    digest = hashlib.sha256(config_id.encode()).digest()
    return Look(
        _OTHER_COLOURS[digest[0] % len(_OTHER_COLOURS)],
        _OTHER_MARKERS[digest[1] % len(_OTHER_MARKERS)],
        _OTHER_HATCHES[digest[2] % len(_OTHER_HATCHES)],
    )


def take_own_fonts() -> None:
    """Of DejaVu, the files that this Matplotlib ships: a host's may be another build, with other numbers of its glyphs, and Matplotlib's
    list of fonts, which all environments of a user share, may name those alone."""
    own = {str(path) for path in Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVu*.ttf")}
    listed = {font.fname for font in fontManager.ttflist if font.name.startswith("DejaVu")}
    if own and listed != own:  # none where a distribution put its own in their place
        fontManager.ttflist = [f for f in fontManager.ttflist if not f.name.startswith("DejaVu")]
        for path in sorted(own):
            fontManager.addfont(path)


@contextmanager
def drawing_style(salt: str, form: Form = PAGE) -> Iterator[None]:
    """Matplotlib's settings for one figure; ``salt`` makes the ids inside its SVG repeatable.

    They lie over the defaults and not over what a ``matplotlibrc`` of the user says, lest the same figure have other bytes elsewhere.
    """
    take_own_fonts()
    with drawn_as(form), matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE | form.rc() | {"svg.hashsalt": salt})
        yield


def new_figure(width: float, height: float, *, narrow: float | None = None, exact: bool = False) -> Figure:
    """
    Args:
        width, height: on the page, inches.
        narrow: height in one column of a paper, inches; default: as on the page.
        exact: ``height`` is that of the form in use, where it fixes none itself.
    """
    form = form_in_use()
    size = form.size(width, height, height if narrow is None else narrow, exact=exact)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def text_width(text: str, points: float) -> float:
    """Of one line of the figures' type, points."""
    font = FontProperties(family=_STYLE["font.family"], size=points)
    return float(text_to_path.get_text_width_height_descent(text, font, False)[0])


def side_by_side(figure: Figure, n: int) -> list[Axes]:
    """Panels with the same rows; in one column of a paper below each other."""
    if form_in_use().narrow:
        return list(figure.subplots(n, 1, squeeze=False)[:, 0])
    return list(figure.subplots(1, n, sharey=True, squeeze=False)[0])


def set_claim(figure: Figure, title: str, note: str = "", legend: Sequence[Artist] = ()) -> None:
    """The title, wrapped to the figure's width; below the panels a common legend and where the numbers are from."""
    if not form_in_use().is_page:
        _set_around(figure, form_in_use(), title, note, legend)
        return
    text = textwrap.fill(
        hold_together(clean(title, TITLE_LIMIT)),
        width=max(40, int(figure.get_figwidth() * CHARACTERS_PER_INCH)),
    )
    figure.suptitle(text, x=0.012, ha="left", fontsize=TITLE_SIZE, fontweight="bold")
    height = figure.get_figheight()
    note_share, legend_share = (0.24 / height if note else 0.0), (0.36 / height if legend else 0.0)
    engine = figure.get_layout_engine()
    if engine is not None and (note or legend):
        # Constrained layout would put a legend of its own accord over the note, so the room is set apart here.
        bottom = note_share + legend_share
        engine.set(rect=(0, bottom, 1, 1 - bottom))  # type: ignore[call-arg]
    if note:
        figure.text(0.012, 0.06 / height, note, fontsize=8.5, color="#A02020", va="bottom")
    if legend:
        place = (0.5, note_share)
        box = figure.legend(handles=list(legend), loc="lower center", ncols=len(legend), bbox_to_anchor=place)
        box.set_in_layout(False)


def _set_around(figure: Figure, form: Form, title: str, note: str, legend: Sequence[Artist]) -> None:
    """The same in another form than the page's: each part is as high as its lines need."""
    width = figure.get_figwidth()
    lines = textwrap.wrap(hold_together(note), _per_line(width, form.small, bold=False))
    of_note = 0.06 + len(lines) * 1.25 * form.small / 72 if lines else 0.0
    box, of_legend = _legend(figure, legend) if legend else (None, 0.0)
    if form.height is None:  # room of their own, beside that of the panels
        figure.set_figheight(figure.get_figheight() + of_note + of_legend)
    height = figure.get_figheight()
    bottom = (of_note + of_legend) / height
    if box is not None:
        box.set_bbox_to_anchor((0.5, of_note / height), figure.transFigure)
    if lines:
        figure.text(
            0.012, 0.03 / height, "\n".join(lines), fontsize=form.small, color="#A02020", va="bottom", linespacing=1.2
        )  # fmt: skip
    engine = figure.get_layout_engine()
    if engine is not None and bottom:
        engine.set(rect=(0, bottom, 1, 1 - bottom))  # type: ignore[call-arg]
    if form.claim:
        text = hold_together(clean(title, TITLE_LIMIT))
        sizes = [form.text * share for share in (1.25, 1.1, 1.0, 0.9)]
        fitting = (
            (size, wrapped)
            for size in sizes
            if len(wrapped := textwrap.wrap(text, _per_line(width, size, bold=True))) <= MOST_TITLE_LINES
        )
        size, found = next(fitting, (sizes[-1], textwrap.wrap(text, _per_line(width, sizes[-1], bold=True))))
        figure.suptitle("\n".join(found), x=0.012, ha="left", fontsize=size, fontweight="bold")
    _break_labels(figure)


def _break_labels(figure: Figure) -> None:
    """Before the unit, where the label of an axis is longer than the axis."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        box = axes.get_window_extent()
        for label, room in ((axes.xaxis.label, box.width), (axes.yaxis.label, box.height)):
            text, extent = label.get_text(), label.get_window_extent()
            if max(extent.width, extent.height) > room and " (" in text and "\n" not in text:
                label.set_text(text.replace(" (", "\n(", 1))


def _per_line(width: float, points: float, *, bold: bool) -> int:
    """Characters of type of this size that ``width`` inches hold."""
    widest = CHARACTERS_PER_INCH * TITLE_SIZE * (1.0 if bold else 1.25)
    return max(20, int(0.975 * width * widest / points))


def _legend(figure: Figure, legend: Sequence[Artist]) -> tuple[Legend, float]:
    """In as many columns as fit side by side, and its height in inches."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for columns in range(len(legend), 0, -1):
        box = figure.legend(
            handles=list(legend), loc="lower center", ncols=columns, bbox_to_anchor=(0.5, 0), borderpad=0.3,
            handletextpad=0.5, columnspacing=1.3, borderaxespad=0,
        )  # fmt: skip
        box.set_in_layout(False)
        extent = box.get_window_extent(renderer)
        if extent.width <= 0.99 * figure.bbox.width or columns == 1:
            break
        box.remove()
    return box, float(extent.height / figure.dpi)


def error_bar(
    axes: Axes, at: float, value: Interval, *, horizontal: bool = False, colour: str = "#222222"
) -> None:
    """The interval of one point; an open upper end is an arrow head on the point."""
    low = value.point if value.low is None else min(value.low, value.point)
    high = value.point if value.high is None else max(value.high, value.point)
    ends, here = [low, high], [at, at]
    # A line whose end marks are the caps; Axes.errorbar builds the same from four artists, ten times slower.
    style: Any = {
        "color": colour,
        "linewidth": stroke(1.2),
        "markersize": stroke(6),
        "markeredgewidth": stroke(1.2),
        "zorder": 3,
    }
    if horizontal:
        axes.plot(ends, here, marker="|", **style)
    else:
        axes.plot(here, ends, marker="_", **style)
    if value.high is None and value.low is not None:
        place = (value.point, at) if horizontal else (at, value.point)
        axes.plot(*place, marker=">" if horizontal else "^", color=colour, markersize=stroke(6), zorder=4)


def rate_axis(axes: Axes, rates: list[float]) -> None:
    """A base-2 logarithmic x axis with one tick per measured rate."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(rates)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(rates) / 1.35, max(rates) * 1.35)


def plain_log_axis(axes: Axes) -> None:
    """A logarithmic y axis labelled 20, 50, 100 rather than in powers."""
    axes.set_yscale("log")
    axes.margins(y=0.09)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    low, high = axes.get_ylim()
    wide = high / low > 30
    axes.yaxis.set_minor_formatter(
        NullFormatter() if high / low > 3000 else FuncFormatter(lambda v, _: _minor(v, wide))
    )


def _minor(value: float, wide: bool) -> str:
    leading = float(f"{value:.0e}".split("e")[0])
    wanted = (2, 5) if wide else (2, 3, 4, 5, 6, 8)
    return f"{value:,.10g}" if leading in wanted else ""


def percent_ticks(value: float, _position: object = None) -> str:
    return f"{MINUS if value < 0 else ''}{abs(value) * 100:,.6g} %"


def microsecond_ticks(value: float, _position: object = None) -> str:
    return microseconds(value).removesuffix(" µs") if value else "0"


# Without dates or versions: the same numbers give the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "connector-tax"},
    "png": {"Software": None},
    "pdf": {"Creator": "connector-tax", "Producer": None, "CreationDate": None},
}


def save(figure: Figure, folder: Path, name: str) -> list[str]:
    """A file of each format of the form in use; returns their names."""
    form = form_in_use()
    _settle(figure)
    names = {suffix: f"{name}{form.suffix}.{suffix}" for suffix in form.formats}
    for suffix, file in names.items():
        figure.savefig(folder / file, format=suffix, metadata=_METADATA[suffix])
    return list(names.values())


def _settle(figure: Figure) -> None:
    """Lay out for good. What the solver finds differs in its last bits from process to process, and names inside an SVG follow from them."""
    figure.draw_without_rendering()
    places = [(axes, axes.get_position(original=True)) for axes in figure.axes]
    figure.set_layout_engine("none")
    for axes, place in places:
        axes.set_position([round(v, 6) for v in place.bounds])  # type: ignore[arg-type]
