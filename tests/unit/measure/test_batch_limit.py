"""What is left of a batch job's time, as the batch system says it."""

import time

import pytest

from connector_tax.base.errors import EngineError
from connector_tax.run.measure.batch_limit import left_in_job_s

JOB = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("said", "left_s"),
    [
        ("1-02:03:04", 93784.0),
        ("02:03:04\n", 7384.0),
        ("3:04", 184.0),
        ("UNLIMITED", None),
        ("NOT_SET", None),
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


@pytest.mark.parametrize("said", ["INVALID", "", "1:2:3:4"])
def test_an_answer_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(EngineError, match="SLURM job 7"):
        left_in_job_s(JOB, lambda job: said)
