"""The page in headless Chromium: tables sort and filter, nothing is fetched, nothing is wider than the window, and text is text."""

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from browser import Tab, browser_path, open_tab
from made_pages import page_of
from mutations import MUTATIONS

BROWSER = browser_path()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no headless Chromium on this host")
HOSTILE = (
    '</script><script>document.title="taken"</script><img src=x onerror=\'document.title="taken"\'>\u202etxet'
)
SORTED = """
(() => {
  const wrong = [];
  const number = (t) => { const f = /[+\\u2212-]?\\d[\\d,]*(\\.\\d+)?(e[+-]?\\d+)?/i.exec(t); return f ? Number(f[0].replace('\\u2212', '-').replaceAll(',', '')) : null; };
  let clicked = 0;
  for (const table of document.querySelectorAll('.scroll > table')) {
    const before = [...table.tBodies[0].rows].map((r) => r.textContent).sort().join('|');
    [...table.tHead.rows[0].cells].forEach((head, k) => {
      const button = head.querySelector('button');
      if (!button) return;
      for (const way of ['ascending', 'descending']) {
        button.click();
        clicked += 1;
        if (head.getAttribute('aria-sort') !== way) wrong.push(head.textContent + ' is not ' + way);
        const rows = [...table.tBodies[0].rows];
        if (!rows.some((r) => r.cells[k] && r.cells[k].classList.contains('num'))) continue;
        const found = rows.map((r) => number(r.cells[k].textContent)).filter((v) => v !== null);
        const sign = way === 'ascending' ? 1 : -1;
        if (found.some((v, i) => i && sign * (v - found[i - 1]) < 0)) wrong.push(head.textContent + ' ' + way + ' ' + found.join(' '));
      }
    });
    if (before !== [...table.tBodies[0].rows].map((r) => r.textContent).sort().join('|')) wrong.push('rows were lost');
  }
  return { wrong, clicked };
})()
"""
FILTERED = """
(() => {
  const wrong = [];
  let fields = 0;
  for (const field of document.querySelectorAll('.filter input')) {
    fields += 1;
    const rows = [...field.closest('.filter').nextElementSibling.querySelectorAll('tbody tr')];
    const word = rows[0].textContent.trim().split(/\\s+/)[0].toLowerCase();
    field.value = word;
    field.dispatchEvent(new Event('input'));
    for (const row of rows) if (row.hidden === row.textContent.toLowerCase().includes(word)) wrong.push(word + ' in ' + row.textContent);
    field.value = '';
    field.dispatchEvent(new Event('input'));
    if (rows.some((row) => row.hidden)) wrong.push('rows stay hidden');
  }
  return { wrong, fields };
})()
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert BROWSER is not None
    with open_tab(BROWSER) as found:
        yield found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return MUTATIONS["sound over blocks"].made(tmp_path_factory.mktemp("made") / "c")


def written(aggregate: dict[str, Any], folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(page_of(aggregate), encoding="utf-8")
    return path


def test_tables_sort_and_filter_and_nothing_leaves_the_page(
    tab: Tab, made: dict[str, Any], tmp_path: Path
) -> None:
    path = written(made, tmp_path)
    tab.open(path)
    found = tab.value(SORTED)
    assert found["wrong"] == [] and found["clicked"] > 50
    found = tab.value(FILTERED)
    assert found["wrong"] == [] and found["fields"] > 2
    assert [u for u in tab.requested if not u.startswith("data:")] == [path.as_uri()]
    assert tab.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(tab: Tab, made: dict[str, Any], tmp_path: Path, width: int) -> None:
    """Wide tables scroll by themselves."""
    tab.open(written(made, tmp_path), width)
    assert tab.value("document.documentElement.scrollWidth") <= width


WIDER = """
(() => {
  for (const folded of document.querySelectorAll('main > details')) folded.open = true;
  return [...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth).map((s) => s.textContent.trim().slice(0, 200));
})()
"""
STAYS = """
[...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth).map((s) => {
  s.scrollLeft = s.scrollWidth;
  const row = s.querySelector('tbody tr');
  const first = row.cells[0].getBoundingClientRect();
  return [s.scrollLeft, first.left - s.getBoundingClientRect().left, first.width, getComputedStyle(row.cells[0]).backgroundColor];
})
"""


def test_at_1280_no_table_has_to_be_scrolled(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    tab.open(written(made, tmp_path), 1280)
    assert tab.value("document.querySelectorAll('.scroll').length") > 10
    assert tab.value(WIDER) == []


def test_at_390_the_first_column_stays_while_the_others_scroll(
    tab: Tab, made: dict[str, Any], tmp_path: Path
) -> None:
    tab.open(written(made, tmp_path), 390)
    assert any("TTFT p50" in wide for wide in tab.value(WIDER))
    for scrolled, left, width, ground in tab.value(STAYS):
        assert scrolled > 0 and abs(left) < 1 and width < 0.5 * 390 and ground == "rgb(255, 255, 255)"


def test_what_people_write_is_text(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    """In labels, reasons and problems: no element comes of it, and no script."""
    told = copy.deepcopy(made)
    told["configs"]["nixl_both"]["label"] = HOSTILE
    told["problems"].append({"where": HOSTILE, "what": HOSTILE * 200})
    tab.open(written(told, tmp_path), 390)
    assert tab.value("document.title") == f"Connector tax: {told['campaign']}"
    assert tab.value("document.querySelectorAll('script').length") == 1
    assert tab.value("document.querySelectorAll('img[onerror]').length") == 0
    assert "<script>" in tab.value(
        "document.querySelector('#problems').nextElementSibling.textContent + document.body.textContent"
    )
    assert tab.value("document.documentElement.scrollWidth") <= 390


def test_a_link_to_what_is_folded_away_opens_it(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    tab.open(written(made, tmp_path))
    folded = "document.querySelector('#cells').nextElementSibling"
    assert tab.value(f"{folded}.open") is False
    tab.value("document.querySelector('nav a[href=\"#cells\"]').click()")
    assert tab.value(f"new Promise((done) => setTimeout(() => done({folded}.open), 50))") is True
