"""The settings of the scanner of ``make lint``."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_scanner_finds_a_shell(tmp_path: Path) -> None:
    """The settings leave no rule out that finds what a hostile text could reach."""
    (tmp_path / "bad.py").write_text(
        "import pickle, subprocess, yaml\nsubprocess.run(input(), shell=True)\neval(input())\npickle.loads(b'')\nyaml.load('')\n"
    )
    command = [sys.executable, "-m", "bandit", "--quiet", "--configfile", "pyproject.toml", "-f", "custom"]
    command += ["--msg-template", "{test_id}", str(tmp_path / "bad.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert {"B602", "B301", "B307", "B506"} <= set(done.stdout.split())
