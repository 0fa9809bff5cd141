"""What tests/soak/kill_points.py looks for is found where it is."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "soak"))
import kill_points
from kill_points import Campaign, Failure, Finished, engine_of, family_of

CELL = "2026-01-01_plain/phase_a/cells/r20_256x16"
VALID = '{"verdict": "valid", "reasons": []}'
DIED = '{"verdict": "invalid", "reasons": ["engine died: killed by SIGKILL"]}'


@pytest.fixture
def project(tmp_path: Path) -> Any:
    """One finished cell with its receipt, and no process."""
    cell = tmp_path / "results" / CELL
    cell.mkdir(parents=True)
    (cell / "cell.json").write_text(VALID)
    (cell / "requests.jsonl").write_text("{}\n")
    (cell.parents[1] / "receipt.json").write_text('{"status": "measured", "cells": []}')
    (tmp_path / "results" / "aggregate.json").write_text('{"problems": []}')
    (tmp_path / "results" / "report.html").write_text("x")
    environment = {**os.environ, "CONNECTOR_TAX_CACHE": str(tmp_path / "cache")}
    return SimpleNamespace(
        root=tmp_path,
        results=tmp_path / "results",
        environment=environment,
        cells=lambda: dict.fromkeys([CELL] if cell.exists() else [], 1),
    )


def campaign(project: Any, cells: int = 1) -> Campaign:
    return Campaign(project, engine_of("emulator"), None, 10.0, cells)  # type: ignore[arg-type]


def test_nothing_is_found_where_nothing_happened(project: Any) -> None:
    assert Finished.of(project).check_kept(Finished.of(project), done=True) == {}
    campaign(project).check_complete()
    campaign(project).settle(None)


def _lost(cell: Path) -> None:
    cell.rename(cell.with_name(".gone.partial"))


def _measured_again(cell: Path) -> None:
    (cell / "cell.json").rename(cell / "old")
    (cell / "cell.json").write_text(VALID)
    (cell / "old").unlink()


def _changed(cell: Path) -> None:
    (cell / "requests.jsonl").write_text("{}\n{}\n")


def _receipt_lost(cell: Path) -> None:
    (cell.parents[1] / "receipt.json").unlink()


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (_lost, "is lost"),
        (_measured_again, "was measured again"),
        (_changed, "was changed"),
        (_receipt_lost, "receipts are lost"),
    ],
)
def test_what_happened_to_a_finished_cell_is_found(project: Any, happens: Any, said: str) -> None:
    before = Finished.of(project)
    happens(project.results / CELL)
    with pytest.raises(Failure, match=said):
        before.check_kept(Finished.of(project), done=True)


def test_a_run_whose_engine_died_in_every_cell_may_start_from_nothing(project: Any) -> None:
    """And no other run may: one cell that its engine survived is enough."""
    cell = project.results / CELL
    (cell / "cell.json").write_text(DIED)
    alone = Finished.of(project)
    shutil.copytree(cell, cell.with_name("r40_256x16"))
    (cell.with_name("r40_256x16") / "cell.json").write_text(VALID)
    beside = Finished.of(project)
    _measured_again(cell)
    assert alone.check_kept(Finished.of(project), done=True) == {}
    with pytest.raises(
        Failure,
        match=r"was measured again: it was invalid \['engine died: killed by SIGKILL'\], and is valid",
    ):
        beside.check_kept(Finished.of(project), done=False)


def test_a_receipt_that_snakemake_removed_has_to_come_back_as_it_was(project: Any) -> None:
    """In a campaign that is not complete it may be on its way; what comes in its place is held against it."""
    began = campaign(project)
    receipt = (project.results / CELL).parents[1] / "receipt.json"
    content = receipt.read_text()
    before = began.finished()
    receipt.unlink()
    began.gone = before.check_kept(Finished.of(project), done=False)
    assert [name.split("/")[-1] for name in began.gone] == ["receipt.json"]
    receipt.write_text(content)
    assert began.finished().check_kept(Finished.of(project), done=True) == {}
    owed = Finished(began.finished().cells, began.gone)
    receipt.write_text('{"status": "measured", "cells": [1]}')
    with pytest.raises(Failure, match="receipts are changed"):
        owed.check_kept(Finished.of(project), done=True)


def test_a_process_that_is_left_is_found_whoever_its_parent_is(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_points, "SETTLE_S", 0.1)
    # Its own parent ends at once.
    subprocess.run(["bash", "-c", "setsid sleep 600 > /dev/null 2>&1 &"], env=project.environment, check=True)
    deadline = time.monotonic() + 30
    while [p.name() for p in family_of(project)] != ["sleep"] and time.monotonic() < deadline:
        time.sleep(0.01)
    (left,) = family_of(project)
    try:
        with pytest.raises(Failure, match=f"left running: {left.pid} sleep 600"):
            campaign(project).settle("engine")
    finally:
        left.kill()


def test_files_that_changed_are_named(project: Any) -> None:
    with pytest.raises(Failure, match=r"the engine's packages changed: vllm/x\.py"):
        campaign(project).check_untouched({}, {**kill_points.installed(sys.executable), "vllm/x.py": (1, 1)})


@pytest.mark.parametrize(
    ("receipt", "cells", "said"),
    [
        ({"status": "failed", "reason": "why", "cells": []}, 1, "failed without having been hit: why"),
        (
            {
                "status": "measured",
                "cells": [{"cell_id": "r20_256x16", "verdict": "invalid", "reasons": ["late"]}],
            },
            1,
            r"was not hit and is invalid: \['late'\]",
        ),
        ({"status": "measured", "cells": []}, 2, "1 cells in place of 2"),
    ],
)
def test_a_campaign_that_is_not_complete_is_found(
    project: Any, receipt: dict[str, Any], cells: int, said: str
) -> None:
    (project.results / CELL).parents[1].joinpath("receipt.json").write_text(json.dumps(receipt))
    with pytest.raises(Failure, match=said):
        campaign(project, cells).check_complete()


def test_half_written_files_are_found(project: Any) -> None:
    (project.results / ".aggregate.json.0123.tmp").write_text("")
    with pytest.raises(Failure, match="half-written files are left"):
        campaign(project).check_complete()
