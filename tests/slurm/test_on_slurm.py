"""A campaign through a real SLURM, and what becomes of it when something is killed, cancelled or drained on the way.

Skipped where slurmctld, slurmd, munged or Snakemake's plugin is missing, or the user is not root.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import Project
from cluster import GENERIC, PLUGIN, Cluster, cluster, lacking, lacking_plugin, plugin_folder

pytestmark = pytest.mark.skipif(lacking() is not None, reason=f"no SLURM here: {lacking()}")

# On a cluster of its own nobody minds being asked often; an empty node answers at once.
QUICK = (
    "--slurm-no-account",
    "--slurm-status-command",
    "squeue",
    "--slurm-init-seconds-before-status-checks",
    "3",
)
QUICK += ("--seconds-between-status-checks", "2", "--latency-wait", "5", "--slurm-keep-successful-logs")
SMALL = {"runtime": "10", "mem_mb": "500", "cpus_per_task": "1"}
GENERIC_QUICK = ("--seconds-between-status-checks", "2", "--latency-wait", "5")
RULES = ("preflight", "measure_a", "measure_b", "measure_b_prime")


# As a batch system gives its jobs one.
TOKEN, PLANTED = "PBS_JOBCOOKIE", "8a3f0c1d9e5b77aa12"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm") / "c") as found:
        yield found


class Submitted:
    """A copy of the project whose jobs go to the cluster, through SLURM's plugin or the one for any scheduler."""

    def __init__(self, project: Project, slurm: Cluster, generic: bool = False) -> None:
        self.project, self.slurm, self.generic = project, slurm, generic
        project.environment.update(slurm.environment)
        project.environment["PYTHONPATH"] += f"{os.pathsep}{plugin_folder(GENERIC if generic else PLUGIN)}"
        project.environment[TOKEN] = PLANTED

    def start(self, *targets: str) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-m",
            "snakemake",
            *targets,
            "--workflow-profile",
            *(("profiles/cluster", *GENERIC_QUICK) if self.generic else ("profiles/slurm", *QUICK)),
        ]
        command += ["--configfile", "config/test.yaml", "--default-resources", "runtime=10", "mem_mb=500"]
        command += ["cpus_per_task=1", "gres='none'"] if self.generic else []
        command += ["--set-resources", *(f"{rule}:{k}={v}" for rule in RULES for k, v in SMALL.items())]
        command += [f"{rule}:gres='gpu:1'" for rule in RULES]
        log = (self.project.root / "snakemake.log").open("ab")
        return subprocess.Popen(
            command,
            cwd=self.project.root,
            env=self.project.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def run(self, *targets: str) -> None:
        assert self.start(*targets).wait(400) == 0, self.said()

    def said(self) -> str:
        jobs = sorted((self.project.root / ".snakemake").glob("*_logs/**/*.log"), key=os.path.getmtime)
        of_last = jobs[-1].read_text(errors="replace")[-2000:] if jobs else ""
        return (self.project.root / "snakemake.log").read_text()[-4000:] + of_last

    def submitted(self) -> set[str]:
        """Rules of which the scheduler ran a job."""
        logs = self.project.root / ".snakemake" / "slurm_logs"
        return {p.name.removeprefix("rule_") for p in logs.iterdir()}

    def until(self, what: Callable[[], bool], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def processes(self) -> list[psutil.Process]:
        """Of this copy of the project, whoever started them."""
        found = []
        for process in psutil.process_iter():
            try:
                named = str(self.project.root) in " ".join(process.cmdline())
                if process.pid != os.getpid() and (named or process.cwd() == str(self.project.root)):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end_wrappers(self) -> None:
        """Snakemake's own steps, which wait for srun; started by the scheduler, so that nobody else ends them here."""
        for process in self.processes():
            if "--mode remote" in " ".join(process.cmdline()) or process.name() in ("srun", "sh", "bash"):
                process.kill()

    def measuring(self) -> bool:
        return any("measure.py" in " ".join(p.cmdline()) for p in self.processes())

    def complete(self) -> None:
        """Every run has a receipt, and each of its cells is there."""
        receipts = [json.loads(p.read_text()) for p in self.project.results.glob("*/phase_*/receipt.json")]
        assert len(receipts) == 9
        assert {r["status"] for r in receipts} <= {"measured", "not_needed"}
        assert len(self.project.cells()) == sum(len(r["cells"]) for r in receipts) >= 12

    def nothing_left(self) -> None:
        """Of the campaign. Snakemake's steps are the scheduler's to end, which without cgroups may miss them."""
        for process in self.processes():
            if self.slurm.jobs() == [] and "--mode remote" in " ".join(process.cmdline()):
                process.kill()
        deadline = time.monotonic() + 60
        while jobs := self.slurm.jobs():
            assert time.monotonic() < deadline, jobs
            time.sleep(0.5)
        while left := self.processes():
            assert time.monotonic() < deadline, [" ".join(p.cmdline()) for p in left]
            time.sleep(0.5)


@pytest.fixture
def submitted(project: Project, slurm: Cluster) -> Iterator[Submitted]:
    made = Submitted(project, slurm)
    yield made
    for job in slurm.jobs():
        slurm.ask("scancel", job)
    made.nothing_left()


@pytest.fixture
def through_generic(project: Project, slurm: Cluster) -> Iterator[Submitted]:
    made = Submitted(project, slurm, generic=True)
    yield made
    for job in slurm.jobs():
        slurm.ask("scancel", job)
    made.nothing_left()


def kept(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether no finished cell was measured again or lost."""
    return all(after.get(cell) == at for cell, at in before.items())


def test_every_job_goes_through_the_scheduler(submitted: Submitted) -> None:
    submitted.run()
    results = submitted.project.results
    assert (results / "report.html").is_file() and (results / "MANIFEST.tsv").is_file()
    assert submitted.submitted() >= {
        *RULES,
        "reference_rates",
        "aggregate",
        "draw",
        "write_report",
        "write_manifest",
    }
    cells = submitted.project.cells()
    submitted.complete()
    # A second start has nothing to do.
    submitted.run()
    assert submitted.project.cells() == cells
    submitted.nothing_left()
    written = [p for p in results.rglob("*") if p.is_file()]
    assert [p for p in written if PLANTED.encode() in p.read_bytes()] == []


def longer(config: dict[str, Any]) -> None:
    """Cells of some seconds, so that a job can be met in one."""
    config["cell"].update(duration_s=3.0, max_cell_s=8.0)


def test_trouble_on_the_way_costs_no_finished_cell(submitted: Submitted) -> None:
    """In turn: kill -9 of Snakemake, of a job's slurmstepd, scancel, a drained node; the plain command goes on behind each."""
    project, slurm = submitted.project, submitted.slurm
    project.configure(longer)

    running = submitted.start("phase_a")
    submitted.until(lambda: bool(project.cells()) and submitted.measuring())
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    # Its jobs go on: they are the scheduler's. Who starts again meets them.
    before = project.cells()
    submitted.run("phase_a")
    assert kept(before, project.cells()) and len(project.cells()) == 6

    before = project.cells()
    running = submitted.start("phase_b")
    submitted.until(lambda: len(project.cells()) > len(before) and submitted.measuring())
    before = project.cells()
    for process in psutil.process_iter(["name"]):
        if (process.info["name"] or "").startswith("slurmstepd"):
            process.kill()
    # The scheduler learns of it at the node's next registration, minutes later, and takes the job for a running one until then.
    submitted.until(lambda: not submitted.measuring())
    for job in slurm.jobs():
        slurm.ask("scancel", job)
    running.wait(200)
    assert kept(before, project.cells())
    # Who waits for a killed slurmstepd waits for ever: Snakemake's own step and srun. On a cluster its cgroup or epilog ends them.
    submitted.end_wrappers()

    before = project.cells()
    running = submitted.start("phase_b")
    submitted.until(lambda: len(project.cells()) > len(before) and submitted.measuring())
    before = project.cells()
    for job in slurm.jobs():
        slurm.ask("scancel", job)
    assert running.wait(200) != 0
    assert kept(before, project.cells())

    slurm.drain(True)
    before = project.cells()
    running = submitted.start()
    submitted.until(lambda: bool(slurm.jobs()))
    time.sleep(3)
    assert not submitted.measuring() and project.cells() == before
    slurm.drain(False)
    assert running.wait(400) == 0, submitted.said()
    assert kept(before, project.cells())
    submitted.complete()
    submitted.nothing_left()


@pytest.mark.skipif(lacking_plugin(GENERIC) is not None, reason=f"{lacking_plugin(GENERIC)}")
def test_the_profile_for_any_scheduler_loses_no_finished_cell(through_generic: Submitted) -> None:
    """kill -9 of Snakemake while a job measures, then scancel; the plain command goes on behind each."""
    project, slurm = through_generic.project, through_generic.slurm
    project.configure(longer)

    running = through_generic.start("phase_a")
    through_generic.until(lambda: bool(project.cells()) and through_generic.measuring())
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    before = project.cells()
    through_generic.run("phase_a")
    assert kept(before, project.cells()) and len(project.cells()) == 6

    before = project.cells()
    running = through_generic.start("phase_b")
    through_generic.until(lambda: len(project.cells()) > len(before) and through_generic.measuring())
    before = project.cells()
    for job in slurm.jobs():
        slurm.ask("scancel", job)
    assert running.wait(200) != 0
    assert kept(before, project.cells())

    through_generic.run()
    assert kept(before, project.cells())
    through_generic.complete()
    through_generic.nothing_left()
