"""Clocks and stops: a wall clock that is stepped changes no number, and a host that stood still is seen."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from host_faults import DATE, ROOT, environment, measure, small_campaign
from msgspec import UNSET

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.documents.cell import CellDocument
from connector_tax.run.measure import cell
from connector_tax.run.measure.run import measure_run


def measured(folder, connector: str = "noop_connector") -> CellDocument:  # type: ignore[no-untyped-def]
    (found,) = folder.run(DATE, connector, "a").finished_cells()
    return read_cell(found)


def test_a_wall_clock_that_is_stepped_back_and_forth_changes_no_time_of_a_cell(tmp_path: Path) -> None:
    """By an hour, in each other reading of every process: engine, workers, sampler and job."""
    folder = small_campaign(tmp_path)
    done = measure(folder, INJECTED_STEP_S="3600")
    assert done.returncode == 0, done.stderr
    found = measured(folder)
    assert found.reasons == ()
    (cell_folder,) = folder.run(DATE, "noop_connector", "a").finished_cells()
    assert 0.3 < (found.window.t_stop_ns - found.window.window_start_ns) / 1e9 < 5
    assert found.summary is not UNSET and found.summary.n_ok > 0
    assert found.cpu.elapsed_s < 60
    # Nothing of the sampler's was left out as of another time.
    assert found.steps is not None and found.steps.decoding > 0
    assert cell_folder.requests.stat().st_size > 0


def test_a_host_that_was_suspended_in_a_cell_makes_it_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 30 s, as CLOCK_BOOTTIME has it: CLOCK_MONOTONIC does not count them, so no latency shows them."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    asleep = iter([7_000_000_000, 37_000_000_000])
    monkeypatch.setattr(cell, "asleep_ns", lambda: next(asleep))
    folder = small_campaign(tmp_path)
    measure_run(folder.campaign_file, "noop_connector", "a")
    found = measured(folder)
    assert (found.verdict, found.reasons) == (
        "invalid",
        ("the host was suspended for 30.0 s in the middle of it",),
    )


def test_a_campaign_that_is_stopped_whole_goes_on_and_its_cell_says_so(tmp_path: Path) -> None:
    """SIGSTOP to every process of a job in the middle of a cell, and SIGCONT two seconds later."""
    folder = small_campaign(tmp_path, duration_s=2.0, max_cell_s=6.0)
    run = folder.run(DATE, "noop_connector", "a")
    command = [sys.executable, "scripts/measure.py", "--campaign-file", str(folder.campaign_file)]
    command += ["--connector", "noop_connector", "--phase", "a"]
    job = subprocess.Popen(command, cwd=ROOT, env=environment(folder), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(run.cells.glob(".*.partial")):
        assert time.monotonic() < deadline and job.poll() is None
        time.sleep(0.02)
    time.sleep(0.8)
    # Parents first, so that nobody is started between.
    family = [job.pid, *(p.pid for p in psutil.Process(job.pid).children(recursive=True))]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.0)
    for pid in reversed(family):
        os.kill(pid, signal.SIGCONT)
    said = job.communicate(timeout=120)[1]
    assert job.returncode == 0, said
    found = measured(folder)
    assert "client_stalled" in found.flags or found.verdict == "invalid"
    assert found.health.statuses.get("timeout", 0) == 0, (
        "what the client was away for is no time-out of the engine's"
    )
