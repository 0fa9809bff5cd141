"""``verify`` of results that are no bundle: it says what they are, what is not as it was measured, and what to run."""

from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config

from connector_tax.base.errors import ArtifactError
from connector_tax.commands.verify import COMMAND
from connector_tax.read.report.manifest import build_manifest


@pytest.fixture
def found(tmp_path: Path) -> Campaign:
    found = Campaign(tmp_path / "results", campaign_config(**SMALL), max_steps=5)
    found.measure_everything()
    build_manifest(found.root)
    return found


def verified(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    code = COMMAND.call([str(path), *options])
    return code, capsys.readouterr().out.splitlines()


def test_a_campaigns_folder_is_said_to_be_one_with_what_to_run(
    found: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = verified(found.root, capsys)
    assert code == 0
    assert lines[0] == f"{found.root}: results of a campaign, and no bundle"
    assert lines[-2].endswith("all as they were measured")
    assert verified(found.root.parent, capsys)[1][0] == lines[0], "as one of the campaigns of a folder, too"
    assert (
        f"connector-tax report {found.root};" in lines[-1]
        and f"connector-tax bundle {found.root}" in lines[-1]
    )


def test_a_part_is_told_from_its_campaign(
    found: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = found.folder.runs()[0]
    for path in (run.path, run.path.parent, run.finished_cells()[0].path):
        code, lines = verified(path, capsys)
        assert code == 0 and lines[0] == f"{path}: part of {found.root}: results of a campaign, and no bundle"
        assert lines[-1].endswith(f"connector-tax bundle {found.root}")
    monkeypatch.chdir(run.path)
    assert verified(Path(), capsys)[1][0].startswith(f".: part of {found.root}")


def test_a_receipt_that_was_edited_lost_or_torn_is_named(
    found: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    edited, lost, torn, gone, *_ = found.folder.runs()
    gone.path.rename(found.root / "elsewhere")
    edited.receipt.write_text(edited.receipt.read_text() + " ")
    lost.receipt.unlink()
    torn.receipt.write_text(torn.receipt.read_text()[:20])
    code, lines = verified(found.root, capsys)
    assert code == 1 and "4 findings" in lines[-2]
    said = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
    assert "differs from its checksum in MANIFEST.tsv" in said[str(edited.receipt)]
    assert said[str(lost.receipt)] == said[str(gone.receipt)] == "is missing, and MANIFEST.tsv lists it"
    assert "not valid JSON" in said[str(torn.receipt)]


def test_before_the_first_report_cells_are_verified_by_their_receipts(
    found: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    found.folder.manifest.unlink()
    assert verified(found.root, capsys)[0] == 0
    cell = found.folder.runs()[0].finished_cells()[0]
    cell.requests.write_bytes(cell.requests.read_bytes()[::-1])
    code, lines = verified(found.root, capsys)
    assert code == 1 and lines[1].startswith(f"{cell.path}: {cell.requests.name} differs from its checksum")


def test_reproduce_of_results_names_what_does_that(found: Campaign) -> None:
    with pytest.raises(ArtifactError, match=r"no bundle, .*connector-tax report"):
        COMMAND.call([str(found.root), "--reproduce"])
