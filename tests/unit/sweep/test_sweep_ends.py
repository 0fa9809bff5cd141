"""``ends.json`` is a remark on campaigns: that it cannot be written or read ends no sweep."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_sweep_command import project, sweep_of, swept

from connector_tax.base.documents.sweep import End
from connector_tax.base.errors import ArtifactError
from connector_tax.commands import run as run_command
from connector_tax.sweep import folder as folder_module
from connector_tax.sweep.folder import SweepFolder

__all__ = ["project"]


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    command = [sys.executable, "-c", code]
    monkeypatch.setattr(run_command, "snakemake_command", lambda file, cores, *more: [*command, str(file)])


@pytest.mark.parametrize(
    "error", [ArtifactError("ends.json: the disk is full"), OSError(28, "No space left on device")]
)
def test_every_campaign_is_measured_where_it_cannot_be_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    stand_in(monkeypatch, "import sys; open('ran', 'a').write(sys.argv[1] + chr(10))")

    def full(path: Path, value: Any) -> None:
        raise error

    monkeypatch.setattr(folder_module, "write_json", full)
    assert swept("run") == 0
    assert len((project / "ran").read_text().splitlines()) == 4
    assert capfd.readouterr().err.count("is not noted: ") == 4


def test_a_damaged_one_is_a_remark(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, "pass")
    ends = SweepFolder(project / "sweeps" / "study").ends
    ends.parent.mkdir(parents=True)
    ends.write_text('{"schema":1,"sw')
    assert swept("status") == 0
    out = capfd.readouterr().out
    assert out.count("not started") == 4 and "how starts ended is not known: " in out
    assert swept("run") == 0
    assert "ends.json: not valid JSON" in capfd.readouterr().err
    assert len(SweepFolder(ends.parent).read_ends()[0]) == 4


@pytest.mark.parametrize("flag", ["-n", "-np", "--dry-run"])
def test_a_dry_run_ends_nothing_and_has_no_taxes(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], flag: str
) -> None:
    stand_in(monkeypatch, "print('would measure')")
    assert swept("run", "--", flag) == 0
    out = capfd.readouterr().out
    assert out.count("would measure") == 4 and "Their taxes" not in out
    assert not SweepFolder(project / "sweeps" / "study").ends.exists()


def test_a_start_that_was_interrupted_takes_the_place_of_the_failure_before(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(project)
    folder = SweepFolder(project / "sweeps" / "study")
    first, second = (c.name for c in sweep.order[:2])
    folder.write_ends(sweep, {n: End(code=1, utc="2026-11-20T00:00:00Z") for n in (first, second)})
    stand_in(monkeypatch, f"import os, signal, time; os.kill({os.getpid()}, signal.SIGTERM); time.sleep(60)")
    assert swept("run") == 128 + signal.SIGTERM
    assert set(folder.read_ends()[0]) == {second}


def test_a_reader_that_is_gone_ends_no_sweep(project: Path) -> None:
    """As ``| tee`` that was ended, or a window."""
    program = f"""
import sys
from pathlib import Path
from connector_tax.base.config import checked
from connector_tax.base.door import run_door
from connector_tax.cli import command
from connector_tax.commands import run
checked.PROJECT_ROOT = run.PROJECT_ROOT = Path({str(project)!r})
code = "import sys, time; time.sleep(0.3); open('ran', 'a').write(sys.argv[1] + chr(10))"
run.snakemake_command = lambda file, cores, *more: [sys.executable, "-c", code, str(file)]
run_door(lambda: sys.exit(command("sweep").call(["sweep.yaml", "run"])))
"""
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert running.stdout is not None and running.stderr is not None
    assert running.stdout.readline() == b"campaign 1 of 4: study-r1-small\n"
    running.stdout.close()
    deadline = time.monotonic() + 20
    while running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len((project / "ran").read_text().splitlines()) == 4
    assert b"measuring goes on" in running.stderr.read()
