"""An engine in a container of a SLURM job ends with the job, also where its processes are no children of the job's."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from families import alive, within
from test_engine_in_a_container import containers, measurement

from connector_tax.base.artifacts.supervisor import recorded_supervisor
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.run.engine.supervised import end_leftovers

sys.path.insert(0, str(Path(__file__).parents[1] / "slurm"))
from cluster import COMMANDS, DAEMONS, Cluster, cluster

MISSING = [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"no SLURM here: {', '.join(MISSING)} missing"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd wants to be root"),
]


def submit(slurm: Cluster, folder: Path, image: str, runtime: str) -> str:
    script = folder / "job.sh"
    words = measurement(image, runtime, folder / "run")
    (folder / "words").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
    script.write_text(
        f"#!/bin/bash\nexport PATH={os.environ['PATH']} PYTHONPATH={PROJECT_ROOT / 'src'}\n"
        f"mapfile -d '' -t words < '{folder}/words'\nexec \"${{words[@]}}\"\n"
    )
    return slurm.ask("sbatch", "--parsable", f"--output={folder}/job.out", str(script)).strip()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm") / "c") as found:
        yield found


@pytest.mark.parametrize("how", ["scancel", "kill -9"])
def test_a_container_ends_with_its_job(
    slurm: Cluster, some_runtime: str, image: str, tmp_path: Path, how: str
) -> None:
    """Also where slurmstepd and everything below it is killed at once, podman's own process among it."""
    job = submit(slurm, tmp_path, image, some_runtime)
    out = tmp_path / "job.out"
    assert within(40, lambda: out.exists() and len(out.read_text().split()) == 2), slurm.jobs()
    recorded = recorded_supervisor(tmp_path / "run")
    assert recorded is not None and containers(some_runtime, recorded.mark)
    root = psutil.Process(int(out.read_text().split()[0]))
    engine = [root, *root.children(recursive=True)]
    slurm.ask("scancel", job) if how == "scancel" else _kill_the_job(recorded.pid)
    assert within(20, lambda: not any(map(alive, engine)))
    if how != "scancel":
        # Nobody told podman that the container has ended; the next start of the campaign does this.
        end_leftovers(tmp_path / "run", grace_s=1.0)
    assert within(10, lambda: not containers(some_runtime, recorded.mark))


def _kill_the_job(supervisor: int) -> None:
    """By its supervisor: other clusters on this machine have jobs of that number as well."""
    step = next(p for p in psutil.Process(supervisor).parents() if p.name().startswith("slurmstepd"))
    below = step.children(recursive=True)
    for process in (step, *below):
        process.kill()
