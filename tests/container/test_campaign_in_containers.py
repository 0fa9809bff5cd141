"""A campaign of two configurations through Snakemake, each engine in a container, killed on the way and gone on with."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from checkout import Project
from families import within
from small_image import NAME

SECRET = "hf_NobodyMayReadThis0123456789abc"


def containers(runtime: str) -> list[str]:
    command = [
        runtime,
        "ps",
        "--all",
        "--format",
        "{{.Names}}",
        "--filter",
        "name=^connector-tax-[0-9a-f]{32}$",
    ]
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


@pytest.fixture
def campaign(tmp_path: Path, some_runtime: str) -> Project:
    """In a folder whose name a shell would take apart."""
    project = Project(tmp_path / "a check'out $(touch HERE) {1}")

    def small(config: dict[str, Any]) -> None:
        config["connectors"] = ["plain", "nixl_both"]
        config["phase_a"]["rates_per_s"] = [20, 40]
        config["phase_b_prime"] = {}
        config["accuracy"]["prompts"] = 0
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
    assert within(120, lambda: len(campaign.cells()) == 1), log.read_text()[-3000:]
    assert within(20, lambda: engines(campaign))
    assert not [words for words in map(_words, psutil.process_iter()) if SECRET in " ".join(words)]
    # All but the runtime's own process and the engine, at once: nobody is left to tell them anything.
    of_runtime = {
        p
        for c in psutil.process_iter(["name"])
        if c.info["name"] == "conmon"
        for p in (c, *c.children(recursive=True))
    }
    for process in psutil.Process(running.pid).children(recursive=True):
        if process not in of_runtime:
            _kill(process.pid)
    _kill(running.pid)
    running.wait()
    assert within(10, lambda: not engines(campaign)), engines(campaign)
    assert within(10, lambda: set(containers(some_runtime)) <= before), containers(some_runtime)
    seen = campaign.cells()

    done = campaign.snakemake("phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    cells = campaign.cells()
    assert len(cells) == 4 and {k: cells[k] for k in seen} == seen, "a finished cell was measured again"
    measured = [json.loads((campaign.results / cell / "cell.json").read_text()) for cell in cells]
    assert [cell["verdict"] for cell in measured] == ["valid"] * 4, [cell["reasons"] for cell in measured]
    assert {cell["engine"]["container"]["image"] for cell in measured} == {NAME}
    (digest,) = {cell["engine"]["versions"]["image"] for cell in measured}
    assert digest.startswith("sha256:")
    assert all(list((campaign.results / cell).glob("engine_step_*")) for cell in cells)
    assert set(containers(some_runtime)) <= before and not engines(campaign)
    kept = [p for p in campaign.root.rglob("*") if p.is_file() and not p.is_symlink()]
    assert kept and not [str(p) for p in kept if SECRET.encode() in p.read_bytes()]
    assert not list(campaign.root.parent.rglob("HERE"))

    # What is lost would be measured again, and its image has another content since, as after a pull.
    (lost,) = campaign.results.glob("*_nixl_both/phase_a")
    shutil.rmtree(lost)
    with another_image(some_runtime):
        refused = campaign.snakemake("phase_a")
    assert refused.returncode != 0 and len(campaign.cells()) == 2
    said = refused.stderr + refused.stdout
    assert re.search(rf"was begun with another engine .*image sha256:[0-9a-f]+ / {digest}", said), said[
        -3000:
    ]


@contextmanager
def another_image(runtime: str) -> Iterator[None]:
    """The name stands for an image that differs by a label."""
    container = f"connector-tax-test-{os.getpid()}"

    def run(*words: str) -> None:
        subprocess.run([runtime, *words], check=True, capture_output=True)

    run("tag", NAME, f"{NAME}-kept")
    run("create", f"--name={container}", "--network=none", NAME, "python3")
    try:
        run("commit", "--change", "LABEL other=1", container, NAME)
        yield
    finally:
        run("rm", container)
        run("tag", NAME, f"{NAME}-other")
        run("tag", f"{NAME}-kept", NAME)
        run("rmi", f"{NAME}-kept", f"{NAME}-other")


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
