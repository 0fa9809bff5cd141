"""A campaign of two configurations through Snakemake, each engine in a container, killed on the way and gone on with."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from checkout import Project
from conftest import NAME

SECRET = "hf_NobodyMayReadThis0123456789abc"


def containers(runtime: str) -> list[str]:
    command = [runtime, "ps", "--all", "--format", "{{.Names}}", "--filter", "name=connector-tax-"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def engines(project: Project) -> list[psutil.Process]:
    """Processes of this campaign's engines, in whatever container."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                str(project.root) in process.environ().get("CONNECTOR_TAX_ENGINE_MODEL", "")
                and "-m" in process.cmdline()
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def until(true: Any, seconds: float, said: Any = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)


@pytest.fixture
def campaign(tmp_path: Path, some_runtime: str) -> Project:
    """In a folder whose name a shell would take apart."""
    project = Project(tmp_path / "a check'out $(touch HERE) {1}")

    def small(config: dict[str, Any]) -> None:
        config["connectors"] = ["plain", "nixl_both"]
        config["phase_a"]["rates_per_s"] = [20, 40]
        config["phase_b"] = {"input_tokens": [256], "output_tokens": [16]}
        config["phase_b_prime"] = {}
        config["engine"]["container"] = {"image": NAME, "runtime": some_runtime}
        config["engine"]["env"]["HF_TOKEN"] = "${HF_TOKEN}"
        config["engine"]["stop_grace_s"] = 2

    project.configure(small)
    project.environment["HF_TOKEN"] = SECRET
    return project


def test_a_campaign_is_measured_killed_and_gone_on_with(campaign: Project, some_runtime: str) -> None:
    log = campaign.root / "snakemake.log"
    before = set(containers(some_runtime))
    running = campaign.start("phase_a")
    until(lambda: len(campaign.cells()) == 1, 120, lambda: log.read_text()[-3000:])
    until(lambda: engines(campaign), 20)
    for process in psutil.process_iter():
        with_words = " ".join(_words(process))
        assert SECRET not in with_words
    # Everything that belongs to the campaign but the container itself, at once: nobody is left to tell anybody anything.
    ours = [running.pid, *(p.pid for p in psutil.Process(running.pid).children(recursive=True))]
    for pid in ours:
        _kill(pid)
    running.wait()
    until(lambda: not engines(campaign), 10, lambda: str(engines(campaign)))
    until(lambda: set(containers(some_runtime)) <= before, 10, lambda: str(containers(some_runtime)))
    seen = campaign.cells()

    done = campaign.snakemake()
    assert done.returncode == 0, done.stderr[-3000:]
    cells = campaign.cells()
    assert len(cells) == 6 and {k: cells[k] for k in seen} == seen, "a finished cell was measured again"
    digests = set()
    for path in campaign.results.glob("*/phase_*/cells/*/cell.json"):
        cell = json.loads(path.read_text())
        assert cell["verdict"] == "valid", cell["reasons"]
        digests.add(cell["engine"]["versions"]["image"])
        assert cell["engine"]["container"]["image"] == NAME
    (digest,) = digests
    assert digest.startswith("sha256:") and (campaign.results / "report.html").is_file()
    assert list(campaign.results.glob("*/phase_*/cells/*/*step*"))
    assert set(containers(some_runtime)) <= before and not engines(campaign)
    kept = [p for p in campaign.root.rglob("*") if p.is_file() and not p.is_symlink()]
    assert not [str(p) for p in kept if SECRET.encode() in p.read_bytes()]
    assert not list(campaign.root.parent.rglob("HERE"))

    # The same name for another image, as after a pull: what is left is not measured with it.
    subprocess.run([some_runtime, "tag", NAME, f"{NAME}-kept"], check=True, capture_output=True)
    try:
        _change_image(some_runtime)
        receipt = next(campaign.results.glob("*_nixl_both/phase_b/receipt.json"))
        for lost in (receipt, *receipt.parent.glob("cells/*/*")):
            lost.unlink()
        for folder in receipt.parent.glob("cells/*"):
            folder.rmdir()
        refused = campaign.snakemake("phase_b")
        assert refused.returncode != 0
        said = refused.stderr + refused.stdout + log.read_text()
        assert f"/ {digest}" in said.replace(digest, digest) or "was begun with another engine" in said, said[
            -3000:
        ]
    finally:
        subprocess.run([some_runtime, "tag", f"{NAME}-kept", NAME], check=True, capture_output=True)
        subprocess.run([some_runtime, "rmi", f"{NAME}-kept"], check=True, capture_output=True)


def _change_image(runtime: str) -> None:
    """Give the name to an image that differs by a label."""
    made = subprocess.run(
        [runtime, "create", "--network=none", NAME, "python3"], check=True, capture_output=True, text=True
    )
    container = made.stdout.split()[-1]
    subprocess.run(
        [runtime, "commit", "--change", "LABEL other=1", container, NAME], check=True, capture_output=True
    )
    subprocess.run([runtime, "rm", container], check=True, capture_output=True)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
