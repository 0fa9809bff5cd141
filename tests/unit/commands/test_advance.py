"""``connector-tax run --minutes``: what a sitting finds of those before it, and what it packs."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.errors import EngineError
from connector_tax.base.plan import named
from connector_tax.commands import sitting
from connector_tax.commands.run import COMMAND
from connector_tax.run.measure.sitting import Sitting


def test_what_a_killed_take_put_aside_is_back_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sitting measured it again, and the next take removed what had been put aside."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sitting, "end_in_order", lambda *given: None)  # of this process
    run = CampaignFolder(tmp_path / "demo").run("2026-01-31", "plain", "a")
    aside = run.path.with_name(".phase_a.replaced") / "cells" / "r1_8x8"
    aside.mkdir(parents=True)

    def sits(*given: Any, **named: Any) -> Sitting:
        assert [cell.cell_id for cell in run.finished_cells()] == ["r1_8x8"]
        return Sitting((), ("phase A of plain",), "the time is over")

    monkeypatch.setattr(sitting, "sit", sits)
    monkeypatch.setattr(named, "results_folder", lambda: tmp_path)
    given = ["demo", "--minutes", "9"]
    for _ in range(2):  # within one second
        assert COMMAND.call([*given, "--save", str(tmp_path / "out")]) == 75
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_an_archive_has_no_secret_of_a_launch_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has gone through its log, and the archive is sent around."""
    monkeypatch.setenv("HF_TOKEN", "planted-token-1")
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sitting, "end_in_order", lambda *given: None)  # of this process
    run = CampaignFolder(tmp_path / "demo").run("2026-01-31", "plain", "a")

    def killed(config: CampaignConfig, folder: CampaignFolder, *given: Any, **named: Any) -> None:
        for place in (run.path, folder.preflight / "noop_connector"):
            place.mkdir(parents=True)
            (place / run.stderr.name).write_text("args: {'hf_token': 'planted-token-1'}, planted-token-1\n")
        raise EngineError("phase A of plain failed (exit code -9)")

    monkeypatch.setattr(sitting, "sit", killed)
    monkeypatch.setattr(named, "results_folder", lambda: tmp_path)
    given = ["demo", "--save", str(tmp_path / "out")]
    with pytest.raises(EngineError, match="exit code -9"):
        COMMAND.call([*given, "--minutes", "9"])
    with tarfile.open(next((tmp_path / "out").iterdir())) as tar:
        logs = [m for m in tar.getmembers() if m.name.endswith(run.stderr.name)]
        assert len(logs) == 2
        for log in logs:
            content = tar.extractfile(log)
            assert content is not None and b"planted" not in content.read()
