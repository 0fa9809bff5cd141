"""Every figure in every form as a picture: as it was, readable, told apart in grey, nothing cut and nothing on top of another.

``python tests/unit/figures/test_pictures.py`` draws the baselines anew; look at them before they are committed.
"""

import copy
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).parents[2]))
import pictures
from pictures import EVERY_FORM, TOLERANCE, baseline, difference, drawn, form_name, grey, read_grey, texts_of
from whole_aggregate import EXAMPLE, Aggregate

from connector_tax.base.records.connector import MATCHED
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import _LOOKS, PAGE, Drawn, Form

EVERY = [pytest.param(name, form, id=f"{form_name(form)}-{name}") for form in EVERY_FORM for name in FIGURES]
# Bytes of a baseline.
LARGEST = 40_000
# Points. Numbers in the cells of a heat map may be a little smaller.
LEAST = {"": 6.5, "fig5": 5.6}
# Two that are in a campaign together, and in Figure 8's stack.
SWAPPED = ("mooncake_both", "lmcache_only")


@pytest.fixture(scope="module")
def example() -> Aggregate:
    found: Aggregate = json.loads(EXAMPLE.read_text())
    return found


@pytest.fixture(scope="module")
def of_example(example: Aggregate) -> Callable[[str, Form], Drawn]:
    """Each figure in each form, drawn once."""
    known: dict[tuple[str, str], Drawn] = {}

    def find(name: str, form: Form) -> Drawn:
        key = name, form_name(form)
        if key not in known:
            result = drawn(name, example, form)
            assert isinstance(result, Drawn), result
            known[key] = result
        return known[key]

    return find


def swapped(aggregate: Aggregate) -> Aggregate:
    found = copy.deepcopy(aggregate)
    one, other = (found["configs"][c] for c in SWAPPED)
    one["label"], other["label"] = other["label"], one["label"]
    return found


@pytest.mark.parametrize(("name", "form"), EVERY)
def test_a_figure_looks_as_it_did(name: str, form: Form, example: Aggregate) -> None:
    """With two labels swapped it does not."""
    path = baseline(name, form)
    before, now = read_grey(path), grey(name, example, form)
    assert difference(before, now) < TOLERANCE, "looks otherwise; see the module's first lines"
    assert path.stat().st_size < LARGEST
    if form is PAGE:
        assert difference(before, grey(name, swapped(example), form)) > TOLERANCE


FOR_OTHERS = [p for p in EVERY if p.values[1] is not PAGE]


def busy(aggregate: Aggregate) -> Aggregate:
    """Names as long as a legend takes them, a note as long as there is, and taxes of four digits."""
    found = copy.deepcopy(aggregate)
    for config, state in found["configs"].items():
        state["label"] = f"{config} with a long name"
    for tax in (*found["taxes"], *found["main_taxes"]):
        if tax["config"] == "lmcache_only" and tax["unit"] == "ratio" and tax["point"] is not None:
            tax |= {"point": 12.345, "low": 9.876, "high": 23.456}
    found["provenance"]["versions"]["emulator"] = "1"
    return found


@pytest.mark.parametrize(("name", "form"), [p for p in FOR_OTHERS if p.values[1].suffix != "_2col"])
def test_all_type_is_whole_and_large_enough_and_none_lies_on_another_also_with_long_names_and_large_numbers(
    name: str, form: Form, example: Aggregate
) -> None:
    result = drawn(name, busy(example), form)
    assert isinstance(result, Drawn)
    assert_readable(name, form, result)


def assert_readable(name: str, form: Form, result: Drawn) -> None:
    figure = result.figure
    found = [(text, box) for text, box in texts_of(figure) if text.get_rotation() % 90 == 0]
    assert len(found) > 8
    least = LEAST["fig5" if name.startswith("fig5") else ""]
    for text, box in found:
        assert text.get_fontsize() >= least, text
        assert box.x0 >= -0.5 and box.y0 >= -0.5, f"cut: {text}"
        assert box.x1 <= figure.bbox.width + 0.5 and box.y1 <= figure.bbox.height + 0.5, f"cut: {text}"
    for (one, a), (other, b) in itertools.combinations(found, 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(width, height) < figure.dpi / 72, f"{one.get_text()!r} lies on {other.get_text()!r}"


# ---- In grey, and to eyes without the pigment of green.

# Machado, Oliveira and Fernandes (2009), deuteranopia, of linear RGB.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
# Steps of CIE L* (black 0, white 100) by which two must differ that have the same mark, line and hatch.
LEAST_LIGHTNESS = 10.0
# Marks that are one at the size of a point.
ALIKE = {"d": "D", "H": "h", "8": "o", "p": "h", "None": "", "none": ""}


def lightness(colour: Any, seen: np.ndarray) -> float:
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)])
    luminance = float(np.clip(seen @ linear, 0, 1) @ [0.2126, 0.7152, 0.0722])
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def told_apart(one: Any, other: Any) -> bool:
    if shape_of(one) != shape_of(other):
        return True
    return all(
        abs(lightness(colour_of(one), seen) - lightness(colour_of(other), seen)) >= LEAST_LIGHTNESS
        for seen in (np.eye(3), DEUTERANOPIA)
    )


def shape_of(series: Any) -> tuple[str, ...]:
    if isinstance(series, Line2D):
        marker, dashes = str(series.get_marker()), str(series.get_linestyle())
        return "line", ALIKE.get(marker, marker), ALIKE.get(dashes, dashes)
    assert isinstance(series, Patch)
    hatch = series.get_hatch() or ""
    return "patch", "".join(sorted(set(hatch)))


def colour_of(series: Any) -> Any:
    return series.get_color() if isinstance(series, Line2D) else series.get_facecolor()[:3]


@pytest.mark.parametrize(("name", "form"), EVERY)
def test_no_two_series_are_told_apart_by_colour_alone(
    name: str, form: Form, of_example: Callable[[str, Form], Drawn]
) -> None:
    figure = of_example(name, form).figure
    legends = [a.get_legend() for a in figure.axes] + figure.legends
    groups: list[list[Any]] = [list(legend.legend_handles) for legend in legends if legend is not None]
    # Lines through points; intervals are lines between marks of their own.
    groups += [
        [line for line in axes.lines if len(line.get_xdata()) > 2 and line.get_linestyle() != "None"]
        for axes in figure.axes
    ]
    pairs = [pair for group in groups for pair in itertools.combinations(group, 2)]
    if name[:4] not in ("fig5", "fig8"):  # whose cells say their numbers, and whose bars are named
        assert pairs
    for one, other in pairs:
        assert told_apart(one, other), (shape_of(one), colour_of(one), colour_of(other))


def test_no_two_known_configurations_look_alike() -> None:
    """But for the two that are the same connector on a GPU and without one, and the two stacks, which no campaign has both of."""
    twins = [{"nixl_both", "nixl_virtual"}, {"multi_mooncake_lmcache", "multi_mooncake_nixl"}]
    for (one, a), (other, b) in itertools.combinations(_LOOKS.items(), 2):
        if {one, other} in twins or MATCHED in one:
            continue
        lines = [Line2D([], [], color=look.colour, marker=look.marker) for look in (a, b)]
        assert told_apart(*lines), (one, other)


if __name__ == "__main__":
    from PIL import Image

    pictures.BASELINES.mkdir(exist_ok=True)
    for a_form, a_name in itertools.product(EVERY_FORM, FIGURES):
        pixels = grey(a_name, json.loads(EXAMPLE.read_text()), a_form)
        Image.fromarray(np.round(pixels * 255).astype(np.uint8)).save(
            baseline(a_name, a_form), optimize=True, dpi=None
        )
