"""A SLURM cluster for the tests of this folder, and a copy of the project whose jobs go to it."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import Project
from cluster import Cluster, NotUp, cluster
from submitted import Submitted


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(cluster(tmp_path_factory.mktemp("slurm") / "c"))
        except NotUp as reason:
            pytest.skip(f"SLURM's daemons take no job on this machine: {reason}")
        yield found


@pytest.fixture
def submitted(request: pytest.FixtureRequest, tmp_path: Path, slurm: Cluster) -> Iterator[Submitted]:
    """Through the plugin for any scheduler where the test's parameter says so, else through SLURM's own."""
    project = Project(tmp_path / "checkout")
    project.configure()
    made = Submitted(project, slurm, generic=getattr(request, "param", False))
    yield made
    made.end()
