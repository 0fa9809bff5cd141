"""What a person who made a mistake sees: one screen, what to do, an exit code, and nothing half done."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def snakemake(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], *extra: str
) -> "subprocess.CompletedProcess[str]":
    """Plan a changed demo; a dry run is enough, since bad config must be refused before anything starts."""
    config = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    config["campaign"] = "bad-input-test"
    change(config)
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(config))
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--cores",
        "1",
        *extra,
        "--configfile",
        str(tmp_path / "bad.yaml"),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CONNECTOR_TAX_")}
    environment["TMPDIR"] = str(tmp_path / "t")
    (tmp_path / "t").mkdir()
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_bad_config_is_one_message_before_anything_starts(tmp_path: Path) -> None:
    found = snakemake(tmp_path, lambda config: config["cell"].update(warmup=3), "-n")
    assert found.returncode == 2
    assert "cell: unknown key 'warmup'; did you mean 'warmup_s'? Allowed: arrival" in found.stderr
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) < 15
    assert not (ROOT / "results" / "bad-input-test").exists()
    assert not list((tmp_path / "t").iterdir())


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    found = snakemake(tmp_path, lambda c: None, "-n")
    assert found.returncode == 0, found.stderr
    assert not (ROOT / "results" / "bad-input-test").exists()


def test_a_full_disk_is_one_message_and_leaves_no_half_file(tmp_path: Path) -> None:
    """A file-size limit stands in for the full disk: writes fail in the middle, as they do there."""
    root = tmp_path / "results"
    code = f"""
from pathlib import Path
from connector_tax.base.config import load_campaign
from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.base.plan.start import begin_campaign
run_entrypoint(lambda: begin_campaign(load_campaign(Path("config/config.yaml")), Path({str(root)!r})))
"""
    command = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 2, found.stderr
    assert "cannot write" in found.stderr
    assert "make room or fix permissions" in found.stderr
    assert "Traceback" not in found.stderr
    assert [p for p in root.rglob("*") if p.is_file()] == []
