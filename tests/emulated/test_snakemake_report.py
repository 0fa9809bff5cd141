"""``snakemake --report`` of a finished campaign: its figures, with the captions that were computed for it."""

import html
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import Project

from connector_tax.base.config import load_campaign
from connector_tax.run.rehearsal.campaign import rehearse

pytestmark = pytest.mark.emulated


class Rehearsed(Project):
    @property
    def results(self) -> Path:
        return self.root / "results" / "test-rehearsed"


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A campaign in virtual time, read to its report."""
    project = Rehearsed(tmp_path_factory.mktemp("study") / "checkout")
    project.configure()
    rehearse(load_campaign(project.root / "config" / "test.yaml"), project.results.parent, processes=1)
    # As it was rehearsed, so that a start that could measure finds nothing to do.
    costs = json.loads((project.results / "campaign.json").read_text())["config"]["engine"]["model_file"]

    def as_rehearsed(config: dict[str, Any]) -> None:
        config["campaign"] = project.results.name
        config["engine"]["model_file"] = costs

    project.configure(as_rehearsed)
    done = project.snakemake("report")
    assert done.returncode == 0, done.stderr[-3000:]
    return project


@pytest.fixture
def finished(read: Project) -> Iterator[Project]:
    """With its figures as they were made, whatever the test before did to them."""
    kept = read.root / "figures"
    shutil.copytree(read.results / "figures", kept)
    yield read
    shutil.rmtree(read.results / "figures")
    shutil.move(kept, read.results / "figures")
    (read.root / "study.html").unlink(missing_ok=True)


def results_of(page: str) -> dict[str, Any]:
    """What the page has of each file: by its path."""
    found = re.search(r"var results = (\{.*?\});?\n", page)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded


def text_of(caption: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", caption)).split())


def test_it_has_every_figure_with_its_caption(finished: Project) -> None:
    done = finished.snakemake("report", "--report", "study.html")
    assert done.returncode == 0, done.stderr[-3000:]
    page = (finished.root / "study.html").read_text()
    shown = results_of(page)
    entries = json.loads((finished.results / "figures" / "index.json").read_text())["figures"]
    drawn = [e for e in entries if e["drawn"]]
    assert len(drawn) > 3
    assert set(shown) == {f"results/test-rehearsed/figures/{e['name']}.svg" for e in drawn}
    for entry in drawn:
        result = shown[f"results/test-rehearsed/figures/{entry['name']}.svg"]
        assert result["mime_type"] == "image/svg+xml"
        assert result["labels"] == {"figure": entry["name"]}
        text = text_of(result["caption"])
        assert text == " ".join(f"{entry['title']} {entry['caption']}".split())
        assert "<strong>" in result["caption"]
    description = re.search(
        r"What switching on a KV connector costs.*?Campaign.{0,80}?>test-rehearsed<", page
    )
    assert description is not None


def test_it_measures_nothing_and_leaves_nothing_to_be_done(finished: Project) -> None:
    """The whole study as a target, as `snakemake --report` alone has it; and what is finished stays finished."""
    before = finished.cells()
    assert finished.snakemake("--report", "study.zip").returncode == 0
    with zipfile.ZipFile(finished.root / "study.zip") as archive:
        names = archive.namelist()
    assert "study/report.html" in names
    assert sum(name.endswith(".svg") for name in names) > 3
    assert finished.cells() == before
    again = finished.snakemake("report", "--dry-run")
    assert not re.search(r"rule (aggregate|draw|write_report|write_manifest):", again.stdout + again.stderr)


def test_names_of_a_campaign_are_no_markup(finished: Project) -> None:
    """A label may be anything; reStructuredText would read files and set links by it."""
    path = finished.results / "figures" / "index.json"
    index = json.loads(path.read_text())
    entry = next(e for e in index["figures"] if e["drawn"])
    entry["title"] = "**x** `y <https://example.org>`_ |z| snake_ {{ 7 * 7 }} <script>alert(1)</script> \\n"
    entry["caption"] = ".. include:: /etc/passwd .. raw:: html <b>bold</b> $%&"
    path.write_text(json.dumps(index))
    done = finished.snakemake("report", "--report", "study.html")
    assert done.returncode == 0, done.stderr[-3000:]
    caption = results_of((finished.root / "study.html").read_text())[
        f"results/test-rehearsed/figures/{entry['name']}.svg"
    ]["caption"]
    assert "<script>" not in caption and "<a " not in caption and "<b>" not in caption
    shown = text_of(caption)
    for text in (entry["title"], entry["caption"]):
        assert " ".join(html.unescape(text).split()) in shown or text in shown
