"""A campaign whose jobs go through a SLURM cluster, and what is done to it on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
from checkout import Project
from cluster import GENERIC, PLUGIN, Cluster, plugin_folder
from families import within

# The plugin asks again a second after a job has ended; ``patient_squeue.py`` answers when the next one has.
QUICK = ("--slurm-no-account", "--slurm-status-command", "squeue", "--slurm-keep-successful-logs")
QUICK += ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5")
GENERIC_QUICK = ("--seconds-between-status-checks", "2", "--latency-wait", "5")
SMALL = {"mem_mb": "500", "cpus_per_task": "1", "gres": "'gpu:1'"}
MEASURING = ("preflight", "measure")
# By the rule or, where the profile makes one job of several, by the group.
READING = (
    "reference_rates",
    "put_in",
    "read_aggregate_draw_write_report",
    "write_manifest",
    "patch_reverted",
)
# As a batch system gives its jobs one.
TOKEN, PLANTED = "PBS_JOBCOOKIE", "8a3f0c1d9e5b77aa12"


def smallest(config: dict[str, Any]) -> None:
    """Two configurations on two cards, each with two cells in Phase A and two in Phase B: the least that has every rule.

    A cell takes some seconds, so that a job can be met in one.
    """
    config["connectors"] = ["plain", "noop_connector"]
    config["engine"].update(gpus=[0, 1], mix_cards=True)
    config["phase_b_prime"] = {}
    config["accuracy"]["prompts"] = 0
    config["cell"].update(duration_s=3.0, max_cell_s=8.0)


class Submitted:
    """A copy of the project whose jobs go to the cluster, through SLURM's plugin or the one for any scheduler.

    Attributes:
        minutes: the time limit of a job that launches engines.
    """

    def __init__(self, project: Project, slurm: Cluster, generic: bool) -> None:
        self.project, self.slurm, self.generic = project, slurm, generic
        self.minutes = 10
        self._started: list[subprocess.Popen[bytes]] = []
        project.environment.update(slurm.environment)
        project.environment["PYTHONPATH"] += f"{os.pathsep}{plugin_folder(GENERIC if generic else PLUGIN)}"
        project.environment[TOKEN] = PLANTED

    def start(self, *targets: str) -> "subprocess.Popen[bytes]":
        profile = ("profiles/cluster", *GENERIC_QUICK) if self.generic else ("profiles/slurm", *QUICK)
        command = [sys.executable, "-m", "snakemake", *targets, "--workflow-profile", *profile]
        command += ["--configfile", "config/test.yaml", "--default-resources", "runtime=10", "mem_mb=500"]
        command += ["cpus_per_task=1", "gres='none'"] if self.generic else []
        of_rule = {"runtime": self.minutes, **SMALL}
        command += ["--set-resources", *(f"{rule}:{k}={v}" for rule in MEASURING for k, v in of_rule.items())]
        with (self.project.root / "snakemake.log").open("ab") as log:
            running = subprocess.Popen(
                command,
                cwd=self.project.root,
                env=self.project.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(running)
        return running

    def end(self) -> None:
        """Whatever a test that failed left."""
        for running in self._started:
            running.kill()
            running.wait()
        for job in self.slurm.jobs():
            self.slurm.ask("scancel", job)
        self.nothing_left()

    def run(self, *targets: str) -> None:
        assert self.start(*targets).wait(400) == 0, self.said()

    def said(self) -> str:
        return (self.project.root / "snakemake.log").read_text()[-4000:] + "".join(self.job_logs()[-1:])[
            -2000:
        ]

    def job_logs(self) -> list[str]:
        """Of every job that the scheduler ran, in order of their ends."""
        logs = (self.project.root / ".snakemake").glob("*_logs/**/*.log")
        return [p.read_text(errors="replace") for p in sorted(logs, key=os.path.getmtime)]

    def submitted(self) -> set[str]:
        """Rules and groups of which the scheduler ran a job."""
        logs = self.project.root / ".snakemake" / "slurm_logs"
        return {p.name.removeprefix("rule_").removeprefix("group_") for p in logs.iterdir()}

    def until(self, what: Callable[[], bool], seconds: float = 120.0) -> None:
        assert within(seconds, what), self.said()

    def processes(self) -> dict[psutil.Process, str]:
        """Of this copy of the project, whoever started them, with their command lines."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = " ".join(process.cmdline())
                inside = str(self.project.root) in words or process.cwd() == str(self.project.root)
                if inside and process.pid != os.getpid():
                    found[process] = words
        return found

    def slurmstepds(self) -> set[psutil.Process]:
        """Of this campaign's jobs; other clusters of this machine have some as well."""
        found = set()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                found |= {p for p in process.parents() if p.name().startswith("slurmstepd")}
        return found

    def end_wrappers(self) -> None:
        """Snakemake's own steps, which wait for srun; started by the scheduler, so that nobody else ends them here."""
        for process, words in self.processes().items():
            with suppress(psutil.NoSuchProcess):
                if "--mode remote" in words or process.name() in ("srun", "sh", "bash"):
                    process.kill()

    def measuring(self) -> bool:
        return any("measure.py" in words for words in self.processes().values())

    def in_a_cell(self, finished: int) -> Callable[[], bool]:
        """Whether one is being measured, and so many are finished."""
        cells = "*/phase_*/cells/.*.partial"
        return lambda: len(self.project.cells()) >= finished and any(self.project.results.glob(cells))

    def kill_snakemake(self, *targets: str, finished: int) -> None:
        """Start it, and kill -9 it in a cell. Its jobs are the scheduler's, and go on."""
        running = self.start(*targets)
        self.until(self.in_a_cell(finished))
        os.kill(running.pid, signal.SIGKILL)
        running.wait()

    def cancel_jobs(self, *targets: str, finished: int) -> None:
        """Start Snakemake, and scancel what there is of jobs in a cell. It ends with an error."""
        running = self.start(*targets)
        self.until(self.in_a_cell(finished))
        with self.keeps_its_cells():
            self.slurm.ask("scancel", *self.slurm.jobs())
            assert running.wait(200) != 0, self.said()

    @contextmanager
    def keeps_its_cells(self) -> Iterator[None]:
        """The body loses no finished cell and measures none again."""
        before = self.project.cells()
        yield
        after = self.project.cells()
        assert {cell: after.get(cell) for cell in before} == before

    def complete(self, runs: int, cells: int) -> None:
        """Every run has a receipt, each of its cells is there, and so is what is made of them; nothing keeps the token, and nothing is left at work."""
        results = self.project.results
        receipts = [json.loads(p.read_text()) for p in results.glob("*/phase_*/receipt.json")]
        assert len(receipts) == runs and {r["status"] for r in receipts} <= {"measured", "not_needed"}
        assert len(self.project.cells()) == sum(len(r["cells"]) for r in receipts) >= cells
        assert (results / "report.html").is_file() and (results / "MANIFEST.tsv").is_file()
        kept = [p for p in self.project.root.rglob("*") if p.is_file()]
        assert len(kept) > 100 and [p for p in kept if PLANTED.encode() in p.read_bytes()] == []
        self.nothing_left()

    def nothing_left(self) -> None:
        """Of the campaign. Snakemake's steps are the scheduler's to end, which without cgroups may miss them."""
        for process, words in self.processes().items():
            if self.slurm.jobs() == [] and "--mode remote" in words:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        deadline = time.monotonic() + 60
        while jobs := self.slurm.jobs():
            assert time.monotonic() < deadline, jobs
            time.sleep(0.5)
        while left := self.processes():
            assert time.monotonic() < deadline, list(left.values())
            time.sleep(0.5)


def killed_and_cancelled(campaign: Submitted) -> None:
    """kill -9 of Snakemake in a cell of Phase A, then scancel of the job in one of Phase B; the plain command goes on behind each."""
    campaign.project.configure(smallest)
    campaign.kill_snakemake(finished=1)
    with campaign.keeps_its_cells():
        campaign.cancel_jobs(finished=5)
    with campaign.keeps_its_cells():
        campaign.run()
    campaign.complete(runs=4, cells=8)
