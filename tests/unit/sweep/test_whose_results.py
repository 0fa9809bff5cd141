"""A folder's name does not say whose results lie in it: those of before an edit, of another campaign or of a link stand in no table."""

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_sweep_command import AXES, analysed, project, rewritten, rows_of, sweep_of, swept

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.sweep import SweepCell

__all__ = ["project"]
DATE = "2026-10-01"


def started(project: Path, cell: SweepCell) -> CampaignFolder:
    folder = CampaignFolder(project / "results" / cell.name)
    write_json(
        folder.campaign_file, campaign_document(cell.config, date=DATE, created_utc=f"{DATE}T02:00:00Z")
    )
    return folder


def all_ended(project: Path, cell: SweepCell) -> CampaignFolder:
    folder = started(project, cell)
    skip = {"decision": "skip", "reason": "it is not installed"}
    write_json(folder.preflight_status, {"configs": dict.fromkeys(cell.config.connector_ids, skip)})
    write_json(
        folder.reference_rates, {"ref_safe_per_s": 2.0, "ref_load_per_s": 2.0, "b_prime_needed": False}
    )
    for phase in cell.config.phases:
        for connector in cell.config.members(phase):
            run = folder.run(DATE, connector, phase)
            write_receipt(run, campaign=cell.name, status="skipped", reason="it is not installed")
    if not folder.aggregate.exists():
        analysed(project, cell.name, 1, 0.1)
    folder.figures.mkdir(exist_ok=True)
    for made in (
        folder.aggregate_csv,
        folder.figures / "index.json",
        folder.report,
        folder.manifest,
    ):
        made.write_text("")
    return folder


def of_nixl(out: str, metric: str = "TPOT") -> dict[str, list[str]]:
    """Other axes -> what stands in the columns."""
    return {row[0]: row[3:] for row in rows_of(out) if row[1:3] == ["NIXL (both)", f"{metric} p90 tax"]}


def printed(capsys: pytest.CaptureFixture[str], *action: str) -> str:
    capsys.readouterr()
    assert swept(*action) == 0
    return capsys.readouterr().out


def test_results_of_before_an_edit_are_no_number_of_the_edited_entry(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day, name in enumerate(("r1-small", "r2-small"), start=1):
        analysed(project, f"study-{name}", day, 0.1)
    assert all(text.startswith("+10 %") for text in of_nixl(printed(capsys, "table"))["model small"])
    axes: Any = copy.deepcopy(AXES)
    axes["release"][1]["set"] = {"engine": {"env": {"RELEASE": "3"}, "served_model_name": "another"}}
    rewritten(project, axes=axes)
    first, second = of_nixl(printed(capsys, "table"))["model small"]
    assert first.startswith("+10 %")
    assert second == "changed: engine.env.RELEASE, engine.served_model_name"


def test_axes_that_change_places_change_no_number(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copies = [{"name": "a"}, {"name": "b", "set": {"seed": 9}}]
    models = [{"name": "a"}, {"name": "b", "set": {"cell": {"min_completed": 41}}}]
    rewritten(project, axes={"model": models, "copy": copies})
    for day, name in enumerate(("a-a", "a-b", "b-a", "b-b"), start=1):
        analysed(project, f"study-{name}", day, day / 10)
    rewritten(project, axes={"copy": copies, "model": models})
    rows = of_nixl(printed(capsys, "table", "--across", "model"))
    assert rows["copy a"][0].startswith("+10 %") and rows["copy b"][1].startswith("+40 %")
    assert rows["copy a"][1] == rows["copy b"][0] == "changed: cell.min_completed, seed"


def test_a_copied_folder_and_a_link_to_another_are_nobodys(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analysed(project, "study-r1-small", 1, 0.1)
    results = project / "results"
    shutil.copytree(results / "study-r1-small", results / "study-r2-small")
    (results / "study-r1-large").symlink_to(results / "study-r1-small")
    rows = of_nixl(printed(capsys, "table"))
    assert rows["model small"][1] == "changed: campaign, engine.env.RELEASE"
    assert rows["model large"][0].startswith("changed: campaign, ")


def test_runs_that_ended_after_the_analysis_are_said_beside_its_numbers(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analysed(project, "study-r1-small", 1, 0.1)
    folder = all_ended(project, sweep_of(project).cells[0])
    os.utime(folder.aggregate, (1, 1))
    out = printed(capsys, "table")
    assert of_nixl(out)["model small"][0].startswith("+10 %")
    assert "measured: without an analysis of its newest runs" in out
    os.utime(folder.aggregate)
    assert "newest runs" not in printed(capsys, "table")


def test_connectors_of_one_label_have_rows_of_their_own(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are NIXL (both), and the numbers of one stood in place of the other's."""
    base = yaml.safe_load((project / "base.yaml").read_text())
    base["connectors"] = ["plain", "nixl_both", "nixl_virtual"]
    (project / "base.yaml").write_text(yaml.safe_dump(base))
    who = [row[1] for row in rows_of(printed(capsys, "table")) if row[0] == "model small"]
    assert who.count("nixl_both") == who.count("nixl_virtual") == 2 and "NIXL (both)" not in who


def test_an_edit_of_what_enters_no_hash_is_none(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in sweep_of(project).cells:
        all_ended(project, cell)
    base = yaml.safe_load((project / "base.yaml").read_text())
    base["engine"] = {**base["engine"], "stop_grace_s": 7, "python": "/another/bin/python"}
    (project / "base.yaml").write_text(yaml.safe_dump(base))
    assert "4 of 4 campaigns finished" in printed(capsys, "status")


def test_an_edit_that_changes_a_type_alone_is_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``true`` and ``1`` are one to Python; an engine is launched otherwise."""
    all_ended(project, sweep_of(project).cells[0])
    base = yaml.safe_load((project / "base.yaml").read_text())
    assert base["engine"]["args"]["enable_prefix_caching"] is True
    base["engine"]["args"]["enable_prefix_caching"] = 1
    (project / "base.yaml").write_text(yaml.safe_dump(base))
    assert "  changed: engine.args.enable_prefix_caching\n" in printed(capsys, "status")
    assert of_nixl(printed(capsys, "table"))["model small"][0] == "changed: engine.args.enable_prefix_caching"


def test_a_campaign_of_which_something_is_to_be_made_again_is_not_finished(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = all_ended(project, sweep_of(project).cells[0])
    assert "  finished\n" in printed(capsys, "status")
    folder.reference_rates.unlink()
    folder.aggregate.unlink()
    folder.aggregate_csv.unlink()
    (folder.figures / "index.json").unlink()
    wanted = "  measured: without reference_rates.json, aggregate.json, aggregate.csv, figures/index.json\n"
    assert wanted in printed(capsys, "status")
