"""Results that somebody else sent: what they name, link to and hold is read as data, and costs no more than itself."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_json
from connector_tax.read.report.manifest import COLUMNS, build_manifest, with_section
from connector_tax.read.report.page import build_report
from connector_tax.read.report.status import status_text
from connector_tax.run.measure.run import measure_run
from connector_tax.workflow import DATE_VARIABLE, open_study

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, ROOT, Campaign
from hostile import IRREGULAR, Watch, put
from read_through import STAGES, read
from strangers import (  # noqa: F401 - fixtures
    ALL,
    BEHAVIOURS,
    CELL,
    CONFIG,
    FOLDER,
    RUN,
    SECRET,
    SECTIONS,
    campaign,
    change_json,
    others,
    sound,
    watch,
)

# The report and its figures.


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../../../secret", "../campaign.json", "", None, "fig1.svg\n", 7]
)
def test_a_report_embeds_figures_only(campaign: Campaign, watch: Watch, name: object) -> None:
    def other(index: Any) -> None:
        next(f for f in index["figures"] if f["drawn"])["files"]["svg"] = name

    change_json(campaign.root / "figures" / "index.json", other)
    (campaign.root / "report.html").unlink()
    with pytest.raises(ArtifactError, match=r"index.json: .*figures\[\d\]\.files\.svg(`| is no bare name)"):
        build_report(campaign.root)
    assert not (campaign.root / "report.html").exists()


@pytest.mark.parametrize("kind", IRREGULAR)
def test_a_figure_that_is_no_file_is_refused(campaign: Campaign, watch: Watch, kind: str) -> None:
    put(campaign.root / "figures" / "fig1_ttft_vs_rate.svg", kind, campaign.root.parents[2] / "secret")
    with pytest.raises(
        ArtifactError, match=r"fig1_ttft_vs_rate.svg: (is a link|cannot be read: it is no regular file)"
    ):
        build_report(campaign.root)


@pytest.mark.parametrize(
    "index", [[], {"figures": {}}, {"figures": [1]}, {"figures": [{"name": "x", "number": 1, "drawn": True}]}]
)
def test_an_index_of_another_form_is_one_message(campaign: Campaign, index: Any) -> None:
    write_json(campaign.root / "figures" / "index.json", index)
    with pytest.raises(ArtifactError, match=r"index.json: .*Draw the figures again"):
        build_report(campaign.root)


# Dates, names and links: where things are written.


@pytest.mark.parametrize(
    "date", ["../../..", "/tmp", "2026-11-20/../../..", "2026-11-20\n", "2026-13-40", "", None, 7, ["x"]]
)
def test_no_date_leads_out_of_the_results(campaign: Campaign, watch: Watch, date: object) -> None:
    """Measuring, reading and asking how far it is alike."""
    change_json(campaign.root / "campaign.json", lambda d: d.update(date=date))
    said = (
        r"date is no date \(YYYY-MM-DD\)"
        if isinstance(date, str)
        else r"Expected `str`, got .* - at `\$.date`"
    )
    for act in (
        lambda: measure_run(campaign.root / "campaign.json", "plain", "a"),
        lambda: read(campaign.root),
        lambda: build_manifest(campaign.root),
        lambda: status_text(campaign.config, campaign.root.parent, Path("demo.yaml")),
    ):
        with pytest.raises(ArtifactError, match=f"campaign.json: {said}"):
            act()


@pytest.mark.parametrize(
    "name", ["../x", "/etc", "a/b", "demo\n", "<script>", "x](javascript:y)", "", None, 7]
)
def test_no_campaign_and_no_configuration_has_such_a_name(
    campaign: Campaign, watch: Watch, name: object
) -> None:
    file = campaign.root / "campaign.json"
    before = file.read_text()
    change_json(file, lambda d: d.update(campaign=name))
    said = (
        "campaign is no name of a campaign"
        if isinstance(name, str)
        else r"Expected `str`, .* at `\$.campaign`"
    )
    with pytest.raises(ArtifactError, match=f"campaign.json: {said}"):
        read(campaign.root)
    file.write_text(before)
    change_json(file, lambda d: d["config"]["connectors"][1].update(id=name))
    with pytest.raises(ArtifactError, match=r"campaign.json: .* at `\$.config.connectors\[1\].id`"):
        read(campaign.root)


@pytest.mark.parametrize("connector", ["../../../outside", "/tmp/outside", "a/b", ".."])
def test_a_run_has_no_folder_but_its_own(campaign: Campaign, watch: Watch, connector: str) -> None:
    with pytest.raises(ArtifactError, match="is no bare name"):
        campaign.folder.run(DATE, connector, "a")
    with pytest.raises(ArtifactError, match="is no bare name"):
        campaign.run("plain", "a").cell(connector)


@pytest.mark.parametrize(
    "name", ["tables", "figures", "preflight", "logs", "logs/aggregate.log", "MANIFEST.tsv", ".start.lock"]
)
def test_nothing_is_written_through_a_link(
    campaign: Campaign,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """``logs/aggregate.log`` is written by ``tee``, the lock by whoever starts: both would go where the link points."""
    outside = campaign.root.parents[2] / "outside"
    path = campaign.root / name
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    with pytest.raises(ArtifactError, match=r": is a link .*What is written there\s+would lie elsewhere"):
        read(campaign.root)
    monkeypatch.chdir(campaign.root.parents[1])
    monkeypatch.setattr(os, "_exit", _raise_exit)
    for measuring in (True, False):
        with pytest.raises(SystemExit):
            open_study(_yaml(), "demo.yaml", measuring=measuring, environment={})
        assert "is a link" in capsys.readouterr().err
    assert not outside.exists()


def _raise_exit(code: int) -> None:
    raise SystemExit(code)


def _yaml() -> dict[str, Any]:
    import yaml

    value: dict[str, Any] = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    return {**value, "campaign": "demo"}


def test_nobody_measures_into_a_linked_run(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(campaign.root / RUN)
    (campaign.root / RUN).symlink_to(campaign.root.parents[2])
    monkeypatch.chdir(campaign.root.parents[1])
    monkeypatch.setattr(os, "_exit", _raise_exit)
    with pytest.raises(SystemExit):
        open_study(_yaml(), "demo.yaml", measuring=True, environment={})
    assert "phase_a: is a link" in capsys.readouterr().err
    # It was made with another analysis than the config's, and reading anew is what is asked for.
    (campaign.root / "aggregate.json").unlink()
    open_study(_yaml(), "demo.yaml", measuring=False, environment={})


@pytest.mark.parametrize("date", ["../../..", "today", "2026-11-20/x"])
def test_the_environment_dates_no_campaign_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], date: str
) -> None:
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


def test_a_campaign_that_is_a_link_has_its_manifest_beside_the_link(
    campaign: Campaign, tmp_path: Path
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere" / "demo"
    shutil.copytree(campaign.root, elsewhere)
    shutil.rmtree(campaign.root)
    campaign.root.symlink_to(elsewhere)
    _, page = build_manifest(project / "results" / "demo")
    assert page == project / "results" / "MANIFEST.md"
    assert not (tmp_path / "elsewhere" / "MANIFEST.md").exists()


# Pages and terminals.

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


def test_a_manifest_is_made_for_a_user_without_a_home(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    campaign.run("plain", "a").launch_sh.write_text("exec python -m vllm\n")
    monkeypatch.setattr(Path, "home", unknown)
    assert "python -m vllm" in build_manifest(campaign.root)[1].read_text()


def _cells_of(line: str) -> int:
    """As GitHub counts: a backslash takes the next character with it, whatever that is."""
    bars, k = 0, 0
    while k < len(line):
        bars += line[k] == "|"
        k += 2 if line[k] == "\\" else 1
    return bars - 1


def test_status_moves_no_cursor(campaign: Campaign, watch: Watch) -> None:
    campaign.skip(CONFIG, MARKUP + "x" * 300_000)
    text = status_text(campaign.config, campaign.root.parent, Path("demo.yaml"))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 2100


@pytest.mark.parametrize(
    "name",
    [".start.lock", "logs/progress.log", f"{RUN}/engine.pid.json", f"{DATE}_plain/phase_a/receipt.json"],
)
def test_status_waits_for_no_pipe(campaign: Campaign, watch: Watch, name: str) -> None:
    path = campaign.root / name
    path.parent.mkdir(exist_ok=True)
    put(path, "pipe", path)
    (campaign.root / RUN / "receipt.json").unlink()
    try:
        assert "campaign demo" in status_text(campaign.config, campaign.root.parent, Path("demo.yaml"))
    except ArtifactError as error:
        assert "no regular file" in str(error)


def test_the_stages_are_those_of_the_workflow() -> None:
    """``read`` runs what the rules run; a stage that it left out would not be watched."""
    rules = (ROOT / "workflow" / "rules" / "read.smk").read_text()
    scripts = {ROOT / name for name in re.findall(r'code\("(scripts/\w+\.py)"\)', rules)}
    assert {
        re.findall(r"(?:commands|report)\.(\w+) import", script.read_text())[0] for script in scripts
    } == {*STAGES, "manifest"}
