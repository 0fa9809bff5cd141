"""What the scanner of ``make lint`` lets pass says why."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCANNED = ("src", "scripts", "launch", "patches")


def test_every_exception_of_the_scanner_has_its_rule_and_its_reason() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in SCANNED
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if "# nosec" in line and not re.search(r"# nosec B\d{3}  # \w.{9,}$", line)
    ]
    assert found == []
    settings = (ROOT / "pyproject.toml").read_text()
    for rule in tomllib.loads(settings)["tool"]["bandit"]["skips"]:
        assert re.search(rf'"{rule}",  # .{{20,}}', settings), f"{rule} is left out without a reason"


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
