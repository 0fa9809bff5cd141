"""Draws figures in any form, renders them as grey pixels, and measures how far two differ."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import FORMS, Drawn, Form, Omitted, drawing_style

sys.path.insert(0, str(Path(__file__).parent))

BASELINES = Path(__file__).parent / "data" / "figures"
EVERY_FORM = [form for forms in FORMS.values() for form in forms]
# Pixels per inch for comparison: small type is five pixels high.
DPI = {"page": 50, "paper": 80}
# Side of the compared squares in pixels: another label changes few squares, but those by much.
SQUARE = 12
# Largest root mean square difference in a square; black to white is 1. The same letters with other edges are
# below it and swapped labels above it, in each figure; tests assert both.
TOLERANCE = 0.12


def purpose_of(form: Form) -> str:
    return next(purpose for purpose, forms in FORMS.items() if form in forms)


def form_name(form: Form) -> str:
    return purpose_of(form) + form.suffix


def drawn(name: str, aggregate: dict[str, Any], form: Form) -> Drawn | Omitted:
    with drawing_style(name + form.suffix, form):
        return FIGURES[name](aggregate_of(aggregate))


def grey(name: str, aggregate: dict[str, Any], form: Form) -> np.ndarray:
    """Return the luma of each pixel, 0 to 1."""
    with drawing_style(name + form.suffix, form):
        result = FIGURES[name](aggregate_of(aggregate))
        assert isinstance(result, Drawn), result
        result.figure.set_dpi(DPI[purpose_of(form)])
        canvas = FigureCanvasAgg(result.figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3] / 255
    return np.asarray(pixels @ [0.299, 0.587, 0.114])


def baseline(name: str, form: Form) -> Path:
    return BASELINES / f"{form_name(form)}_{name}.png"


def read_grey(path: Path) -> np.ndarray:
    return np.asarray(image.imread(path)).astype(float)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the difference of the most different square, after blurring; infinite for different sizes."""
    if one.shape != other.shape:
        return float("inf")
    apart = (_blurred(one) - _blurred(other)) ** 2
    high, wide = (-(-n // SQUARE) * SQUARE for n in apart.shape)
    padded = np.zeros((high, wide))
    padded[: apart.shape[0], : apart.shape[1]] = apart
    squares = padded.reshape(high // SQUARE, SQUARE, wide // SQUARE, SQUARE).mean(axis=(1, 3))
    return float(np.sqrt(squares.max()))


def _blurred(pixels: np.ndarray) -> np.ndarray:
    padded = np.pad(pixels, 1, mode="edge")
    high, wide = pixels.shape
    return np.mean([padded[y : y + high, x : x + wide] for y in range(3) for x in range(3)], axis=0)


class _Recorder(RendererAgg):
    """A renderer that records each text that is really drawn."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.texts: list[Text] = []

    def draw_text(
        self, gc: Any, x: Any, y: Any, s: Any, prop: Any, angle: Any, ismath: Any = False, mtext: Any = None
    ) -> None:
        if mtext is not None and s.strip():
            self.texts.append(mtext)
        super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)  # type: ignore[no-untyped-call]


def texts_of(figure: Figure) -> Iterator[tuple[Text, Bbox]]:
    """Yield each text that is drawn, once, and its place in pixels."""
    figure.draw_without_rendering()
    box = figure.bbox
    recorder = _Recorder(box.width, box.height, figure.dpi)
    figure.draw(recorder)
    for text in dict.fromkeys(recorder.texts):
        yield text, Text.get_window_extent(text, recorder)  # an annotation's, without its arrow
