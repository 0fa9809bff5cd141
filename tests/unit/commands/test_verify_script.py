"""launch/verify.sh with whatever Python sees the checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT


@pytest.mark.parametrize("named", ["PYTHON", "PATH", ".venv"])
def test_any_python_that_sees_the_checkout_verifies(tmp_path: Path, named: str) -> None:
    """One that is named, the checkout's own, or the first on the path; it finds the checkout's package."""
    shutil.copytree(PROJECT_ROOT / "launch", tmp_path / "launch")
    place = {
        "PYTHON": tmp_path / "conda/bin/python",
        "PATH": tmp_path / "bin/python3",
        ".venv": tmp_path / ".venv/bin/python",
    }
    python = place[named]
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$1 $PYTHONPATH" >> "$CALLS"\n')
    python.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    if named == "PYTHON":
        environment["PYTHON"] = str(python)
    subprocess.run(
        ["bash", str(tmp_path / "launch" / "verify.sh"), "plain"], env=environment, cwd="/", check=True
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"scripts/{name}.py {tmp_path}/src" for name in ("plan", "preflight")]
