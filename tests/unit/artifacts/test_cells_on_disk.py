"""A cell on disk is complete or absent; a receipt says the same thing twice in the same bytes."""

from pathlib import Path

import msgspec
import pytest

from connector_tax.base.artifacts.cells import open_cell, publish_cell, read_cell, reusable
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt, write_receipt
from connector_tax.base.documents.cell import CellDocument, ClockPair, CpuUse, Health
from connector_tax.base.documents.identity import CodeVersion, EngineIdentity
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import sha256_of, write_json
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord

REQUEST = RequestRecord(0, 1, 2, 3, 4, 5, "ok", 8, 16, 0, 0, "window")
DOCUMENT = CellDocument(
    campaign="c",
    connector="plain",
    phase="a",
    engine=EngineIdentity(versions={}, gpu=(), host={}),
    code=CodeVersion(loadgen_sha256="x"),
    spec_hash="abc",
    cell_id="r1_8x16",
    spec=CellSpec("a", 1.0, 8, 16, "fixed", 1.0, 1.0, 1, 2.0, 1.0, 8, 1, 10, 20),
    window=CellWindow(0, 1, 2, 3, True),
    clock=ClockPair(monotonic_ns=0, utc_ns=0),
    health=Health(),
    verdict="valid",
    reasons=(),
    flags=(),
    cpu=CpuUse(),
)


def a_run(tmp_path: Path):  # type: ignore[no-untyped-def]
    return CampaignFolder(tmp_path).run("2026-01-02", "plain", "a")


def test_an_unfinished_cell_does_not_count(tmp_path: Path) -> None:
    """What kill -9 leaves behind has a temporary name and is thrown away by the next try."""
    run = a_run(tmp_path)
    cell = run.cell("r1_8x16")
    temporary = open_cell(cell)
    temporary.requests.write_text("half a li")
    assert run.finished_cells() == []
    assert not reusable(cell, "abc")
    assert list(open_cell(cell).path.iterdir()) == []


def test_a_finished_cell_is_used_again_only_for_its_own_specification(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    cell = run.cell("r1_8x16")
    open_cell(cell)
    publish_cell(cell, [REQUEST], DOCUMENT)
    assert reusable(cell, "abc")
    assert not reusable(cell, "abd")
    assert [c.cell_id for c in run.finished_cells()] == ["r1_8x16"]
    (open_cell(cell).path / "only_new.txt").write_text("x")
    (cell.path / "only_old.txt").write_text("x")
    publish_cell(cell, [REQUEST], msgspec.structs.replace(DOCUMENT, spec_hash="abd"))
    assert read_cell(cell).spec_hash == "abd", "and measured again it is replaced whole"
    assert {p.name for p in cell.path.iterdir() if p.suffix == ".txt"} == {"only_new.txt"}
    assert [p.name for p in cell.path.parent.iterdir()] == ["r1_8x16"]


def test_each_file_of_a_cell_is_listed_with_its_checksum(tmp_path: Path) -> None:
    cell = a_run(tmp_path).cell("r1_8x16")
    open_cell(cell)
    publish_cell(cell, [REQUEST], DOCUMENT)
    entry = read_cell(cell).files["requests_A_r1_8x16.jsonl"]
    assert (entry.bytes, entry.sha256) == (cell.requests.stat().st_size, sha256_of(cell.requests))


def test_a_receipt_written_again_is_not_touched(tmp_path: Path) -> None:
    """A resume that measured nothing must not look newer than the analysis made from it."""
    run = a_run(tmp_path)
    cell = run.cell("r1_8x16")
    open_cell(cell)
    publish_cell(cell, [REQUEST], DOCUMENT)
    for _ in range(2):
        write_receipt(run, campaign="c", status="measured", cell_ids=["r1_8x16"])
        before = run.receipt.stat().st_mtime_ns
    write_receipt(run, campaign="c", status="measured", cell_ids=["r1_8x16"])
    assert run.receipt.stat().st_mtime_ns == before
    assert read_receipt(run).cells[0].verdict == "valid"


def test_a_receipt_cannot_name_a_cell_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such file"):
        write_receipt(a_run(tmp_path), campaign="c", status="measured", cell_ids=["r1_8x16"])


def test_a_disk_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(
        ArtifactError,
        match=rf"below\.json: cannot write \(File exists\): {blocked} is no folder\. Move it away",
    ):
        write_json(blocked / "below.json", {})


def test_runs_on_disk_are_found_by_name(tmp_path: Path) -> None:
    a_run(tmp_path).path.mkdir(parents=True)
    (tmp_path / "figures").mkdir()
    assert [(r.connector_id, r.phase) for r in CampaignFolder(tmp_path).runs()] == [("plain", "a")]
