"""Results that somebody else sent: what they name, link to and hold is read as data, and costs no more than itself."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from connector_tax.artifacts.receipts import write_receipt
from connector_tax.errors import ArtifactError
from connector_tax.files import write_json
from connector_tax.measure.run import measure_run
from connector_tax.report.manifest import COLUMNS, build_manifest, with_section
from connector_tax.report.page import build_report
from connector_tax.report.status import status_text
from connector_tax.workflow import DATE_VARIABLE, open_study

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, ENGINE, ROOT, Behaviour, Campaign, campaign_config
from hostile import IRREGULAR, Watch, put, watched
from read_through import STAGES, Result, read

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
RUN = f"{DATE}_{CONFIG}/phase_a"
FOLDER = f"{RUN}/cells/{CELL}"
SECRET = "the secret of somebody who never asked for it"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    root = tmp_path_factory.mktemp("sound") / "demo"
    campaign = Campaign(root, campaign_config(**SECTIONS), BEHAVIOURS, max_steps=20)
    campaign.measure_everything()
    with pytest.MonkeyPatch.context() as patch:
        assert read(root, patch).problems == []
    shutil.rmtree(root / "tables")
    return campaign


@pytest.fixture
def campaign(sound: Campaign, tmp_path: Path) -> Campaign:
    """At ``results/demo`` of a project, with a secret beside the results."""
    shutil.copytree(sound.root, tmp_path / "project" / "results" / "demo")
    (tmp_path / "secret").write_text(SECRET)
    twin = copy(sound)
    twin.root = tmp_path / "project" / "results" / "demo"
    return twin


@pytest.fixture
def watch(campaign: Campaign, tmp_path: Path) -> Iterator[Watch]:
    """Whatever the test does, it opens nothing beside the results and starts nothing."""
    with watched(tmp_path, campaign.root.parent) as found:
        yield found
    assert found.opened == []
    assert found.started == []
    assert (tmp_path / "secret").read_text() == SECRET


def others(found: Result) -> set[tuple[str, ...]]:
    return {key for key, cell in found.cells().items() if cell["usable"]}


ALL = {(c, p, cell) for c in BEHAVIOURS for p, cell in (("a", CELL), ("a", "r4_256x16"), ("b", "r4_256x16"))}


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


# The report and its figures.


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../../../secret", "../campaign.json", "", None, "fig1.svg\n", 7]
)
def test_a_report_embeds_figures_only(campaign: Campaign, watch: Watch, name: object) -> None:
    def other(index: Any) -> None:
        next(f for f in index["figures"] if f["drawn"])["files"]["svg"] = name

    change_json(campaign.root / "figures" / "index.json", other)
    (campaign.root / "report.html").unlink()
    with pytest.raises(ArtifactError, match=r"index.json: figures\[\d\].files.svg is no bare name"):
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
def test_no_date_leads_out_of_the_results(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, date: object
) -> None:
    """Measuring, reading and asking how far it is alike."""
    change_json(campaign.root / "campaign.json", lambda d: d.update(date=date))
    for act in (
        lambda: measure_run(campaign.root / "campaign.json", "plain", "a"),
        lambda: read(campaign.root, monkeypatch),
        lambda: build_manifest(campaign.root),
        lambda: status_text(campaign.config, campaign.root.parent, Path("demo.yaml")),
    ):
        with pytest.raises(ArtifactError, match=r"campaign.json: date is no date \(YYYY-MM-DD\)"):
            act()


@pytest.mark.parametrize(
    "name", ["../x", "/etc", "a/b", "demo\n", "<script>", "x](javascript:y)", "", None, 7]
)
def test_no_campaign_and_no_configuration_has_such_a_name(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    file = campaign.root / "campaign.json"
    before = file.read_text()
    change_json(file, lambda d: d.update(campaign=name))
    with pytest.raises(ArtifactError, match=r"campaign.json: campaign is no name of a campaign"):
        read(campaign.root, monkeypatch)
    if name not in ("<script>", "x](javascript:y)"):  # what is a bare name and no id is no path
        file.write_text(before)
        change_json(file, lambda d: d["config"]["connectors"][1].update(id=name))
        with pytest.raises(ArtifactError, match=r"campaign.json: config.connectors\[1\].id is no bare name"):
            read(campaign.root, monkeypatch)


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
        read(campaign.root, monkeypatch)
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


# What a receipt lists.


@pytest.mark.parametrize(
    "name", ["/dev/zero", "/etc/passwd", "../../../../../../secret", "..", ".", "", "cell.json\n"]
)
@pytest.mark.parametrize("document", ["receipt", "cell"])
def test_a_listed_file_is_one_of_the_cell(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, document: str, name: str
) -> None:
    """/dev/zero has no end; a checksum of somebody's file would say whether a guess at its content is right."""
    path = campaign.root / (f"{RUN}/receipt.json" if document == "receipt" else f"{FOLDER}/cell.json")

    def listed(value: Any) -> None:
        entry = value if document == "cell" else next(c for c in value["cells"] if c["cell_id"] == CELL)
        entry["files"][name] = {"bytes": 1, "sha256": "0"}

    change_json(path, listed)
    if document == "cell":
        (campaign.root / RUN / "receipt.json").unlink()
    found = read(campaign.root, monkeypatch, draw=False)
    assert found.says(FOLDER, "is no bare name")
    assert others(found) == ALL - {(CONFIG, "a", CELL)}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("name", ["requests_A"])
def test_a_file_of_a_cell_that_is_none_costs_the_cell(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    (path,) = (campaign.root / FOLDER).glob(f"{name}*")
    put(path, kind, campaign.root.parents[2] / "secret")
    found = read(campaign.root, monkeypatch, draw=False)
    assert found.says(FOLDER, f"{path.name}: cannot be read: it is"), found.problems
    assert others(found) == ALL - {(CONFIG, "a", CELL)}
    assert SECRET not in (campaign.root / "report.html").read_text()


@pytest.mark.parametrize("place", [f"{DATE}_{CONFIG}", f"{RUN}/cells", FOLDER])
def test_a_linked_folder_is_named_and_not_followed(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its own content would count otherwise, from wherever it lies."""
    shutil.move(campaign.root / place, tmp_path / "elsewhere")
    (campaign.root / place).symlink_to(tmp_path / "elsewhere")
    with watched(tmp_path, campaign.root.parent) as watch:
        found = read(campaign.root, monkeypatch, draw=False)
    assert watch.opened == []
    assert found.says(place, "is a link, not followed")
    assert (CONFIG, "a", CELL) not in others(found)
    assert {key for key in ALL if key[0] == "plain"} <= others(found)


# One cell's own content.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{", "[" * 200_000, "nested too deep"),
        ('"reasons": []', '"reasons": ["\\ud800"]', "surrogates not allowed"),
        ('"prefix_cache_hits_delta": 0.0', f'"prefix_cache_hits_delta": {"9" * 300}', "beyond 64 bits"),
        ('"drained_ns": ', '"drained_ns": 5000000000000000000, "was": ', "window.drained_ns is 5"),
        ('"verdict": "valid"', '"verdict": "invalid", "verdict": "valid"', "stands twice"),
        ('"attempt": 1', '"attempt": [1]', "attempt is no int"),
    ],
)
def test_a_cell_that_stops_a_reader_costs_itself(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    """A list of 200,000 lists ends a recursive reader; half of a surrogate pair cannot be written on."""
    path = campaign.root / FOLDER / "cell.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    (campaign.root / RUN / "receipt.json").unlink()
    found = read(campaign.root, monkeypatch, draw=False)
    assert found.says(FOLDER, message), found.problems
    assert others(found) == ALL - {(CONFIG, "a", CELL)}


def _requests(change: Callable[[list[str]], list[str]]) -> Callable[[Campaign], None]:
    def apply(campaign: Campaign) -> None:
        from builders import reseal

        cell = campaign.run(CONFIG, "a").cell(CELL)
        lines = cell.requests.read_text().split("\n")
        cell.requests.write_bytes("\n".join(change(lines)).encode("utf-8", "surrogatepass"))
        reseal(cell)
        ids = [c.cell_id for c in campaign.run(CONFIG, "a").finished_cells()]
        write_receipt(
            campaign.run(CONFIG, "a"),
            campaign="demo",
            status="measured",
            cell_ids=ids,
            step_timing_available=True,
            engine=ENGINE,
        )

    return apply


def test_a_line_separator_inside_a_text_tears_no_line(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U+2028 may stand in JSON as it is; Python's splitlines cuts there."""
    _requests(
        lambda lines: [lines[0].replace('"error":null', '"error":"one\u2028two\x85three"'), *lines[1:]]
    )(campaign)
    found = read(campaign.root, monkeypatch, draw=False)
    assert found.problems == []
    assert others(found) == ALL


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"prompt_tokens":256', '"prompt_tokens":"many"'),
        ('"prompt_tokens":256', '"prompt_tokens":[[]]'),
        ('"t_send_ns":', '"t_send_ns":99999999999999999999,"error":'),
        ('"worker":0', '"worker":' + "[" * 5000),
        ('"phase":"', '"phase":"\\ud800'),
        ('"seq":0', '"seq":-5'),
        ('"error":null', '"error":{"a":1}'),
    ],
)
def test_a_request_of_another_form_costs_its_cell(
    campaign: Campaign, watch: Watch, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    def change(lines: list[str]) -> list[str]:
        assert old in lines[0]
        return [lines[0].replace(old, new), *lines[1:]]

    _requests(change)(campaign)
    found = read(campaign.root, monkeypatch, draw=False)
    assert found.says(FOLDER, f"requests_A_{CELL}.jsonl: line 1 ")
    assert others(found) == ALL - {(CONFIG, "a", CELL)}


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
    assert {name for name in STAGES if f"scripts/{name}.py" in rules} == set(STAGES)
