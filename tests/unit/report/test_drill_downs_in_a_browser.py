"""Drill-downs in headless Chromium: each opens, reads, zooms and lies beside another; text is text; axe finds nothing serious."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from browser import Tab, browser_path, open_tab
from drilled_campaign import HOSTILE, measured, opened
from read_through import read

from connector_tax.base.files import read_json, write_json
from connector_tax.read.report.page import build_report

BROWSER = browser_path()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no headless Chromium on this host")
WIDTHS = (1280, 390)
SOON = "new Promise((done) => setTimeout(done, 60))"
# What is wrong with the drill-downs of a page after each of them was opened.
OPENED = """
(async () => {
  const wrong = [];
  const cells = [...document.querySelectorAll('#drill-downs details.cell')];
  for (const cell of cells) {
    document.querySelector(`td.drill a[href="#${cell.id}"]`).click();
    await new Promise((done) => setTimeout(done, 30));
    if (!cell.open || !cell.closest('details.config').open) wrong.push(cell.id + ' stays closed');
    const figures = [...cell.querySelectorAll('.plots figure')];
    if (figures.length < 4) wrong.push(cell.id + ' has too few plots');
    for (const figure of figures) {
      const box = figure.querySelector('svg').getBoundingClientRect();
      if (box.width < 200 || box.height < 60) wrong.push(cell.id + ' ' + figure.dataset.k + ' is too small');
      const letters = figure.querySelector('text.y').getBoundingClientRect();
      if (12 * box.width / 360 < 9) wrong.push(cell.id + ' has letters that nobody can read');
      const times = figure.querySelector('text.x').getBoundingClientRect();
      if (times.right > box.right + 1) wrong.push(cell.id + ' ' + figure.dataset.k + ' cuts its last time off');
      const shade = figure.querySelector('path[data-n]').getBoundingClientRect();
      if (shade.left < letters.right || shade.bottom > times.top + 4) wrong.push(cell.id + ' ' + figure.dataset.k + ' is drawn over its axis');
      if (letters.left < box.left - 1) wrong.push(cell.id + ' ' + figure.dataset.k + ' cuts its numbers off');
      if (!/^M/i.test(figure.querySelector('path[data-n]').getAttribute('d'))) wrong.push(cell.id + ' draws nothing');
    }
    if (!cell.querySelector('.bar button')) wrong.push(cell.id + ' has no buttons');
  }
  return { wrong, cells: cells.length };
})()
"""
SERIOUS = """
axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
  .filter((v) => ['serious', 'critical'].includes(v.impact))
  .map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(' | ')}`))
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert BROWSER is not None
    with open_tab(BROWSER) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its label is markup as well, which only a file that people write can hold."""
    root = tmp_path_factory.mktemp("drilled") / "c"
    campaign = measured(root)
    read(campaign.root)
    aggregate = read_json(root / "aggregate.json")
    aggregate["configs"]["noop_connector"]["label"] = HOSTILE
    write_json(root / "aggregate.json", aggregate)
    return build_report(root)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_drill_down_opens_from_its_row_and_nothing_leaves_the_page(
    tab: Tab, page: Path, width: int
) -> None:
    tab.complaints.clear()
    tab.requested.clear()
    tab.open(page, width)
    found = tab.value(OPENED)
    assert found == {"wrong": [], "cells": 6}
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert [u for u in tab.requested if not u.startswith("data:")] == [page.as_uri()]
    assert tab.complaints == []


def test_what_servers_hooks_and_configs_say_is_text(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.value(OPENED)
    assert tab.value("document.title") == "Connector tax: campaign demo".replace("campaign ", "")
    assert tab.value("document.querySelectorAll('script').length") == 1
    assert tab.value("document.querySelectorAll('img[onerror], svg script, svg foreignObject').length") == 0
    shown = tab.value("document.querySelector('#drill-downs').textContent")
    bare = HOSTILE.replace("\u202e", " ")
    assert f"HTTP 500: {bare}" in shown, "what a server said"
    assert f"worker/{bare}" in shown, "a hook of that name"
    assert f"{bare} in 5" in shown, "why the driver held clocks down"
    # Of a flag, too, nothing turns the direction of what stands beside it.
    assert tab.value("document.querySelector('#drill-downs').innerHTML").count("\u202e") == 0
    assert tab.value(
        "[...document.querySelectorAll('#drill-downs option')].some((o) => o.textContent.startsWith('</script>'))"
    )


def test_arrow_keys_read_what_is_drawn(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.value("location.hash = '#cell-2'")
    tab.value(SOON)
    keys = "for (let k = 0; k < {n}; k += 1) document.querySelector('#cell-2 .plots').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))"
    tab.value(keys.format(n=25, key="ArrowRight"))
    said = tab.value("document.querySelector('#cell-2 .said').textContent")
    shown = next(c for c in opened(page.read_text()).values() if c.anchor == "cell-2")
    at = float(said.split()[1])
    (dots, *_) = shown.panels["ttft"]
    nearest = min(zip(dots.at, dots.values, strict=True), key=lambda point: abs(point[0] - at))[1]
    read_out = float(said.partition("TTFT of each request: request ")[2].split()[0].replace(",", ""))
    assert read_out == pytest.approx(nearest, rel=0.01)
    # Twice nearer, and back.
    before = tab.value("document.querySelector('#cell-2 text.x').textContent")
    tab.value(keys.format(n=2, key="+"))
    nearer = tab.value("document.querySelector('#cell-2 text.x').textContent")
    tab.value(keys.format(n=1, key="Escape"))
    assert nearer != before == tab.value("document.querySelector('#cell-2 text.x').textContent")


def test_a_pointer_reads_and_a_drag_zooms(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.value("location.hash = '#cell-1'")
    tab.value(SOON)
    box = tab.value(
        "(() => { const b = document.querySelector('#cell-1 svg').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
    )

    def mouse(kind: str, share: float) -> None:
        x, y = box[0] + box[2] * share, box[1] + box[3] / 2
        tab.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    mouse("mouseMoved", 0.5)
    assert tab.value("document.querySelector('#cell-1 .said').textContent").startswith("at ")
    before = tab.value("document.querySelector('#cell-1 svg svg').getAttribute('viewBox')").split()
    for kind, share in (("mousePressed", 0.4), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        mouse(kind, share)
    after = tab.value("document.querySelector('#cell-1 svg svg').getAttribute('viewBox')").split()
    assert float(after[2]) == pytest.approx(float(before[2]) * 0.2 * 360 / 304, rel=0.03)


@pytest.mark.parametrize("width", WIDTHS)
def test_two_cells_lie_side_by_side_on_common_axes(tab: Tab, page: Path, width: int) -> None:
    tab.complaints.clear()
    tab.open(page, width)
    tab.value(
        "document.querySelectorAll('#drill-downs details.cell')[4].closest('details.config').querySelector('summary').click()"
    )
    tab.value(
        "document.querySelectorAll('.beside select').forEach((s, k) => { s.value = String(k * 4); s.dispatchEvent(new Event('change')); })"
    )
    figures = tab.value(
        "[...document.querySelectorAll('.both figure')].map((f) => { const b = f.getBoundingClientRect(); "
        "return { key: f.dataset.k, left: b.left, top: b.top, letter: f.querySelector('.letter').textContent, y: f.querySelector('text.y').textContent,"
        " x: f.querySelector('text.x').textContent }; })"
    )
    assert [f["letter"] for f in figures] == ["A", "B"] * (len(figures) // 2) and len(figures) == 16
    for one, other in zip(figures[::2], figures[1::2], strict=True):
        assert (one["key"], one["x"], one["y"]) == (other["key"], other["x"], other["y"])
        assert (one["left"] < other["left"]) if width > 640 else (one["top"] < other["top"])
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value("document.querySelectorAll('.both .facts').length") == 2 and tab.complaints == []


def test_without_scripts_the_same_is_drawn(tab: Tab, page: Path) -> None:
    """All but the reading, the zoom and two at once."""
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(page)
        # The protocol's own evaluation still runs.
        drawn = tab.value("document.querySelectorAll('#drill-downs svg path[data-n]').length")
        assert drawn == sum(len(s) for c in opened(page.read_text()).values() for s in c.panels.values())
        assert tab.value("document.querySelectorAll('#drill-downs .bar, #drill-downs select').length") == 0
        size = tab.value(
            "(() => { document.querySelectorAll('details').forEach((d) => { d.open = true; }); "
            "return document.querySelector('#drill-downs details[open].cell svg').getBoundingClientRect().height; })()"
        )
        assert size > 60
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(tab: Tab, page: Path, width: int) -> None:
    """The page as it comes, and with everything open and two cells side by side."""
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.submodule_search_locations
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    # The page lets no other script in, and axe is one.
    tab.ask("Page.setBypassCSP", enabled=True)
    try:
        tab.open(page, width)
        tab.value(axe + ";0")
        assert tab.value(SERIOUS) == []
        tab.value(
            "document.querySelectorAll('details').forEach((d) => { d.open = true; });"
            "document.querySelectorAll('.beside select').forEach((s, k) => { s.value = String(k); s.dispatchEvent(new Event('change')); })"
        )
        tab.value(SOON)
        assert tab.value(SERIOUS) == []
        # It can find something.
        tab.value(
            "document.querySelector('.beside select').parentElement.replaceWith(document.querySelector('.beside select'))"
        )
        found: Any = tab.value(SERIOUS)
        assert [f.partition(":")[0] for f in found] == ["select-name"], json.dumps(found)
    finally:
        tab.ask("Page.setBypassCSP", enabled=False)
