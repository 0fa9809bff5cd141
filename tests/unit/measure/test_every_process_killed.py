"""Each process of a job killed while its engine starts and in the middle of a cell: nothing is left, and no finished cell is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from families import family, within
from host_faults import DATE, ROOT, environment, small_campaign

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.artifacts.supervisor import RECORD
from connector_tax.run.loadgen.coordinator import WorkerPool
from connector_tax.run.measure.run import measure_run

WORDS = {
    "supervisor": "connector_tax.run.engine.supervisor",
    "engine": "connector_tax.run.emulator",
    "worker": "connector_tax.run.loadgen",
}
# What ends the whole job; of the others it goes on with another launch, or with the cell.
ENDS = {"job": -signal.SIGKILL, "group, in order": 143, "everything": -signal.SIGKILL}


def family_of(folder: CampaignFolder) -> list[psutil.Process]:
    return family(folder.root.parents[1] / "cache")


def words_of(process: psutil.Process) -> str:
    """Its first words; none of one that has ended meanwhile."""
    try:
        return " ".join(process.cmdline()[:3])
    except psutil.Error:
        return ""


def start(folder: CampaignFolder) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "scripts/measure.py", "--campaign-file", str(folder.campaign_file)]
    command += ["--connector", "noop_connector", "--phase", "a"]
    with open(folder.root / "said", "ab") as said:
        return subprocess.Popen(command, cwd=ROOT, env=environment(folder), stderr=said, process_group=0)


def kill(victim: str, job: "subprocess.Popen[bytes]", folder: CampaignFolder) -> None:
    if victim == "job":
        job.kill()
    elif victim == "group, in order":
        os.killpg(job.pid, signal.SIGTERM)
    elif victim == "everything":
        for process in family_of(folder):
            process.kill()
    else:
        # The supervisor's words hold those of what it launches.
        next(p for p in family_of(folder) if WORDS[victim] in words_of(p)).kill()


def starting(folder: CampaignFolder, run: RunFolder) -> bool:
    there = " ".join(map(words_of, family_of(folder)))
    return (run.path / RECORD).exists() and WORDS["engine"] in there


def in_the_second_cell(folder: CampaignFolder, run: RunFolder) -> bool:
    return bool(run.finished_cells()) and bool(list(run.cells.glob(".*.partial")))


def test_a_worker_that_is_lost_before_a_cell_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was sent by then, so the cell begins again, with another worker."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    send, killed = WorkerPool.send, []

    def lose_one(pool: WorkerPool, index: int, message: object) -> None:
        if not killed:
            killed.append(pool.pid(index))
            os.kill(killed[0], signal.SIGKILL)
            assert within(60, pool.dead)
        send(pool, index, message)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkerPool, "send", lose_one)
    folder = small_campaign(tmp_path)
    measure_run(folder.campaign_file, "noop_connector", "a")
    (cell,) = folder.run(DATE, "noop_connector", "a").finished_cells()
    assert killed and read_cell(cell).verdict == "valid"
    said = capsys.readouterr().err
    assert (
        "worker 0 ended by signal 9 before the cell began; see above. It is replaced, and the cell begins again."
        in said
    )


@pytest.mark.parametrize("victim", [*ENDS, *WORDS])
def test_each_process_killed_outright(tmp_path: Path, victim: str) -> None:
    folder = small_campaign(tmp_path, rates=(20.0, 40.0), duration_s=1.0, max_cell_s=3.0)
    run = folder.run(DATE, "noop_connector", "a")
    kept: dict[str, int] = {}
    job = None
    for stage in (starting, in_the_second_cell) if victim in ("job", "engine") else (in_the_second_cell,):
        job = job or start(folder)
        assert within(60, lambda: stage(folder, run))  # noqa: B023
        kill(victim, job, folder)
        if victim in ENDS:
            assert job.wait(120) == ENDS[victim]
            job = None
            assert within(20, lambda: not family_of(folder))
        cells = {c.cell_id: c.cell_json.stat().st_ino for c in run.finished_cells()}
        assert kept.items() <= cells.items(), "a finished cell was lost or measured again"
        kept = cells
    said = folder.root / "said"
    if job is not None:
        assert job.wait(120) == 0, said.read_text()
    assert "Traceback" not in said.read_text()
    if victim in ("engine", "supervisor"):
        assert "engine died in cell r40_256x16: killed by SIGKILL" in said.read_text()
    done = start(folder)
    assert done.wait(120) == 0
    cells = {c.cell_id: c.cell_json.stat().st_ino for c in run.finished_cells()}
    assert kept.items() <= cells.items() and len(cells) == 2
    assert not family_of(folder) and not list(run.path.rglob(".*.partial"))
    # Each try stands in the receipt with what it took, those that died among them.
    launches = read_receipt(run).launches or ()
    assert [x.attempt for x in launches] == list(range(1, len(launches) + 1))
    assert victim in ENDS or all((x.elapsed_s or 0) > 0 for x in launches)
    assert victim != "engine" or len(launches) >= 3
    first, second = (read_cell(c) for c in run.finished_cells())
    assert first.verdict == "valid"
    # Before the cell began the worker is replaced; in its middle it takes what it had in flight with it.
    assert second.verdict == "valid" or (victim == "worker" and "worker" in second.reasons[0]), second.reasons
