"""Two engines side by side: nothing in common, and a job that is killed takes nothing of its neighbour's with it."""

import json
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest
from checkout import Project
from families import alive
from side_by_side import cells_of, collisions, jobs, overlapping, wait_for, watching
from test_kill_and_resume import family, settled

pytestmark = pytest.mark.emulated


def two_slots(config: dict[str, Any]) -> None:
    config["engine"]["gpus"] = [0, 1]
    config["phase_a"]["rates_per_s"] = [10, 20]
    config["cell"].update(duration_s=2.5, min_completed=10)
    config["accuracy"] = {"prompts": 0}


def run_of(job: psutil.Process) -> str:
    words = job.cmdline()
    return f"{words[words.index('--connector') + 1]}/phase_{words[words.index('--phase') + 1]}"


def cells(project: Project, run: str) -> dict[str, int]:
    return {k: v for k, v in project.cells().items() if k[11:].startswith(run + "/")}


def status(project: Project) -> str:
    command = [sys.executable, "-m", "connector_tax", "status", "config/test.yaml"]
    return subprocess.run(
        command, cwd=project.root, env=project.environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_job_killed_outright_costs_its_neighbour_nothing(project: Project) -> None:
    """And the same command goes on with both; wherever two ran at once they had nothing in common."""
    project.configure(two_slots)
    with watching(project.root) as watch:
        running = project.start("phase_a", cores=2)
        wait_for(
            "two engines", lambda: len(list(project.results.glob("*/phase_a/engine.pid.json"))) == 2, 120
        )
        said = status(project)
        wait_for(
            "a cell of each of two jobs at once",
            lambda: len(at := jobs(project.root)) == 2 and all(cells(project, run_of(job)) for job in at),
            120,
        )
        victim, neighbour = jobs(project.root)
        lost, kept = run_of(victim), run_of(neighbour)
        engines = [
            p
            for p in neighbour.children(recursive=True)
            if "connector_tax.run.emulator" in " ".join(p.cmdline())
        ]
        own = [p.pid for p in victim.children(recursive=True)]
        victim.kill()
        time.sleep(1.0)  # less than what is left of the neighbour's second cell
        assert engines and all(p.is_running() for p in engines)
        wait_for("the killed job's processes to end", lambda: not any(map(alive, own)), 30)
        before = project.cells()
        assert running.wait(120) != 0, "the killed job is an error of this start"
    name = f"measure_a_{lost.split('/')[0]}.log"
    assert (
        f"\nWhy it ended:\nkilled by SIGKILL (results/test/logs/{name})\n"
        in (project.root / "snakemake.log").read_text()
    )
    assert "on gpu0: " in said and "on gpu1: " in said and said.count("running, ") == 2
    receipts = {
        "/".join(p.parts[-3:-1])[11:]: json.loads(p.read_text())
        for p in project.results.glob("*/phase_a/receipt.json")
    }
    assert kept in receipts and lost not in receipts
    assert len(receipts[kept]["launches"]) == 1, "the neighbour needed no second launch"
    assert settled(project) == []
    done = project.snakemake("phase_a", cores=2)
    assert done.returncode == 0, done.stderr[-3000:]
    after = project.cells()
    assert {k: after[k] for k in before} == before, "a finished cell was measured again"
    assert len(after) == 6
    measured = cells_of(project.results)
    assert overlapping(measured) and not collisions(measured)
    assert {c.slot for c in measured} == {0, 1}
    # Of two slots without a collision no third engine is at work; a job that ends may be seen beside the next one.
    assert watch.looks and watch.shared == set()
    receipts = [json.loads(p.read_text()) for p in project.results.glob("*/phase_a/receipt.json")]
    assert all(receipt["engine"]["slot"] in (0, 1) for receipt in receipts)
    assert settled(project) == [] and family(project) == []
