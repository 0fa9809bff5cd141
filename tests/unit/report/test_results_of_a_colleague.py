"""A colleague's results are data: what they name lies beside them, what they say is text, and a damaged file is one message."""

import json
import os
import re
import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import DATE, ROOT, Campaign, campaign_config
from invented_server import Behaviour
from read_through import read

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_json
from connector_tax.read.report.manifest import COLUMNS, build_manifest, with_section
from connector_tax.read.report.page import build_report
from connector_tax.read.report.status import status_text
from connector_tax.run.measure.run import measure_run
from connector_tax.workflow import DATE_VARIABLE, open_study

SECTIONS: dict[str, Any] = {
    "campaign": "demo",
    "connectors": ["plain", "noop_connector"],
    "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
    "phase_b": {"input_tokens": [256], "output_tokens": [16]},
    "phase_b_prime": {"configs": [], "shapes": []},
    "cell": {"warmup_s": 1, "duration_s": 5, "min_completed": 10, "max_cell_s": 10},
    "analysis": {"bootstrap_draws": 200},
}
PLAIN = Behaviour(noise=0.05)
BEHAVIOURS = {"plain": PLAIN, "noop_connector": PLAIN.taxed(0.1)}
CONFIG, CELL = "noop_connector", "r2_256x16"
SECRET = "the secret of somebody who never asked for it"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    root = tmp_path_factory.mktemp("sound") / "demo"
    campaign = Campaign(root, campaign_config(**SECTIONS), BEHAVIOURS, max_steps=20)
    campaign.measure_everything()
    assert read(root).problems == []
    return campaign


@pytest.fixture
def campaign(sound: Campaign, tmp_path: Path) -> Campaign:
    """At ``results/demo`` of a project, with a secret beside the results."""
    shutil.copytree(sound.root, tmp_path / "project" / "results" / "demo")
    (tmp_path / "secret").write_text(SECRET)
    twin = copy(sound)
    twin.root = tmp_path / "project" / "results" / "demo"
    return twin


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize("name", ["/etc/passwd", "../campaign.json", "", None, "fig1.svg\n"])
def test_a_report_embeds_figures_only(campaign: Campaign, name: object) -> None:
    def other(index: Any) -> None:
        next(f for f in index["figures"] if f["drawn"])["files"]["svg"] = name

    change_json(campaign.root / "figures" / "index.json", other)
    (campaign.root / "report.html").unlink()
    with pytest.raises(ArtifactError, match=r"index.json: .*figures\[\d\]\.files\.svg(`| is no bare name)"):
        build_report(campaign.root)
    assert not (campaign.root / "report.html").exists()


@pytest.mark.parametrize("index", [[], {"figures": [{"name": "x", "number": 1, "drawn": True}]}])
def test_an_index_of_another_form_is_one_message(campaign: Campaign, index: Any) -> None:
    write_json(campaign.root / "figures" / "index.json", index)
    with pytest.raises(ArtifactError, match=r"index.json: .*Draw the figures again"):
        build_report(campaign.root)


@pytest.mark.parametrize("date", ["../../..", "2026-11-20/../../..", "2026-11-20\n", "2026-13-40", None])
def test_no_date_leads_out_of_the_results(campaign: Campaign, date: object) -> None:
    """Measuring, reading and asking how far it is alike."""
    change_json(campaign.root / "campaign.json", lambda d: d.update(date=date))
    for act in (
        lambda: measure_run(campaign.root / "campaign.json", "plain", "a"),
        lambda: read(campaign.root),
        lambda: build_manifest(campaign.root),
        lambda: status_text(campaign.config, campaign.root, "connector-tax run demo"),
    ):
        with pytest.raises(ArtifactError, match=r"campaign.json: Expected `str`.* - at `\$.date`"):
            act()


@pytest.mark.parametrize("name", ["../x", "demo\n", "<script>", "", None])
def test_no_campaign_and_no_configuration_has_such_a_name(campaign: Campaign, name: object) -> None:
    file = campaign.root / "campaign.json"
    before = file.read_text()
    change_json(file, lambda d: d.update(campaign=name))
    with pytest.raises(ArtifactError, match=r"campaign.json: Expected `str`.* - at `\$.campaign`"):
        read(campaign.root)
    file.write_text(before)
    change_json(file, lambda d: d["config"]["connectors"][1].update(id=name))
    with pytest.raises(ArtifactError, match=r"campaign.json: .* at `\$.config.connectors\[1\].id`"):
        read(campaign.root)


@pytest.mark.parametrize("connector", ["/tmp/outside", "a/b", ".."])
def test_a_run_has_no_folder_but_its_own(campaign: Campaign, connector: str) -> None:
    with pytest.raises(ArtifactError, match="is no bare name"):
        campaign.folder.run(DATE, connector, "a")
    with pytest.raises(ArtifactError, match="is no bare name"):
        campaign.run("plain", "a").cell(connector)


def _raise_exit(code: int) -> None:
    raise SystemExit(code)


def _yaml() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    return {**value, "campaign": "demo"}


def test_the_environment_dates_no_campaign_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    date = "2026-11-20/x"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "_exit", _raise_exit)
    with pytest.raises(SystemExit):
        open_study(_yaml(), "demo.yaml", measuring=False, environment={DATE_VARIABLE: date})
    assert f"{DATE_VARIABLE}='{date}': no date" in capsys.readouterr().err


def test_results_that_are_a_link_have_their_manifest_beside_the_link(
    campaign: Campaign, tmp_path: Path
) -> None:
    """The folder that was named is the project's, wherever its disk is; a page elsewhere is nobody's."""
    project, disk = tmp_path / "project", tmp_path / "disk" / "of" / "results"
    disk.parent.mkdir(parents=True)
    shutil.move(project / "results", disk)
    (project / "results").symlink_to(disk)
    (project / "MANIFEST.md").write_text(with_section("# Runs\n", "demo", []))
    before = sorted(p.name for p in disk.parent.iterdir())
    written = build_manifest(project / "results" / "demo")
    assert written[1:] == [project / "results" / "MANIFEST.md", project / "MANIFEST.md"]
    assert "| results/demo/" in (project / "MANIFEST.md").read_text().replace("`", "")
    assert sorted(p.name for p in disk.parent.iterdir()) == before
    alone = project / "results" / "linked"
    alone.symlink_to(disk / "demo")
    assert build_manifest(alone)[1] == project / "results" / "MANIFEST.md", (
        "a campaign that is a link as well"
    )


MARKUP = "<script>alert(1)</script> ![i](http://example.invalid/i.png) [l](javascript:1) \\| | `c` <!-- end campaign demo --> \x1b[2J"


def test_no_text_of_a_run_is_more_than_text_in_a_manifest(campaign: Campaign) -> None:
    """Git shows that page as Markdown: neither tag nor link, image, comment or further cell comes of a reason."""
    campaign.skip(CONFIG, MARKUP)
    script = campaign.run("plain", "a").launch_sh
    script.write_text(f"# As it ran: python {MARKUP}\n")
    _, page = build_manifest(campaign.root)
    text = page.read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| "))
    shown = re.sub(r"`[^`]*`", "", rows)  # what stands in code is shown as it is
    assert "<script" not in shown and "\x1b" not in text
    assert not re.search(r"(?<!\\)[!\[]", shown)
    (row,) = [line for line in text.splitlines() if "&lt;script" in line and "| B |" in line]
    assert "\\!\\[i\\](http://example.invalid/i.png) \\[l\\](javascript:1)" in row
    for line in (x for x in text.splitlines() if x.startswith("| ")):
        assert _cells_of(line) == len(COLUMNS), line
    build_manifest(campaign.root)
    assert page.read_text() == text


def _cells_of(line: str) -> int:
    """As GitHub counts: a backslash takes the next character with it, whatever that is."""
    bars, k = 0, 0
    while k < len(line):
        bars += line[k] == "|"
        k += 2 if line[k] == "\\" else 1
    return bars - 1


def test_status_moves_no_cursor(campaign: Campaign) -> None:
    campaign.skip(CONFIG, MARKUP + "x" * 300_000)
    text = status_text(campaign.config, campaign.root, "connector-tax run demo")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 2100
