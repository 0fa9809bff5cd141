"""For what a figure is drawn: the report's page, a paper's column or page width, or a slide.

A figure is drawn by the same code in every form. The form says how wide it is, how large its type and its marks are, whether the claim stands
above the picture, and whether lines are named where they end. The page's sizes are those that the figures' code names.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

Purpose = Literal["page", "paper", "slides"]
# The page's, which all others are given by.
PAGE_TEXT = 9.5
# A paper's page holds no taller figure, inches.
MOST_HEIGHT = 9.5
# What the page spends on the claim above the picture, inches.
PAGE_CLAIM = 0.5


@dataclass(frozen=True, slots=True)
class Form:
    """
    Attributes:
        suffix: of the files' names.
        width, height: inches; None: as the figure asks.
        text: size of type, points; tick labels and keys are a little smaller.
        least: no type is smaller, points.
        strokes: lines and marks, against the page's.
        tallness: inches of height for one of the page's, where only the width is fixed.
        formats: suffixes of the files.
        claim: whether the title stands above the picture; else it is in the captions alone.
        narrow: panels stand below each other, and keys below the panels.
        settings: Matplotlib's, beside those that follow from the above.
    """

    purpose: Purpose
    suffix: str = ""
    width: float | None = None
    height: float | None = None
    text: float = PAGE_TEXT
    least: float = 0.0
    strokes: float = 1.0
    tallness: float = 1.0
    formats: tuple[str, ...] = ("svg", "png")
    claim: bool = True
    narrow: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_page(self) -> bool:
        return self.purpose == "page"

    @property
    def small(self) -> float:
        """Of tick labels, keys and notes, points."""
        return self.type_size(8.5)

    def type_size(self, points: float) -> float:
        """What is ``points`` large on the page."""
        return points if self.is_page else max(self.least, points * self.text / PAGE_TEXT)

    def size(self, width: float, height: float, narrow: float, *, exact: bool = False) -> tuple[float, float]:
        """Of a figure that is ``width`` by ``height`` on the page, and ``narrow`` high in one column; inches.

        Args:
            exact: ``height`` is that of this form already.
        """
        if self.width is None:
            return width, height
        if self.height is not None:
            return self.width, self.height
        if exact:
            return self.width, height
        return self.width, narrow if self.narrow else (height - PAGE_CLAIM) * self.tallness

    def rc(self) -> dict[str, Any]:
        """Matplotlib's settings that differ from the page's."""
        if self.is_page:
            return {}
        ticks = {
            f"{axis}.{key}": value
            for axis in ("xtick", "ytick")
            for key, value in {
                "labelsize": self.small,
                "major.size": 3.5 * self.strokes,
                "major.width": 0.8 * self.strokes,
                "minor.size": 2 * self.strokes,
                "minor.width": 0.6 * self.strokes,
            }.items()
        }
        return {
            "font.size": self.text,
            "axes.titlesize": self.text,
            "axes.labelsize": self.text,
            "axes.linewidth": 0.8 * self.strokes,
            "grid.linewidth": 0.6 * self.strokes,
            "hatch.linewidth": 0.6 * max(self.strokes, 0.8),
            "legend.fontsize": self.small,
            "legend.title_fontsize": self.small,
            "pdf.fonttype": 42,  # TrueType, which can be searched and edited; Type 3 is refused by many a publisher
            **ticks,
            **self.settings,
        }


PAGE = Form("page")
_PAPER: dict[str, Any] = {
    "text": 7.5,
    "least": 6.5,
    "formats": ("pdf", "svg"),
    "claim": False,
    "settings": {"figure.constrained_layout.w_pad": 0.02, "figure.constrained_layout.h_pad": 0.02},
}
ONE_COLUMN = Form("paper", "_1col", width=3.4, strokes=0.72, narrow=True, **_PAPER)
TWO_COLUMNS = Form("paper", "_2col", width=7.0, strokes=0.8, tallness=0.68, **_PAPER)
# 1920 by 1080 pixels.
SLIDE = Form(
    "slides",
    width=40 / 3,
    height=7.5,
    text=16,
    least=10,
    strokes=1.6,
    settings={"figure.dpi": 144, "savefig.dpi": 144},
)
FORMS: dict[Purpose, tuple[Form, ...]] = {
    "page": (PAGE,),
    "paper": (ONE_COLUMN, TWO_COLUMNS),
    "slides": (SLIDE,),
}

_IN_USE: ContextVar[Form] = ContextVar("_IN_USE", default=PAGE)


@contextmanager
def drawn_as(form: Form) -> Iterator[None]:
    token = _IN_USE.set(form)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def form_in_use() -> Form:
    return _IN_USE.get()


def type_size(points: float) -> float:
    """Of text that is ``points`` large on the page."""
    return form_in_use().type_size(points)


def stroke(points: float) -> float:
    """Of a line or mark that is ``points`` wide or large on the page."""
    form = form_in_use()
    return points if form.is_page else points * form.strokes
