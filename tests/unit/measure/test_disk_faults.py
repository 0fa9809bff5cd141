"""A disk that is full, read-only or slow, whatever file is being written: one message, nothing half done, no finished cell lost."""

import os
from pathlib import Path

import pytest
from host_faults import DATE, door, measure, small_campaign

from connector_tax.base import files
from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder

# Files that a job writes, one of each kind, in the order in which it does; of those with True the engine is up by then.
WRITTEN = {
    "*/.config.json.*": False,
    "*/.engine.pid.json.*": False,
    "*/vllm_stdout.log": False,
    "*/steps/*step*": False,
    "*/cells/.*/requests*": False,
    "*/.cell.json.*": False,
    "*/.accuracy.json.*": True,
    "*/.receipt.json.*": True,
}


def left_half(folder: CampaignFolder) -> list[Path]:
    """Files that a reader could take for finished ones: under a final name, in a finished cell or beside it, and empty."""
    run = folder.run(DATE, "noop_connector", "a")
    whole = [run.receipt, run.summary, run.outputs, run.config, run.env]
    # A cell of half a second need not have a sample.
    cells = [p for c in run.finished_cells() for p in c.path.iterdir() if p != c.metrics]
    return [p for p in (*whole, *cells) if p.exists() and p.stat().st_size == 0]


def test_a_disk_that_is_full_at_any_file_of_a_run_is_one_message_and_costs_no_finished_cell(
    tmp_path: Path,
) -> None:
    """One start for each file, on one run: what a start finished, the next ones keep."""
    folder = small_campaign(tmp_path)
    run = folder.run(DATE, "noop_connector", "a")
    finished: dict[str, int] = {}
    for pattern, cell_is_there in WRITTEN.items():
        found = measure(folder, INJECTED_FULL=pattern)
        assert found.returncode == 2, (pattern, found.stderr)
        assert "No space left on device" in found.stderr, (pattern, found.stderr)
        assert found.stderr.count("error: ") == 1 and "Traceback" not in found.stderr, (pattern, found.stderr)
        assert left_half(folder) == [], pattern
        assert not run.receipt.exists()
        cells = {c.cell_id: c.cell_json.stat().st_ino for c in run.finished_cells()}
        assert finished.items() <= cells.items(), pattern
        assert bool(cells) is cell_is_there, pattern
        finished = cells
    done = measure(folder)
    assert done.returncode == 0, done.stderr
    (cell,) = run.finished_cells()
    assert finished == {cell.cell_id: cell.cell_json.stat().st_ino}
    assert read_cell(cell).verdict == "valid"
    assert [p for p in run.path.rglob(".*") if "attempt_" not in str(p)] == []


def test_a_preflight_whose_disk_is_full_decides_nothing(tmp_path: Path) -> None:
    folder = small_campaign(tmp_path, connectors=("plain",))
    folder.preflight_status.unlink()
    for pattern in ("*/.decision.json.*", "*/.preflight_status.json.*"):
        found = door(folder, "preflight", INJECTED_FULL=pattern)
        assert found.returncode == 2 and "No space left on device" in found.stderr, (pattern, found.stderr)
        assert "Traceback" not in found.stderr
        assert not folder.preflight_status.exists()
    assert door(folder, "preflight").returncode == 0
    assert folder.preflight_status.stat().st_size > 0


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (
            "*/logs/progress.log",
            "progress.log: this line is not in it, it cannot be written (No space left on device)",
        ),
        (
            "*/steps/metrics.jsonl",
            "sampler of /metrics ended by itself (exit code 2): given up; cells of some seconds are flagged",
        ),
        ("*/vllm_stderr.log", ""),
    ],
)
def test_what_no_result_needs_may_be_lost_in_words(tmp_path: Path, pattern: str, said: str) -> None:
    folder = small_campaign(tmp_path)
    done = measure(folder, INJECTED_FULL=pattern)
    assert done.returncode == 0, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    (cell,) = folder.run(DATE, "noop_connector", "a").finished_cells()
    assert read_cell(cell).verdict == "valid"


def test_results_that_are_read_only_are_one_message_and_nothing_is_launched(tmp_path: Path) -> None:
    folder = small_campaign(tmp_path)
    found = measure(folder, INJECTED_READONLY=f"{folder.root}/*")
    assert found.returncode == 2
    assert "Read-only file system" in found.stderr and "Traceback" not in found.stderr
    assert found.stderr.count("error: ") == 1
    assert not folder.run(DATE, "noop_connector", "a").path.exists()


def test_a_slow_file_system_takes_time_and_spoils_no_cell(tmp_path: Path) -> None:
    """Each file takes 0.1 s to open and 0.1 s to be made durable: nothing of a cell is written while requests are timed."""
    folder = small_campaign(tmp_path)
    done = measure(folder, INJECTED_SLOW_S="0.1")
    assert done.returncode == 0, done.stderr
    (cell,) = folder.run(DATE, "noop_connector", "a").finished_cells()
    document = read_cell(cell)
    assert document.verdict == "valid"
    assert document.health.statuses.keys() == {"ok"}


class Calls:
    """fsync and rename, in the order in which they were called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        sync, rename, replace = os.fsync, os.rename, os.replace

        def fsync(descriptor: int) -> None:
            self.made.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
            sync(descriptor)

        def renamed(move, source, target) -> None:  # type: ignore[no-untyped-def]
            self.made.append(("rename", str(target)))
            move(source, target)

        monkeypatch.setattr(files.os, "fsync", fsync)
        monkeypatch.setattr(files.os, "rename", lambda a, b: renamed(rename, a, b))
        monkeypatch.setattr(files.os, "replace", lambda a, b: renamed(replace, a, b))


def test_what_has_its_final_name_is_durable_and_so_is_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content before the rename, so that no power cut leaves a name without it; the folder after, so that none takes the name back."""
    calls = Calls(monkeypatch)
    files.write_text(tmp_path / "receipt.json", "x")
    (_, content), *rest = calls.made
    assert Path(content).name.startswith(".receipt.json.")
    assert rest == [("rename", str(tmp_path / "receipt.json")), ("sync", str(tmp_path))]


def test_a_cell_is_durable_with_all_its_files_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, final = tmp_path / ".cell.partial", tmp_path / "cell"
    (temporary / "deeper").mkdir(parents=True)
    for name in ("requests.jsonl", "cell.json", "deeper/more"):
        (temporary / name).write_text("x")
    calls = Calls(monkeypatch)
    files.publish_folder(temporary, final)
    kinds = [kind for kind, _ in calls.made]
    before = {Path(p).relative_to(temporary).as_posix() for k, p in calls.made[: kinds.index("rename")]}
    assert before == {"requests.jsonl", "cell.json", "deeper/more", "deeper", "."}
    assert calls.made[-2:] == [("rename", str(final)), ("sync", str(tmp_path))]


def test_a_cell_whose_rename_was_lost_is_measured_again_and_its_receipt_made_of_what_is_there(
    tmp_path: Path,
) -> None:
    """A disk that kept the files and lost the last rename leaves the folder under its temporary name: it does not count."""
    folder = small_campaign(tmp_path, rates=(20.0, 40.0))
    run = folder.run(DATE, "noop_connector", "a")
    assert measure(folder).returncode == 0
    kept, lost = run.finished_cells()
    inode = kept.cell_json.stat().st_ino
    receipt = run.receipt.read_bytes()
    lost.path.rename(lost.temporary.path)
    run.receipt.unlink()
    done = measure(folder)
    assert done.returncode == 0, done.stderr
    assert [c.cell_id for c in run.finished_cells()] == [kept.cell_id, lost.cell_id]
    assert kept.cell_json.stat().st_ino == inode
    assert not lost.temporary.path.exists()
    assert run.receipt.read_bytes() != receipt, "the other cell is another measurement"
    # Of a run that lost its receipt alone, it is written again byte for byte and nothing is launched.
    receipt = run.receipt.read_bytes()
    run.receipt.unlink()
    attempts = len(list(run.path.glob("attempt_*")))
    assert measure(folder).returncode == 0
    assert run.receipt.read_bytes() == receipt
    assert len(list(run.path.glob("attempt_*"))) == attempts
