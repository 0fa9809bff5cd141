"""Titles are computed, looks are fixed, files repeat byte for byte."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text
from virtual_gpus import IDENTITY
from whole_aggregate import EXAMPLE, Aggregate

from connector_tax.base.documents.aggregate import Interval, aggregate_of
from connector_tax.base.errors import ArtifactError
from connector_tax.read.figures import draw_all
from connector_tax.read.figures.draw_all import FIGURES, draw_figures
from connector_tax.read.figures.style import Drawn, drawing_style
from connector_tax.read.figures.words import clean, listing, microseconds, percent, with_interval


@pytest.fixture(scope="module")
def example() -> Aggregate:
    return json.loads(EXAMPLE.read_text())


@pytest.mark.parametrize(
    ("provenance", "note"),
    [
        ({"versions": {"python": "3.11.9", "emulator": True}}, "Embedded engine"),
        (
            {"engine_kind": "virtual_gpu", "gpu": [], "virtual_gpu": IDENTITY},
            "Virtual NVIDIA H200 (profile h200, 0123456789abcdef): the device was a clock",
        ),
    ],
)
def test_every_picture_says_on_what_it_was_measured_where_that_is_no_gpu(
    example: Aggregate, provenance: dict[str, Any], note: str
) -> None:
    """PNGs travel without their page."""
    aggregate = copy.deepcopy(example)
    aggregate["provenance"] |= provenance
    with drawing_style("x"):
        result = FIGURES["fig4_tax_bars"](aggregate_of(aggregate))
    assert isinstance(result, Drawn)
    (shown,) = [t for t in result.figure.findobj(Text) if t.get_text().replace("\n", " ").startswith(note)]
    renderer = result.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    assert shown.get_window_extent(renderer).x1 <= result.figure.bbox.x1


def test_two_runs_write_the_same_bytes(
    example: Aggregate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No dates, no random ids: a figure changes only if its numbers do."""
    found = []
    monkeypatch.setattr(draw_all, "FIGURES", {n: draw for n, draw in FIGURES.items() if n[3] in "156"})
    for place in ("one", "two"):
        root = tmp_path / place
        root.mkdir()
        (root / "aggregate.json").write_text(json.dumps(example))
        draw_figures(root)
        found.append({p.name: p.read_bytes() for p in (root / "figures").iterdir()})
    first, again = found
    assert first == again and len([name for name in first if name.startswith("fig")]) == 9
    assert json.loads(first["omitted.json"]) == {}


def test_a_figure_that_is_left_out_leaves_no_old_picture(example: Aggregate, tmp_path: Path) -> None:
    """The folder is replaced as a whole; the index has the reason."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "fig6_step_cdf.svg").write_text("old")
    poor = {**example, "step_timing_available": False}
    poor |= {"cells": [], "taxes": [], "main_taxes": [], "decomposition": []}
    (tmp_path / "aggregate.json").write_text(json.dumps(poor))
    entries = draw_figures(tmp_path)
    assert not any(e.drawn for e in entries)
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["index.json", "omitted.json"]
    assert set(json.loads((tmp_path / "figures" / "omitted.json").read_text())) == set(FIGURES)


def test_an_aggregate_of_another_schema_is_refused(tmp_path: Path) -> None:
    """With what would do."""
    (tmp_path / "aggregate.json").write_text('{"schema_version": 99}')
    with pytest.raises(ArtifactError, match=r"schema 99, this version reads 1.*connector-tax report"):
        draw_figures(tmp_path)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.312, "+31 %"),
        (0.0312, "+3.1 %"),
        (-0.5, "−50 %"),
        (0.0, "0 %"),
        (-0.0001, "0 %"),
        (12.5, "+1,250 %"),
    ],
)
def test_percent(ratio: float, text: str) -> None:
    """One decimal below ten; zero has no sign."""
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.0004, 0.0001, 0.012), "+0.04 % [+0.01 %, +1.2 %]"),
        (Interval(-0.0004, -0.012, -0.000002), "−0.04 % [−1.2 %, −0.0002 %]"),
        (Interval(0.0004, -0.0001, 0.012), "+0.04 % [−0.01 %, +1.20 %]"),
        (Interval(0.0, 0.0, 0.0), "0 % [0 %, 0 %]"),
    ],
)
def test_what_excludes_zero_does_not_read_as_zero(interval: Interval, text: str) -> None:
    assert with_interval(interval) == text


def test_numbers_as_people_read_them() -> None:
    """An open interval says so."""
    assert microseconds(-1234) == "−1,234 µs"
    assert with_interval(Interval(0.3, 0.1, None)) == "+30 % [+10 %, no upper bound]"
    assert with_interval(Interval(0.3, None, None)) == "+30 % [no lower bound, no upper bound]"
    assert listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert clean("a\x00b\n c", 4) == "a b…"
