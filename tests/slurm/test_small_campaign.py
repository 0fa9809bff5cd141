"""The smallest campaign through a real SLURM, killed and cancelled on the way: what CI runs of this folder.

Skipped where slurmctld, slurmd, munged or Snakemake's plugin is missing, or the user is not root.
"""

import pytest
from cluster import lacking
from submitted import MEASURING, READING, Submitted, killed_and_cancelled

pytestmark = pytest.mark.skipif(lacking() is not None, reason=f"no SLURM here: {lacking()}")


def test_a_killed_snakemake_and_a_cancelled_job_cost_no_finished_cell(submitted: Submitted) -> None:
    killed_and_cancelled(submitted)
    assert submitted.submitted() >= {*MEASURING, *READING}
