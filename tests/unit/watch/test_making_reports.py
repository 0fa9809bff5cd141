"""Reports while a campaign runs: out of the results folder, one at a time, stopped while a cell is measured, and nothing left of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from half import half, listing, maker

from connector_tax.base.artifacts.cells import open_cell
from connector_tax.base.artifacts.supervisor import RECORD
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.files import write_text
from connector_tax.base.prctl import PR_SET_CHILD_SUBREAPER, prctl
from connector_tax.read.watch.making import Maker, Report
from connector_tax.read.watch.under_way import cell_under_way, finished_cells
from connector_tax.run.engine.process import LaunchRequest, running_engine

# The report's own process gets only what nobody else wants of the cores, and other tests run beside this one.
WAIT_S = 300
# Counts, as far as it is let go on, and writes a page; what a report is made of is another test's matter.
COUNTING = """
import json, sys, time
from pathlib import Path
root, made = map(Path, sys.argv[1:])
cells = [c for c in root.glob("*/phase_*/cells/*") if c.name[0] != "."]
(made / "read.json").write_text(json.dumps({"utc_s": time.time(), "cells": len(cells)}))
for k in range(STEPS):
    (made / "counted").write_text(str(k))
    time.sleep(0.02)
(made / "report.html").write_text(f"of {sys.argv[1]}")
"""


def counting(steps: int) -> list[str]:
    return [sys.executable, "-c", COUNTING.replace("STEPS", str(steps))]


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


# Whoever else this process has started, for tests before these.
BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    BEFORE.clear()
    BEFORE.update(p.pid for p in psutil.Process().children())


def children() -> list[psutil.Process]:
    return [
        p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE and p.pid not in BEFORE
    ]


def latest(of: Maker) -> Report:
    until(lambda: of.state.latest is not None or of.state.failed)
    assert of.state.latest is not None, of.state.failed
    return of.state.latest


def test_a_report_is_made_by_the_real_command_and_the_results_are_as_before(tmp_path: Path) -> None:
    found = half(tmp_path)
    before = listing(found.root)
    of = maker(found, tmp_path / "made")
    try:
        of.ask()
        until(children)
        (child,) = children()
        until(lambda: child.nice() == 19)
        made = latest(of)
    finally:
        of.close()
    assert b"Not finished" in made.html and b"1 of 6 runs" in made.html
    assert (made.number, made.cells) == (1, 4)
    assert 0.3 < made.cpu_s < made.took_s + 5
    assert listing(found.root) == before


def test_it_takes_idle_cores_alone() -> None:
    program = """
import os, psutil
from connector_tax.read.watch.partial import take_idle_cores
take_idle_cores()
print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.nice(0), psutil.Process().ionice().ioclass == psutil.IOPRIO_CLASS_IDLE)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "19", "True"]


def test_it_stops_when_a_cell_begins_and_goes_on_when_it_has_ended(tmp_path: Path) -> None:
    under_way = [False]
    of = maker(half(tmp_path), tmp_path / "made", under_way=lambda folder: under_way[0], command=counting(30))
    counted = tmp_path / "made" / "counted"
    try:
        of.ask()
        until(counted.exists)
        under_way[0] = True
        until(lambda: of.state.doing == "stopped")
        (child,) = children()
        until(lambda: child.status() == psutil.STATUS_STOPPED)
        at = counted.read_text()
        time.sleep(0.3)
        assert counted.read_text() == at and of.state.latest is None
        under_way[0] = False
        assert latest(of).html.startswith(b"of ")
        assert counted.read_text() == "29"
    finally:
        of.close()
    assert children() == []


def test_a_reader_of_its_words_that_is_gone_ends_no_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``2>&1 | tee`` that was ended: the thread would be gone, and the page would say for ever that a report is being made."""

    class Gone:
        def write(self, text: str) -> int:
            raise SystemExit(141)

    monkeypatch.setattr(sys, "stderr", Gone())
    of = maker(
        half(tmp_path), tmp_path / "made", command=[sys.executable, "-c", "raise SystemExit('no cell')"]
    )
    try:
        of.ask()
        until(lambda: of.state.failed)
        assert (of.state.failed, of.state.doing) == ("no cell", "nothing")
    finally:
        of.close()


def test_during_cells_it_goes_on(tmp_path: Path) -> None:
    of = maker(
        half(tmp_path),
        tmp_path / "made",
        under_way=lambda folder: True,
        during_cells=True,
        command=counting(3),
    )
    try:
        of.ask()
        latest(of)
    finally:
        of.close()


def test_it_waits_for_the_cell_that_is_measured(tmp_path: Path) -> None:
    under_way = [True]
    of = maker(half(tmp_path), tmp_path / "made", under_way=lambda folder: under_way[0], command=counting(1))
    try:
        of.ask()
        of.ask()
        until(lambda: of.state.doing == "waiting")
        assert children() == []
        under_way[0] = False
        assert latest(of).number == 1
        time.sleep(0.3)
        assert latest(of).number == 1 and of.state.doing == "nothing"
    finally:
        of.close()


def test_no_two_are_made_at_once_nor_too_soon_after_each_other(tmp_path: Path) -> None:
    of = maker(half(tmp_path), tmp_path / "made", command=counting(1))
    of.every_s = 0.6
    try:
        of.ask()
        first, begun_s = latest(of), of._begun_s
        of.ask()
        until(lambda: of.state.doing == "waiting")
        until(lambda: of.state.latest is not first)
        assert of._begun_s - begun_s >= 0.6
    finally:
        of.close()


def test_without_being_asked_one_is_made_of_each_new_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector_tax.read.watch.making.NEW_CELLS_S", 0.05)
    found = half(tmp_path)
    of = maker(found, tmp_path / "made", "auto", command=counting(1))
    try:
        assert latest(of).cells == 4
        time.sleep(0.3)
        assert latest(of).number == 1
        found.measure("mooncake_both", "b", rates=(2.0, 2.0), receipt=False)
        until(lambda: latest(of).cells > 4)
    finally:
        of.close()


def test_without_being_asked_one_is_made_of_what_has_ended_behind_the_last_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt, the reference rates and a skip come after it; the last report would say "Not finished" for ever."""
    monkeypatch.setattr("connector_tax.read.watch.making.NEW_CELLS_S", 0.05)
    found = half(tmp_path)
    of = maker(found, tmp_path / "made", "auto", command=counting(1))
    events: list[Callable[[], object]] = [
        lambda: found.receipt("mooncake_both"),
        lambda: write_text(found.folder.reference_rates, "{}"),
        lambda: found.skip("mooncake_both", "it is not installed"),
    ]
    try:
        latest(of)
        for happens in events:
            time.sleep(0.3)
            before = latest(of)
            time.sleep(0.3)
            assert latest(of) is before, "of itself none is made"
            happens()
            until(lambda before=before: latest(of) is not before)  # type: ignore[misc]
    finally:
        of.close()


def test_a_report_says_how_many_cells_are_in_it_and_which_runs_are_not(tmp_path: Path) -> None:
    """It is stopped in its beginning, and a whole configuration is measured meanwhile."""
    under_way = [False]
    found = half(tmp_path)
    of = maker(found, tmp_path / "made", under_way=lambda folder: under_way[0])
    try:
        of.ask()
        until(children)
        under_way[0] = True
        until(lambda: of.state.doing == "stopped")
        found.receipt("mooncake_both")
        found.measure("plain", "b", rates=(2.0, 2.0))
        ended = datetime.now(UTC)
        under_way[0] = False
        made = latest(of)
    finally:
        of.close()
    held = len(read_aggregate(tmp_path / "made" / "aggregate.json").cells)
    assert made.cells == held == finished_cells(found.folder)
    assert made.read > ended and b"3 of 6 runs" in made.html


def test_on_request_nothing_is_made_of_itself(tmp_path: Path) -> None:
    of = maker(half(tmp_path), tmp_path / "made", command=counting(1))
    time.sleep(0.3)
    of.close()
    assert of.state.latest is None and list((tmp_path / "made").iterdir()) == []


def test_what_fails_is_said_and_the_earlier_report_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = half(tmp_path)
    of = maker(found, tmp_path / "made")
    of._command = counting(1)
    try:
        of.ask()
        first = latest(of)
        of._command = Maker.__init__.__kwdefaults__["command"]
        found.folder.campaign_file.unlink()
        of.ask()
        until(lambda: of.state.failed)
        assert "campaign.json: no such file" in of.state.failed
        assert of.state.latest is first and of.state.doing == "nothing"
        of._command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
        of.ask()
        until(lambda: "ended with -9" in of.state.failed)
        of._command = ["/no/such/program"]
        of.ask()
        until(lambda: "/no/such/program: No such file" in of.state.failed)
    finally:
        of.close()
    assert "campaign.json" in capfd.readouterr().err


@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_runs_any_more_once_it_is_closed(tmp_path: Path, stopped: bool) -> None:
    under_way = [False]
    of = maker(
        half(tmp_path), tmp_path / "made", under_way=lambda folder: under_way[0], command=counting(10_000)
    )
    of.ask()
    until((tmp_path / "made" / "counted").exists)
    under_way[0] = stopped
    if stopped:
        until(lambda: of.state.doing == "stopped")
    of.close()
    assert children() == []


# What the page does with it, without the page; says the number of the process that makes the report.
KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import psutil
from half import half, maker
root, stopped = Path(sys.argv[2]), sys.argv[3] == "True"
under_way = [False]
found = half(root)
of = maker(found, root / "made", under_way=lambda folder: under_way[0])
of.ask()
while not psutil.Process().children():
    time.sleep(0.01)
under_way[0] = stopped
while stopped and psutil.Process().children()[0].status() != "stopped":
    time.sleep(0.01)
print(psutil.Process().children()[0].pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def taking_orphans() -> Iterator[None]:
    """As a container's first process does, or who supervises jobs."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0)


@pytest.mark.usefixtures("taking_orphans")
@pytest.mark.parametrize("new_session", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
def test_kill_9_of_who_asked_for_it_ends_it(tmp_path: Path, stopped: bool, new_session: bool) -> None:
    """Also while it is stopped, and where somebody is left in the session that could let it go on."""
    here = str(Path(__file__).parent)
    asking = subprocess.Popen(
        [sys.executable, "-c", KILLED, here, str(tmp_path), str(stopped)],
        stdout=subprocess.PIPE,
        start_new_session=new_session,
    )
    assert asking.stdout is not None
    child = psutil.Process(int(asking.stdout.readline()))
    asking.kill()
    asking.wait()
    asking.stdout.close()
    until(lambda: not child.is_running() or child.status() == "zombie")
    os.waitpid(child.pid, 0)
    assert stopped or not (tmp_path / "made" / "report.html").exists()


def test_a_cell_is_under_way_while_its_engine_is_up(tmp_path: Path) -> None:
    """With the record of a launch as it is written; what a killed measurement left is none."""
    found = half(tmp_path)
    run = found.run("mooncake_both", "a")
    assert finished_cells(found.folder) == 4
    assert not cell_under_way(found.folder)
    request = LaunchRequest(found.config.engine, found.config.connector("mooncake_both"), run.path)
    with running_engine(request) as engine:
        assert not cell_under_way(found.folder)
        temporary = open_cell(run.cell("r4_256x16"))
        assert cell_under_way(found.folder)
        temporary.path.rmdir()
        assert not cell_under_way(found.folder)
        open_cell(run.cell("r4_256x16"))
        assert cell_under_way(found.folder)
        record = (run.path / RECORD).read_text()
        os.kill(engine.supervisor.pid, signal.SIGKILL)
        engine.supervisor.wait()
        assert not cell_under_way(found.folder)
    (run.path / RECORD).write_text(record)
    assert not cell_under_way(found.folder)
    assert finished_cells(found.folder) == 4
