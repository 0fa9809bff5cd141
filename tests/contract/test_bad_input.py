"""What a person who made a mistake sees: one screen, what to do, an exit code, and nothing half done."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.base.config import parse_campaign
from connector_tax.base.plan.start import begin_campaign

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


def unknown_key(config: dict[str, Any]) -> None:
    config["cell"]["warmup"] = 3


def negative_rate(config: dict[str, Any]) -> None:
    config["phase_a"]["rates_per_s"] = [-4]


def without_plain(config: dict[str, Any]) -> None:
    config["connectors"] = ["noop_connector"]
    config["phase_b_prime"] = {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unknown_key, "cell: unknown key 'warmup'; did you mean 'warmup_s'? Allowed: arrival"),
        (negative_rate, "phase_a.rates_per_s[0]: -4 is not allowed; wanted: `float` >= 1e-06"),
        (without_plain, "holds no 'plain'; every tax is taken against it"),
    ],
)
def test_a_bad_config_is_one_message_before_anything_starts(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    found = snakemake(tmp_path, change, "-n")
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) < 15
    assert not (ROOT / "results" / "bad-input-test").exists()
    assert not list((tmp_path / "t").iterdir())


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    found = snakemake(tmp_path, lambda c: None, "-n")
    assert found.returncode == 0, found.stderr
    assert not (ROOT / "results" / "bad-input-test").exists()


def preflight(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> "subprocess.CompletedProcess[str]":
    config = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    config["connectors"] = ["plain"]
    config["phase_b_prime"] = {}
    change(config)
    file = begin_campaign(parse_campaign(config, "c.yaml"), tmp_path / "r")
    command = [sys.executable, "scripts/preflight.py", "--campaign-file", str(file)]
    environment = {**os.environ, "CONNECTOR_TAX_CACHE": str(tmp_path / "cache")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_missing_model_directory_is_one_message(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["engine"].update(kind="vllm", python=sys.executable, model="/nowhere/model")

    found = preflight(tmp_path, change)
    assert found.returncode == 2
    assert "engine.model: /nowhere/model: no model directory there" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_port_in_use_is_one_message(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = preflight(tmp_path, lambda c: c["engine"].update(port=taken.getsockname()[1]))
    assert found.returncode == 2
    assert "is in use by process" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_full_disk_is_one_message_and_leaves_no_half_file(tmp_path: Path) -> None:
    """A file-size limit stands in for the full disk: writes fail in the middle, as they do there."""
    root = tmp_path / "results"
    code = f"""
from pathlib import Path
from connector_tax.base.config import load_campaign
from connector_tax.base.door import run_door
from connector_tax.base.plan.start import begin_campaign
run_door(lambda: begin_campaign(load_campaign(Path("config/config.yaml")), Path({str(root)!r})))
"""
    command = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 2, found.stderr
    assert "cannot write" in found.stderr
    assert "make room or fix permissions" in found.stderr
    assert "Traceback" not in found.stderr
    assert [p for p in root.rglob("*") if p.is_file()] == []
