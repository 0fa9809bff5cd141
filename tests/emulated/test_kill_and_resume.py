"""kill -9 at any moment: finished cells stay and are never measured again, and nothing is left behind."""

import json
import os
import random
import signal
import subprocess
import time

import psutil
import pytest
from checkout import Project
from families import alive, within

pytestmark = pytest.mark.emulated


def family(project: Project) -> list[psutil.Process]:
    """Every process that belongs to this copy of the project, whoever its parent is by now."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(project.root) in " ".join(process.cmdline()) or process.cwd() == str(project.root):
                found.append(process)
        except psutil.Error:
            continue
    return [p for p in found if p.pid != os.getpid()]


def settled(project: Project, seconds: float = 20.0) -> list[psutil.Process]:
    """What is still there after everything had its time to notice and to end."""

    def left() -> list[psutil.Process]:
        return [process for process in family(project) if alive(process)]

    within(seconds, lambda: not left())
    return left()


def wait_for_cells(project: Project, count: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while len(project.cells()) < count:
        assert time.monotonic() < deadline, (project.root / "snakemake.log").read_text()[-3000:]
        if process.poll() is not None:
            return
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killing_snakemake_leaves_nothing_running_and_loses_no_cell(
    project: Project, how: signal.Signals
) -> None:
    """Three kills at random moments, each followed by the plain command; then nothing is missing."""
    rng = random.Random(how)
    seen: dict[str, int] = {}
    for kill in range(3):
        running = project.start("phase_b")
        wait_for_cells(project, min(len(seen) + rng.randrange(1, 3), 12), running)
        time.sleep(rng.random())
        # SIGTERM to the group is what a batch system sends, and to Snakemake alone what a person does; SIGKILL hits Snakemake alone.
        in_turn = how == signal.SIGTERM and kill % 2 == 0
        os.killpg(running.pid, how) if in_turn else running.send_signal(how)
        running.wait()
        assert settled(project) == [], f"after kill {kill}"
        now = project.cells()
        assert {k: now[k] for k in seen} == seen, "a finished cell was measured again"
        seen = now
    done = project.snakemake("phase_b")
    assert done.returncode == 0, done.stderr[-3000:]
    final = project.cells()
    assert {k: final[k] for k in seen} == seen
    # How many B' has depends on the rates that this host held.
    assert sum("phase_b_prime" not in cell for cell in final) == 12
    assert settled(project) == []


def test_killing_the_engine_costs_one_launch_and_no_finished_cell(project: Project) -> None:
    """The job notices, launches again and measures on; the campaign ends well without a second command."""
    running = project.start("phase_a")
    wait_for_cells(project, 1, running)
    before = project.cells()
    engine = None
    deadline = time.monotonic() + 30
    while engine is None and time.monotonic() < deadline:
        engines = [p for p in family(project) if "connector_tax.run.emulator" in " ".join(p.cmdline())]
        engine = engines[0] if engines else None
    assert engine is not None
    engine.kill()
    assert running.wait(240) == 0, (project.root / "snakemake.log").read_text()[-3000:]
    after = project.cells()
    assert {k: after[k] for k in before} == before
    assert len(after) == 6
    assert settled(project) == []
    # Each try of a run stands in its receipt with what it took, the one that died among them.
    runs = [json.loads(p.read_text())["launches"] for p in project.results.glob("*/phase_a/receipt.json")]
    assert sorted(len(launches) for launches in runs)[-1] == 2
    assert all(launch["elapsed_s"] > 0 for launches in runs for launch in launches)
    assert all([x["attempt"] for x in launches] == list(range(1, len(launches) + 1)) for launches in runs)
    status = json.loads((project.results / "preflight" / "preflight_status.json").read_text())
    assert status["elapsed_s"] > 0


def test_an_engine_that_always_dies_in_a_cell_ends_as_an_invalid_cell(project: Project) -> None:
    """Not an endless loop, and not a hole: the cell is there, invalid, with the reason, and is counted."""
    connectors = project.root / "config" / "connectors.yaml"
    connectors.write_text(
        connectors.read_text()
        + "\nmortal:\n  label: dies under load\n"
        + "  kv_transfer_config: {kv_connector: NoOpConnector, kv_role: kv_both}\n"
        + "  env: {CONNECTOR_TAX_FAULT: 'die_after:15'}\n"
    )

    def use(config):  # type: ignore[no-untyped-def]
        config["connectors"] = ["plain", "mortal"]
        config["phase_b_prime"] = {}
        config["phase_a"]["rates_per_s"] = [40]

    project.configure(use)
    done = project.snakemake("phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    cell = json.loads(next(project.results.glob("*_mortal/phase_a/cells/*/cell.json")).read_text())
    assert cell["verdict"] == "invalid"
    assert cell["reasons"][0].startswith("engine died")
