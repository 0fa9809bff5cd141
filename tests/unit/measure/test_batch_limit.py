"""What is left of a batch job's time, as the batch system says it."""

import time
from argparse import Namespace
from pathlib import Path

import pytest
from host_faults import DATE, measure, small_campaign

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.run.measure.locks import held
from connector_tax.run.measure.time_left import in_batch_job, left_in_job_s, time_limit

JOB = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("said", "left_s"),
    [
        ("1-02:03:04", 93784.0),
        ("3:04", 184.0),
        ("UNLIMITED", None),
    ],
)
def test_what_squeue_says(said: str, left_s: float | None) -> None:
    assert left_in_job_s(JOB, lambda job: said) == left_s


def test_the_environment_is_believed_first() -> None:
    def ask(job: str) -> str:
        raise AssertionError

    end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 100)}
    assert 98 <= (left_in_job_s(JOB | end, ask) or 0) <= 100
    assert left_in_job_s({}, ask) is None
    # Somebody emptied it, as to start from within a job what is none of it.
    assert left_in_job_s({"SLURM_JOB_ID": ""}, ask) is None and not in_batch_job({"SLURM_JOB_ID": ""})


def test_no_cell_begins_that_the_end_of_the_job_would_cut_off(tmp_path: Path) -> None:
    """The first one fits, by its shortest duration. The second takes five minutes, and less than one is left."""
    folder = small_campaign(tmp_path, rates=(20.0, 0.02), max_cell_s=600.0)
    done = measure(folder, SLURM_JOB_ID="7", SLURM_JOB_END_TIME=str(int(time.time()) + 45))
    assert done.returncode == 75, done.stderr
    assert "not begun: cell r0.02_256x16 may take 5 min" in done.stderr
    run = folder.run(DATE, "noop_connector", "a")
    (cell,) = run.finished_cells()
    assert (cell.cell_id, read_cell(cell).verdict) == ("r20_256x16", "valid")
    assert not run.receipt.exists()


def test_nobody_is_waited_for_beyond_the_end_of_the_job(tmp_path: Path) -> None:
    """In a batch job there is no other end to it; the scheduler cut it off, and nothing said why."""
    folder = small_campaign(tmp_path, rates=(20.0,))
    with held(folder.lock, "it", "4711, which is at work"):
        done = measure(folder, SLURM_JOB_ID="7", SLURM_JOB_END_TIME=str(int(time.time()) + 16))
    assert done.returncode == 75, done.stderr
    assert (
        "not begun: waited for campaign demo, in use by process 4711, which is at work, until" in done.stderr
    )


@pytest.mark.parametrize("said", ["INVALID", "1:2:3:4"])
def test_an_answer_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(EngineError, match="SLURM job 7"):
        left_in_job_s(JOB, lambda job: said)


def test_what_a_stage_is_told_goes_before_what_its_job_is() -> None:
    """A sitting has minutes of its own, also in a job of which SLURM says nothing."""
    told = time_limit(Namespace(within_s=100.0, launch_s=7.0, campaign_file=None), JOB)
    assert told is not None and told.until_s - time.monotonic() == pytest.approx(100, abs=5)
    assert told.launch_s == 7
    assert time_limit(Namespace(within_s=None, launch_s=None, campaign_file=None), {}) is None
    with pytest.raises(ConfigError, match="--within-s and --launch-s go together"):
        time_limit(Namespace(within_s=100.0, launch_s=None, campaign_file=None), {})
