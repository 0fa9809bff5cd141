"""The page of a running campaign in headless Chromium: it follows the campaign, shows each report and text as text; axe finds nothing serious."""

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from browser import Tab, browser_path, open_tab
from half import half, hostile, maker, viewing

from connector_tax.read.watch.partial import make
from connector_tax.read.watch.server import Server

BROWSER = browser_path()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no headless Chromium on this host")
WAIT_S = 30
# Makes the report in this process's own way; how the real one is started is another test's matter.
COPYING = "import shutil, sys; [shutil.copy(sys.argv[1] + '/../ready/' + n, sys.argv[2]) for n in ('report.html', 'read.json')]"
SERIOUS = """
axe.run({ exclude: [['iframe']] }, { resultTypes: ['violations'] }).then((found) => found.violations
  .filter((v) => ['serious', 'critical'].includes(v.impact))
  .map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(' | ')}`))
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector_tax.read.watch.page.REFRESH_S", 0.1)


@pytest.fixture
def tab() -> Iterator[Tab]:
    assert BROWSER is not None
    with open_tab(BROWSER) as found:
        yield found


@contextmanager
def served(found: object, made_in: Path, **options: object) -> Iterator[Server]:
    of = maker(found, made_in, **options)  # type: ignore[arg-type]
    with Server(0, viewing(found, of), of) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            of.close()


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_follows_the_campaign_and_shows_the_report_that_was_asked_for(tab: Tab, tmp_path: Path) -> None:
    found = half(tmp_path)
    ready = tmp_path / "ready"
    ready.mkdir()
    make(found.root, ready)
    with served(found, tmp_path / "made", command=[sys.executable, "-c", COPYING]) as server:
        tab.go(f"http://127.0.0.1:{server.port}/", 390)
        assert tab.value("document.title") == "1 of 6: demo"
        assert tab.value("document.querySelector('iframe')") is None
        tab.value("window.stays = true")
        found.receipt("mooncake_both")
        until(lambda: tab.value("document.title") == "2 of 6: demo")
        assert tab.value("document.querySelector('#state').textContent").count("2 cells") == 2
        assert tab.value("window.stays") is True
        tab.value("document.querySelector('button').click()")
        inside = "document.querySelector('iframe')?.contentDocument"
        until(
            lambda: tab.value(f"{inside}?.querySelector('.unfinished')?.textContent.includes('Not finished')")
        )
        # One bar scrolls both: the report is as high as what it shows, and follows what is opened in it.
        height = "document.querySelector('iframe').getBoundingClientRect().height"
        until(
            lambda: 0 < tab.value(f"{height} - {inside}.documentElement.getBoundingClientRect().height") < 5
        )
        before = tab.value(height)
        tab.value(f"{inside}.querySelectorAll('details').forEach((d) => {{ d.open = true; }})")
        until(lambda: tab.value(height) > before + 100)
        assert tab.value("document.documentElement.scrollWidth") <= 390
        assert tab.complaints == []
        own = f"http://127.0.0.1:{server.port}/"
        assert {u for u in tab.requested if not u.startswith((own, "data:"))} == set()
    tab.complaints.clear()
    until(lambda: tab.value("document.querySelector('#lost').hidden") is False)
    assert "has ended" in tab.value("document.querySelector('#lost').textContent")


@pytest.mark.parametrize("width", [1280, 390])
def test_what_files_hold_is_text_also_after_it_was_read_anew(tab: Tab, tmp_path: Path, width: int) -> None:
    found = hostile(tmp_path)
    with served(found, tmp_path / "made") as server:
        tab.go(f"http://127.0.0.1:{server.port}/", width)
        found.folder.progress_log.write_text(
            "</div><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> now\n"
        )
        until(
            lambda: (
                "onerror" in tab.value("document.querySelector('#state').textContent.split('Last:')[1] || ''")
            )
        )
        assert tab.value("document.title") == "0 of 6: demo" or "taken" not in tab.value("document.title")
        assert tab.value("document.querySelectorAll('script').length") == 1
        assert tab.value("document.querySelectorAll('img').length") == 0
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(tab: Tab, tmp_path: Path, width: int) -> None:
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.submodule_search_locations
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    found = hostile(tmp_path)
    found.run("plain", "a").receipt.write_text("{")
    with served(found, tmp_path / "made") as server:
        # The page lets no other script in, and axe is one.
        tab.ask("Page.setBypassCSP", enabled=True)
        tab.go(f"http://127.0.0.1:{server.port}/", width)
        assert "cannot be read" in tab.value("document.body.textContent")
        tab.value(axe + ";0")
        assert tab.value(SERIOUS) == []
