"""The page in headless Chromium: what stands on the first screen, that nothing is wider than the window, and that text is text."""

import copy
import importlib.util
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
# Where the last number of the table's two latencies ends, and how many rows have them.
LAST = """
(() => {
  const found = [...document.querySelectorAll('.taxes .n.k-ttft_p90 b, .taxes .n.k-tpot_p90 b')];
  return { rows: found.length / 2, bottom: Math.max(...found.map((b) => b.getBoundingClientRect().bottom + scrollY)) };
})()
"""
WORDS = "document.body.innerText.split(/\\s+/).filter((w) => /[\\p{L}\\p{N}]/u.test(w)).length"
OPEN_ALL = "document.querySelectorAll('details').forEach((d) => { d.open = true; }); 0"
VIOLATIONS = """
axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
  .map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(' | ')}`))
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


@pytest.mark.parametrize(("width", "most"), [(1280, 800), (390, 1400)])
def test_every_connector_has_both_numbers_near_the_top(
    tab: Tab, made: dict[str, Any], tmp_path: Path, width: int, most: int
) -> None:
    tab.open(written(made, tmp_path), width)
    found = tab.value(LAST)
    assert found["rows"] == len(made["connectors"]) and found["bottom"] <= most


@pytest.mark.parametrize("width", [1280, 768, 390])
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(tab: Tab, made: dict[str, Any], tmp_path: Path, width: int, scheme: str) -> None:
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.submodule_search_locations
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    # The page lets no other script in, and axe is one.
    tab.ask("Page.setBypassCSP", enabled=True)
    tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        tab.open(written(made, tmp_path), width)
        tab.value(axe + ";0")
        assert tab.value(VIOLATIONS) == []
        tab.value(OPEN_ALL)
        assert tab.value(VIOLATIONS) == []
    finally:
        tab.ask("Emulation.setEmulatedMedia", features=[])
        tab.ask("Page.setBypassCSP", enabled=False)


def test_what_people_write_is_text(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    """In labels, reasons and problems: no element comes of it, and no script."""
    told = copy.deepcopy(made)
    told["configs"]["nixl_both"]["label"] = HOSTILE
    told["problems"].append({"code": "unreadable", "subject": HOSTILE, "detail": HOSTILE * 200})
    tab.open(written(told, tmp_path), 390)
    assert tab.value("document.title") == f"Connector tax: {told['campaign']}"
    assert tab.value("document.querySelectorAll('script').length") == 1
    assert tab.value("document.querySelectorAll('img[onerror]').length") == 0
    assert "<script>" in tab.value("document.querySelector('#cells').textContent")
    assert tab.value("document.documentElement.scrollWidth") <= 390


def test_a_link_to_what_is_folded_away_opens_it(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    tab.open(written(made, tmp_path))
    folded = "document.querySelector('#figures')"
    assert tab.value(f"{folded}.open") is False
    tab.value("location.hash = 'fig6_step_cdf'")
    assert tab.value(f"new Promise((done) => setTimeout(() => done({folded}.open), 50))") is True


def test_small_taxes_can_be_magnified(tab: Tab, made: dict[str, Any], tmp_path: Path) -> None:
    """Where one tax fills the axis, the others lie on zero."""
    told = copy.deepcopy(made)
    for tax in told["main_taxes"]:
        if tax["unit"] == "ratio" and tax["reference"] == "ref_safe":
            big = tax["config"] == "mooncake_both"
            tax |= (
                {"point": 9.0, "low": 8.0, "high": 10.0} if big else {"point": 0, "low": -0.01, "high": 0.01}
            )
    told["connectors"] = []
    tab.open(written(told, tmp_path))
    shown = "getComputedStyle(document.querySelector('.p .zoomed')).display"
    assert tab.value(shown) == "none"
    tab.value("document.querySelector('#zoom').click()")
    assert tab.value(shown) == "block"
