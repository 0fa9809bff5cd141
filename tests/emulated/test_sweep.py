"""A sweep of two campaigns, killed outright in the middle and started again: nothing is measured twice, and nothing is left behind."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import Project
from test_kill_and_resume import settled

pytestmark = pytest.mark.emulated


def sweep(project: Project, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "connector_tax", "sweep", "config/sweep.yaml", *arguments]


def told(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        sweep(project, *arguments), cwd=project.root, env=project.environment, capture_output=True, text=True
    )


def cells(project: Project) -> dict[str, int]:
    """Finished cells of all campaigns, and when each was renamed into place."""
    results: Path = project.root / "results"
    return {
        str(p.parent.relative_to(results)): p.stat().st_mtime_ns
        for p in results.glob("pair-*/*/phase_*/cells/[!.]*/cell.json")
    }


@pytest.fixture
def pair(project: Project) -> Project:
    """Phase A of plain, three cells, with one seed and with another."""

    def short(config: dict[str, Any]) -> None:
        config["connectors"] = ["plain"]
        config["phase_b_prime"] = {}
        config["phase_a"]["rates_per_s"] = [20, 30, 40]
        config["accuracy"] = {"prompts": 0}

    project.configure(short)
    entries = [{"name": name, "set": {"seed": k}} for k, name in enumerate(("one", "two"))]
    value = {"sweep": "pair", "base": "config/test.yaml", "axes": {"seed": entries}}
    (project.root / "config" / "sweep.yaml").write_text(yaml.safe_dump(value))
    return project


def test_a_sweep_that_is_killed_goes_on_where_it_was(pair: Project) -> None:
    """In its second campaign: the first is not touched, of the second nothing that was finished."""
    with open(pair.root / "sweep.log", "w") as log:
        running = subprocess.Popen(
            sweep(pair, "run", "--", "phase_a"), cwd=pair.root, env=pair.environment, stdout=log, stderr=log
        )
        deadline = time.monotonic() + 120
        while not any(name.startswith("pair-two/") for name in cells(pair)):
            assert running.poll() is None and time.monotonic() < deadline, (
                pair.root / "sweep.log"
            ).read_text()
            time.sleep(0.05)
        running.kill()
        running.wait()
    assert settled(pair) == []
    before = cells(pair)
    assert {name.split("/")[0] for name in before} == {"pair-one", "pair-two"}
    assert len(before) < 6, "the second campaign was not finished"
    status = told(pair, "status").stdout
    assert "  stopped\n" in status and "0 of 2 campaigns finished" in status
    done = told(pair, "run", "--", "phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith("2 of 2 campaigns came to their end")
    after = cells(pair)
    assert {name: after[name] for name in before} == before, "a finished cell was measured again"
    assert len(after) == 6
    assert settled(pair) == []
