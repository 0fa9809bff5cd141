"""What no bundle holds, and mistakes in the command that makes one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config
from read_through import unrendered

from connector_tax.base.errors import ArtifactError
from connector_tax.cli import command
from connector_tax.read.bundle import bundle


@pytest.fixture(scope="module", autouse=True)
def without_pictures() -> Iterator[None]:
    with unrendered():
        yield


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    config = campaign_config(**{**SMALL, "connectors": ["plain", "noop_connector", "mooncake_both"]})
    found = Campaign(tmp_path_factory.mktemp("campaign"), config, max_steps=30)
    found.measure_everything()
    return found


def test_a_place_beneath_a_file_is_one_message(
    campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "b.tar.xz", tmp_path / ("x" * 260)):
        with pytest.raises(SystemExit) as ended:
            command("bundle").main([str(campaign.root), "--to", str(target)])
        assert ended.value.code == 2 and "cannot write" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_no_bundle_can_hold_is_said(
    campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "mine"
    shutil.copytree(campaign.root, root)
    os.mkfifo(root / "preflight" / "pipe")
    (root / "preflight" / os.fsdecode(b"\xff.log")).write_text("x")
    (root / "preflight" / "a\nb").mkdir()
    (root / ".start.lock").write_text("")
    run = campaign.run("plain", "a").path.relative_to(campaign.root)
    (root / run / "folder").symlink_to(tmp_path)
    (root / run / "env.txt").unlink(missing_ok=True)
    (root / run / "env.txt").symlink_to("/etc/passwd")
    assert command("bundle").call([str(root), "--to", str(tmp_path / "b.tar.xz")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        *(ascii(f"{run}/{name}") for name in ("env.txt", "folder")),
        *(ascii(f"preflight/{name}") for name in ("a\nb", "pipe", "\udcff.log")),
    ]
    receipt = root / run / "receipt.json"
    receipt.rename(tmp_path / "receipt.json")
    receipt.symlink_to(tmp_path / "receipt.json")
    with pytest.raises(ArtifactError, match="not finished"):
        bundle(root, tmp_path / "c.tar.xz")
