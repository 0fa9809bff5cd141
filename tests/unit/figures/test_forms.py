"""Figures for papers: which files there are, what is in them, and what becomes of them."""

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.font_manager import FontProperties, fontManager
from whole_aggregate import EXAMPLE, Aggregate

from connector_tax.cli import main
from connector_tax.read.figures import draw_all
from connector_tax.read.figures.draw_all import FIGURES, draw_figures
from connector_tax.read.figures.style import FORMS, Form, drawing_style, new_figure, save, side_by_side

# All take seconds; each looks as it should in test_pictures.py.
DRAWN = ("fig1_ttft_vs_rate", "fig4_tax_bars")


def campaign(root: Path, change: Any = None) -> Path:
    aggregate = json.loads(EXAMPLE.read_text())
    if change is not None:
        change(aggregate)
    root.mkdir(exist_ok=True)
    (root / "aggregate.json").write_text(json.dumps(aggregate))
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some figures, drawn in every form."""
    made = campaign(tmp_path_factory.mktemp("results") / "example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_all, "FIGURES", {name: FIGURES[name] for name in DRAWN})
        draw_figures(made)
        main(["report", str(made), "--for", "paper"])
    return made


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Draw these alone."""

    def keep(*names: str) -> None:
        monkeypatch.setattr(draw_all, "FIGURES", {name: FIGURES[name] for name in names})

    return keep


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "form", [form for forms in FORMS.values() for form in forms], ids=lambda f: f.suffix or "page"
)
def test_a_layout_is_settled_before_it_is_drawn_in_every_form(form: Form, tmp_path: Path) -> None:
    """The last bits of what the solver finds depend on addresses in memory; ``verify --reproduce`` of a sound bundle failed by chance."""
    with drawing_style("any", form):
        figure = new_figure(6.0, 4.0, 2)
        for axes in side_by_side(figure, 2):
            axes.set_ylabel("TTFT p90 (ms)")
        save(figure, tmp_path, "any")
    edges = [v for axes in figure.axes for v in axes.get_position().extents]
    assert edges == pytest.approx([round(v, 6) for v in edges], abs=1e-12)


def test_a_paper_has_both_widths_as_pdf_and_svg(root: Path) -> None:
    names = {
        f"{name}{width}.{kind}" for name in DRAWN for width in ("_1col", "_2col") for kind in ("pdf", "svg")
    }
    assert set(contents(root / "figures" / "paper")) == names
    page = {f"{n}.{kind}" for n in DRAWN for kind in ("svg", "png", "csv")} | {"index.json", "omitted.json"}
    assert {name for name in contents(root / "figures") if "/" not in name} == page


def test_a_pdf_has_its_type_in_it_an_svg_needs_none_and_neither_has_a_date(root: Path) -> None:
    for path in root.glob("figures/**/*.svg"):
        assert "<text" not in path.read_text() and "<dc:date>" not in path.read_text(), path
    for path in (root / "figures" / "paper").glob("*.pdf"):
        data = path.read_bytes()
        assert b"/FontFile2" in data and b"/Subtype /Type3" not in data, path
        assert b"/CreationDate" not in data and b"/Producer" not in data, path
        fonts = set(re.findall(rb"/BaseFont /(\S+)", data))
        assert fonts and all(b"DejaVu" in font for font in fonts), path


def test_letters_are_those_that_matplotlib_ships_whatever_the_host_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a host are other builds of the same font, and numbers of glyphs are in an SVG."""
    family = FontProperties(family="DejaVu Sans")
    shipped = Path(matplotlib.get_data_path()).resolve()
    hosts = shutil.copy(shipped / "fonts" / "ttf" / "DejaVuSans.ttf", tmp_path)
    monkeypatch.setattr(fontManager, "ttflist", [])
    fontManager.addfont(hosts)
    assert Path(fontManager.findfont(family)) == Path(hosts)
    with drawing_style("any"):
        assert Path(fontManager.findfont(family)).is_relative_to(shipped)


def test_what_the_users_matplotlibrc_prefers_is_not_in_a_figure() -> None:
    """Others draw it again, byte by byte."""
    with drawing_style("x"):
        usual = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"savefig.bbox": "tight", "savefig.facecolor": "red"}):
        with drawing_style("x"):
            assert dict(matplotlib.rcParams) == usual
        assert matplotlib.rcParams["savefig.facecolor"] == "red"


def test_text_of_a_pdf_is_text(root: Path) -> None:
    """Words are drawn as letters of a font, not as shapes: a title that is moved out is not in there, an axis is."""
    data = (root / "figures" / "paper" / "fig4_tax_bars_1col.pdf").read_bytes()
    streams = [
        zlib.decompressobj().decompress(s)
        for s in re.findall(rb"stream\r?\n(.*?)endstream", data, re.S)
        if s[:1] == b"x"
    ]
    shown = b"".join(b"".join(re.findall(rb"\((?:\\.|[^()\\])*\)", s)) for s in streams if b"BT" in s)
    text = re.sub(rb"[()\\\x00]", b"", shown)  # two bytes a letter
    assert b"tax of TTFT p90" in text
    assert b"Tax of TTFT" not in text


def test_the_same_numbers_give_the_same_bytes(root: Path, tmp_path: Path, only: Callable[..., None]) -> None:
    only("fig4_tax_bars")
    again = campaign(tmp_path / "again")
    draw_figures(again, "paper")
    found, before = contents(again / "figures" / "paper"), contents(root / "figures" / "paper")
    pictures = {name for name in found if name.startswith("fig")}
    assert len(pictures) == 4
    assert all(found[name] == before[name] for name in pictures)
    assert not (again / "figures" / "index.json").exists()


def test_drawing_the_page_again_draws_anew_what_lies_beside_it(
    tmp_path: Path, only: Callable[..., None]
) -> None:
    """A paper's figures of an earlier aggregate would say something else than the page's."""
    only("fig4_tax_bars")
    root = campaign(tmp_path / "example")
    draw_figures(root, "paper")
    before = contents(root / "figures" / "paper")

    def rename(aggregate: Aggregate) -> None:
        aggregate["configs"]["mooncake_both"]["label"] = "another name"

    campaign(root, rename)
    draw_figures(root)
    after = contents(root / "figures" / "paper")
    assert set(after) == set(before)
    assert all(after[name] != before[name] for name in before if name.startswith("fig4"))
    shutil.rmtree(root / "figures" / "paper")
    draw_figures(root)
    assert not (root / "figures" / "paper").exists()


def test_what_cannot_be_drawn_is_said_with_its_reason(tmp_path: Path, only: Callable[..., None]) -> None:
    only("fig6_step_cdf", "fig8_additivity")

    def no_steps(aggregate: Aggregate) -> None:
        aggregate["step_timing_available"] = False

    root = campaign(tmp_path / "example", no_steps)
    entries = {e.name: e for e in draw_figures(root, "paper")}
    assert not entries["fig6_step_cdf"].drawn and "step times" in entries["fig6_step_cdf"].reason
    assert not [*(root / "figures" / "paper").glob("fig6*")]
