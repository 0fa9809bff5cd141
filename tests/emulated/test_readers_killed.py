"""Two starts of one campaign, and ``kill -9`` of each script that reads it, as Snakemake runs them."""

import subprocess
import time

import psutil
import pytest
from checkout import Project
from test_kill_and_resume import family, settled, wait_for_cells

pytestmark = pytest.mark.emulated

# In the order in which a campaign needs them, with the rule that runs each.
READERS = {
    "scripts/analyze.py": "aggregate",
    "scripts/plot_connector_tax.py": "draw",
    "scripts/build_report.py": "write_report",
    "scripts/build_manifest.py": "write_manifest",
}
# First on the path of every Python of the campaign: the script that ``stalled`` names waits to be killed, however short it is.
STALLS = """
import pathlib, sys, time
stalled = pathlib.Path(__file__).parents[1] / "stalled"
if stalled.exists() and stalled.read_text() in sys.orig_argv:
    time.sleep(600)
"""


def kill(project: Project, script: str, running: "subprocess.Popen[bytes]") -> None:
    """As soon as it is there; its shell and ``tee`` are spared."""
    while running.poll() is None:
        for process in family(project):
            try:
                words = process.cmdline()
                if script in words:
                    process.kill()
                    return
            except psutil.Error:
                continue
        time.sleep(0.01)
    raise AssertionError(f"{script} was not seen before the start ended")


def measure_everything(project: Project) -> "subprocess.Popen[bytes]":
    """A start that measures, with a second one beside it that has to leave it alone."""
    first = project.start()
    wait_for_cells(project, 1, first)
    second = project.snakemake()
    assert second.returncode != 0
    assert f"campaign test was started already and is going on (process {first.pid})" in second.stderr
    assert first.poll() is None, "the first start went on"
    return first


def test_a_second_start_and_killed_readers_cost_no_finished_cell(project: Project) -> None:
    def short(config):  # type: ignore[no-untyped-def]
        config["connectors"] = ["plain", "noop_connector"]
        config["phase_b"]["input_tokens"] = [64]
        config["phase_b_prime"] = {}

    project.configure(short)
    (project.root / "src" / "sitecustomize.py").write_text(STALLS)
    stalled, scripts = project.root / "stalled", list(READERS)
    stalled.write_text(scripts[0])
    running, log, cells = measure_everything(project), project.root / "snakemake.log", {}
    for script, rule in READERS.items():
        said = log.stat().st_size
        kill(project, script, running)
        assert running.wait(60) != 0, script
        assert f"Error in rule {rule}:" in log.read_text()[said:], script
        assert "\nWhy it ended:\nkilled by SIGKILL (results/test/logs/" in log.read_text()[said:], script
        now = project.cells()
        assert len(now) == 6 and cells.items() <= now.items(), (
            f"{script}: a finished cell is lost or was measured again"
        )
        assert settled(project) == [], script
        cells = now
        scripts.remove(script)
        stalled.write_text(scripts[0]) if scripts else stalled.unlink()
        if scripts:  # It needs receipts alone, so a start may have made it before its turn to be killed.
            (project.results / "MANIFEST.tsv").unlink(missing_ok=True)
        running = project.start()
    assert running.wait(120) == 0, log.read_text()[-3000:]
    assert project.cells() == cells
    for made in ("aggregate.json", "report.html"):
        assert (project.results / made).is_file()
