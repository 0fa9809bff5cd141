"""A copy of the project to run the whole DAG in."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "checkout")
    made.configure()
    return made
