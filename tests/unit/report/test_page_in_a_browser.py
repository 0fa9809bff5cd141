"""The page in headless Chromium: what stands on the first screen, that nothing is wider than the window, and that text is text.

Its drill-downs: each draws when it is opened, reads, zooms and lies over another.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab, browser_path, open_tab
from drilled_campaign import HOSTILE, Opened, measured, opened
from made_pages import page_of
from mutations import MUTATIONS
from read_through import read

from connector_tax.base.files import read_json, write_json
from connector_tax.read.report.page import build_report

BROWSER = browser_path()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no headless Chromium on this host")
WIDTHS = (1280, 390)
SOON = "new Promise((done) => setTimeout(done, 100))"
# Every cell in its turn, opened by the link in its row: what is wrong with its plots. Every canvas must hold more than its shade,
# axis and grid, which are grey.
OPENED = """
(async () => {
  const wrong = [];
  const titles = new Set();
  const cells = [...document.querySelectorAll('#drill-downs details.cell')];
  for (const cell of cells) {
    if (cell.querySelector('canvas')) wrong.push(cell.id + ' was drawn before it was opened');
    document.querySelector(`td a[href="#${cell.id}"]`).click();
    for (let k = 0; k < 40 && cell.querySelectorAll('.plots figure').length < 8; k += 1) await new Promise((done) => setTimeout(done, 50));
    await new Promise((done) => setTimeout(done, 100));
    if (!cell.open || !cell.closest('details.config').open) wrong.push(cell.id + ' stays closed');
    const figures = [...cell.querySelectorAll('.plots figure')];
    if (figures.length < 8) wrong.push(`${cell.id} has ${figures.length} plots`);
    for (const figure of figures) {
      const title = figure.querySelector('figcaption').textContent;
      titles.add(title);
      const canvas = figure.querySelector('canvas');
      const box = canvas.getBoundingClientRect();
      if (box.width < 200 || box.height < 100 || box.right > innerWidth) wrong.push(`${cell.id} ${title}: ${box.width} by ${box.height}`);
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let coloured = 0;
      for (let k = 0; k < data.length; k += 4) {
        if (data[k + 3] > 128 && Math.max(...data.slice(k, k + 3)) - Math.min(...data.slice(k, k + 3)) > 60) coloured += 1;
      }
      if (coloured < 10) wrong.push(`${cell.id} ${title} is empty`);
      if (!figure.querySelector('[role=img]').getAttribute('aria-label').startsWith(title)) wrong.push(`${cell.id} ${title} is not told`);
    }
  }
  return { wrong, cells: cells.length, titles: titles.size };
})()
"""
VIOLATIONS = """
axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
  .filter((v) => IMPACTS.includes(v.impact))
  .map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(' | ')}`))
"""
LEGENDS = "[...document.querySelectorAll('#cell-2 .u-legend')].map((l) => [...l.querySelectorAll('tr')].map((r) => r.textContent))"
# From where to where each plot of a cell shows its time.
SHOWN = "uPlot.sync('cell-1').plots.map((p) => [p.scales.x.min, p.scales.x.max])"


# Where the last number of the table's two latencies ends, and how many rows have them.
LAST = """
(() => {
  const found = [...document.querySelectorAll('.taxes .n.k-ttft_p90 b, .taxes .n.k-tpot_p90 b')];
  return { rows: found.length / 2, bottom: Math.max(...found.map((b) => b.getBoundingClientRect().bottom + scrollY)) };
})()
"""
WORDS = "document.body.innerText.split(/\\s+/).filter((w) => /[\\p{L}\\p{N}]/u.test(w)).length"
OPEN_ALL = "document.querySelectorAll('details').forEach((d) => { d.open = true; }); 0"


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
    aggregate["problems"].append({"code": "unreadable", "subject": HOSTILE, "detail": HOSTILE * 20})
    write_json(root / "aggregate.json", aggregate)
    return build_report(root)


def cell_of(page: Path, anchor: str) -> Opened:
    return next(c for c in opened(page.read_text()).values() if c.anchor == anchor)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_drill_down_draws_when_it_is_opened_and_nothing_leaves_the_page(
    tab: Tab, page: Path, width: int, scheme: str
) -> None:
    tab.complaints.clear()
    tab.requested.clear()
    tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        tab.open(page, width)
        assert tab.value(OPENED) == {"wrong": [], "cells": 6, "titles": 10}
        assert tab.value("document.documentElement.scrollWidth") <= width
    finally:
        tab.ask("Emulation.setEmulatedMedia", features=[])
    assert [u for u in tab.requested if not u.startswith("data:")] == [page.as_uri()]
    assert tab.complaints == []


def test_what_servers_hooks_and_configs_say_is_text(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.value(OPENED)
    assert tab.value("document.title") == "Connector tax: demo"
    assert tab.value("document.querySelectorAll('script:not([type])').length") == 1
    assert tab.value("document.querySelectorAll('script').length") == 7
    assert tab.value("document.querySelectorAll('img[onerror], svg script, svg foreignObject').length") == 0
    assert "<script>" in tab.value("document.querySelector('#cells').textContent"), "why a problem is one"
    shown = tab.value("document.querySelector('#drill-downs').textContent")
    bare = HOSTILE.replace("\u202e", " ")
    assert f"HTTP 500: {bare}" in shown, "what a server said"
    assert f"worker/{bare}" in shown, "a hook of that name"
    assert f"{bare} in 5" in shown, "why the driver held clocks down"
    # Of a flag, too, nothing turns the direction of what stands beside it.
    assert tab.value("document.querySelector('#drill-downs').innerHTML").count("\u202e") == 0
    assert tab.value(
        "[...document.querySelectorAll('#drill-downs optgroup')].some((o) => o.label.startsWith('</script>'))"
    )


def test_arrow_keys_read_what_is_drawn(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.value("location.hash = '#cell-2'")
    tab.value(SOON)
    key = "document.querySelector('#cell-2 .plots').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }))"
    tab.value(f"for (let k = 0; k < 25; k += 1) {key}")
    tab.value(SOON)
    at, ttft = tab.value(LEGENDS)[0][:2]
    found = cell_of(page, "cell-2").data["requests"]
    known = [(t, v) for t, v in zip(found["t"], found["ttft"], strict=True) if v is not None]
    read_at, read_out = (float(text.strip("atTF s").replace(",", "")) for text in (at, ttft))
    # A request without a latency is passed over for the one beside it.
    beside = sorted(known, key=lambda point: abs(point[0] - read_at))[:2]
    assert any(read_out == pytest.approx(value, abs=0.001) for _, value in beside)
    # All plots of the cell read the same time.
    assert all("--" not in legend[0] for legend in tab.value(LEGENDS))


def test_a_drag_zooms_all_plots_of_the_cell_and_a_double_click_shows_everything(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.value("location.hash = '#cell-1'")
    tab.value(SOON)
    box = tab.value(
        "(() => { const b = document.querySelector('#cell-1 .u-over').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
    )

    def mouse(kind: str, share: float, clicks: int = 1) -> None:
        x, y = box[0] + box[2] * share, box[1] + box[3] / 2
        tab.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=clicks)

    end = cell_of(page, "cell-1").data["times"][2]
    whole = tab.value(SHOWN)
    assert len(whole) == 10 and all(shown == pytest.approx([0, end]) for shown in whole)
    for kind, share in zip(("Moved", "Pressed", "Moved", "Released"), (0.4, 0.4, 0.6, 0.6), strict=True):
        mouse(f"mouse{kind}", share)
    tab.value(SOON)
    for shown in tab.value(SHOWN):
        assert shown == pytest.approx([0.4 * end, 0.6 * end], rel=0.02)
    for clicks in (1, 2):
        mouse("mousePressed", 0.5, clicks)
        mouse("mouseReleased", 0.5, clicks)
    tab.value(SOON)
    assert tab.value(SHOWN) == whole


def test_another_cell_is_drawn_in_the_same_plots(tab: Tab, page: Path) -> None:
    tab.complaints.clear()
    tab.open(page)
    tab.value("location.hash = '#cell-2'")
    tab.value(SOON)
    before = tab.value(LEGENDS)
    choose = "(() => {{ const s = document.querySelector('#cell-2 select'); s.value = '{}'; s.dispatchEvent(new Event('change')); }})()"
    tab.value(choose.format("cell-5"))
    tab.value(SOON)
    for one, both in zip(before, tab.value(LEGENDS), strict=True):
        other = [row for row in both if ", other cell" in row]
        assert len(other) == len(one) - 1 and len(both) == len(one) + len(other)
    longest = max(cell_of(page, anchor).data["times"][2] for anchor in ("cell-2", "cell-5"))
    assert {s[1] for s in tab.value(SHOWN.replace("cell-1", "cell-2"))} == {longest}
    tab.value(choose.format(""))
    tab.value(SOON)
    assert tab.value(LEGENDS) == before and tab.complaints == []


def test_without_scripts_the_page_says_where_the_samples_are(tab: Tab, page: Path) -> None:
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(page)
        # The protocol's own evaluation still runs.
        tab.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        said = tab.value("document.querySelector('#drill-downs').innerText")
        assert "Plots need scripts." in said and "Raw files: " in said
        assert tab.value("document.querySelectorAll('#drill-downs canvas, #drill-downs select').length") == 0
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return MUTATIONS["sound over blocks"].made(tmp_path_factory.mktemp("made") / "c")


def written(aggregate: dict[str, Any], folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(page_of(aggregate), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "most"), [(1280, 800), (390, 1400)])
def test_every_connector_has_both_numbers_near_the_top(
    tab: Tab, made: dict[str, Any], tmp_path: Path, width: int, most: int
) -> None:
    tab.open(written(made, tmp_path), width)
    found = tab.value(LAST)
    assert found["rows"] == len(made["connectors"]) and found["bottom"] <= most


@pytest.mark.parametrize("width", [768, 390])
def test_nothing_is_wider_than_the_window_and_nothing_leaves_the_page(
    tab: Tab, made: dict[str, Any], tmp_path: Path, width: int
) -> None:
    path = written(made, tmp_path)
    tab.complaints.clear()
    tab.requested.clear()
    tab.open(path, width)
    assert tab.value("document.documentElement.scrollWidth") <= width
    tab.value(OPEN_ALL)
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert [u for u in tab.requested if not u.startswith("data:")] == [path.as_uri()]
    assert tab.complaints == []


def test_it_can_be_read_in_a_sitting(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    tab.open(written(made, tmp_path))
    assert tab.value(WORDS) <= 2500
    tab.value(OPEN_ALL)
    assert tab.value(WORDS) <= 7000


def test_a_link_to_what_is_folded_away_opens_it(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    tab.open(written(made, tmp_path))
    folded = "document.querySelector('#figures')"
    assert tab.value(f"{folded}.open") is False
    tab.value("location.hash = 'fig6_step_cdf'")
    assert tab.value(f"new Promise((done) => setTimeout(() => done({folded}.open), 50))") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(
    tab: Tab, page: Path, made: dict[str, Any], tmp_path: Path, width: int, scheme: str
) -> None:
    """The page as it comes and with all of it open; with drill-downs and what strangers wrote in it nothing serious."""
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.submodule_search_locations
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    # The page lets no other script in, and axe is one.
    tab.ask("Page.setBypassCSP", enabled=True)
    tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    serious = ["serious", "critical"]
    try:
        for path, impacts in (
            (written(made, tmp_path), [None, "minor", "moderate", *serious]),
            (page, serious),
        ):
            tab.open(path, width)
            tab.value(axe + f";globalThis.IMPACTS = {json.dumps(impacts)};0")
            assert tab.value(VIOLATIONS) == []
            tab.value(OPEN_ALL)
            tab.value(SOON)
            assert tab.value(VIOLATIONS) == []
        assert tab.value("document.querySelectorAll('#drill-downs canvas').length") >= 8
        # It can find something.
        tab.value(
            "document.querySelector('label.beside').replaceWith(document.querySelector('label.beside select'))"
        )
        assert [f.partition(":")[0] for f in tab.value(VIOLATIONS)] == ["select-name"]
    finally:
        tab.ask("Emulation.setEmulatedMedia", features=[])
        tab.ask("Page.setBypassCSP", enabled=False)
