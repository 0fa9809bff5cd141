"""What else may happen to a campaign on a real SLURM, minutes each: `make test-slurm` runs them, CI does not.

Skipped where slurmctld, slurmd, munged or Snakemake's plugin is missing, or the user is not root.
"""

import json
import time
from typing import Any

import pytest
from cluster import GENERIC, lacking, lacking_plugin
from submitted import Submitted, killed_and_cancelled, smallest

pytestmark = pytest.mark.skipif(lacking() is not None, reason=f"no SLURM here: {lacking()}")


@pytest.mark.skipif(lacking_plugin(GENERIC) is not None, reason=f"{lacking_plugin(GENERIC)}")
@pytest.mark.parametrize("submitted", [pytest.param(True, id="generic")], indirect=True)
def test_the_profile_for_any_scheduler_loses_no_finished_cell(submitted: Submitted) -> None:
    killed_and_cancelled(submitted)


def test_a_killed_slurmstepd_and_a_drained_node_cost_no_finished_cell(submitted: Submitted) -> None:
    """And a start behind the end has nothing to do."""
    project, slurm = submitted.project, submitted.slurm
    project.configure(smallest)
    running = submitted.start()
    submitted.until(submitted.in_a_cell(finished=1))
    with submitted.keeps_its_cells():
        for process in submitted.slurmstepds():
            process.kill()
        # The scheduler learns of it at the node's next registration, minutes later, and takes the job for a running one until then.
        submitted.until(lambda: not submitted.measuring())
        slurm.ask("scancel", *slurm.jobs())
        assert running.wait(200) != 0
        # Who waits for a killed slurmstepd waits for ever: Snakemake's own step and srun. On a cluster its cgroup or epilog ends them.
        submitted.end_wrappers()

    slurm.drain(True)
    with submitted.keeps_its_cells():
        before = project.cells()
        running = submitted.start()
        submitted.until(lambda: bool(slurm.jobs()))
        time.sleep(3)
        assert not submitted.measuring() and project.cells() == before
        slurm.drain(False)
        assert running.wait(400) == 0, submitted.said()
    submitted.complete(runs=4, cells=8)
    before = project.cells()
    submitted.run()
    assert project.cells() == before
    submitted.nothing_left()


def test_a_requeued_job_goes_on_where_it_was(submitted: Submitted) -> None:
    project, slurm = submitted.project, submitted.slurm
    project.configure(smallest)
    running = submitted.start("phase_a")
    submitted.until(submitted.in_a_cell(finished=1))
    with submitted.keeps_its_cells():
        jobs = slurm.jobs()
        slurm.ask("scontrol", "requeue", *jobs)
        submitted.until(lambda: not submitted.measuring())
        # It would wait two minutes of its own accord.
        for job in jobs:
            submitted.until(lambda job=job: slurm.state(job) == "PENDING")
            slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        assert running.wait(400) == 0, submitted.said()
    assert len(project.cells()) == 4
    submitted.nothing_left()


def test_a_job_whose_time_ends_is_gone_on_with(submitted: Submitted) -> None:
    """A minute holds a launch and some of sixteen cells, which last for almost one; no job is cut off by the scheduler."""
    project, slurm = submitted.project, submitted.slurm

    def sixteen_cells(config: dict[str, Any]) -> None:
        smallest(config)
        config["connectors"] = ["plain"]
        config["phase_a"]["rates_per_s"] = list(range(4, 20))

    project.configure(sixteen_cells)
    submitted.minutes = 1
    starts = 0
    while len(project.cells()) < 16:
        with submitted.keeps_its_cells():
            before, starts = len(project.cells()), starts + 1
            assert (submitted.start("phase_a").wait(400) == 0) == (len(project.cells()) == 16), (
                submitted.said()
            )
            assert len(project.cells()) > before
    assert starts > 1
    assert sum("not begun: cell " in log for log in submitted.job_logs()) == starts - 1
    assert "TIMEOUT" not in slurm.ask("squeue", "--noheader", "--states=all", "--format=%T")
    submitted.nothing_left()


def test_a_start_waits_for_the_job_of_a_killed_one(submitted: Submitted) -> None:
    """For longer than somebody else's card is waited for."""

    def half_a_minute_each(config: dict[str, Any]) -> None:
        smallest(config)
        config["connectors"] = ["plain"]
        # Campaigns of several cards wait without end anywhere.
        del config["engine"]["gpus"], config["engine"]["mix_cards"]
        config["phase_a"]["rates_per_s"] = [4, 6]
        config["cell"].update(duration_s=25.0, max_cell_s=30.0)

    submitted.project.configure(half_a_minute_each)
    submitted.kill_snakemake("phase_a", finished=0)
    submitted.run("phase_a")
    assert len(submitted.project.cells()) == 2
    (launches,) = submitted.project.results.glob("*_plain/phase_a/launches.json")
    assert len(json.loads(launches.read_text())["launches"]) == 1
    submitted.nothing_left()
