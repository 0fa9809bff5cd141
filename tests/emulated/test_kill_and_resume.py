"""kill -9 at any moment: finished cells stay and are never measured again, and nothing is left behind."""

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
    """Two kills at random moments, each followed by the plain command; then nothing is missing."""
    rng = random.Random(how)
    seen: dict[str, int] = {}
    for kill in range(2):
        running = project.start("phase_b")
        wait_for_cells(project, min(len(seen) + rng.randrange(1, 3), 12), running)
        time.sleep(rng.random())
        # SIGTERM to the group is what a batch system sends, and to Snakemake alone what a person does; SIGKILL hits Snakemake alone.
        in_turn = how == signal.SIGTERM and kill == 0
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
