"""The sampler of /metrics killed or on a full disk: started again, and where it cannot live, its cells say so."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from families import within
from host_faults import DATE, small_campaign

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.files import Lines
from connector_tax.run.measure import cell as cell_module
from connector_tax.run.measure.cell import QueueTail
from connector_tax.run.measure.run import measure_run
from connector_tax.run.sampler import sampler
from connector_tax.run.sampler.sampler import sampling

NOBODY = "http://127.0.0.1:9"


def samplers() -> list[psutil.Process]:
    """Those that live: what was killed has no command any more."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "connector_tax.run.sampler.sampler" in process.cmdline():
                found.append(process)
    return found


def test_a_sampler_that_is_killed_is_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the middle of a line, which the next one does not become a part of."""
    out = tmp_path / "metrics.jsonl"
    with sampling(NOBODY, out, 0.2):
        (first,) = samplers()
        first.kill()
        with open(out, "a", encoding="utf-8") as torn:
            torn.write('{"t_ns":1,"ok":tr')
        before = out.stat().st_size
        assert within(20, lambda: out.stat().st_size >= before + 100)
        assert first.pid not in [p.pid for p in samplers()]
    assert samplers() == []
    lines = out.read_text().splitlines()
    assert '{"t_ns":1,"ok":tr' in lines
    assert json.loads(lines[-1])["t_ns"] > 1
    assert "sampler of /metrics ended by itself (exit code -9): started again" in capsys.readouterr().err


def test_a_sampler_that_is_killed_a_fourth_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sampler, "RESTART_AFTER_S", 0.0)
    killed: set[int] = set()
    deadline = time.monotonic() + 30
    with sampling(NOBODY, tmp_path / "metrics.jsonl", 0.2):
        while len(killed) < 4 and time.monotonic() < deadline:
            for process in samplers():
                if process.pid not in killed:
                    process.kill()
                    killed.add(process.pid)
            time.sleep(0.01)
        assert len(killed) == 4
        said = ""
        while "given up" not in said and time.monotonic() < deadline:
            said += capsys.readouterr().err
            time.sleep(0.01)
        assert samplers() == []
    assert said.count("(exit code -9): started again") == 3
    assert said.count("(exit code -9): given up; cells of some seconds are flagged samples_missing") == 1


def test_a_sampler_that_is_stopped_holds_up_no_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM does not reach who is stopped, or waits in a driver; the launch ended never."""
    monkeypatch.setattr(sampler, "END_WITHIN_S", 0.3)
    ended = threading.Event()

    def launch() -> None:
        with sampling(NOBODY, tmp_path / "metrics.jsonl", 0.2):
            samplers()[0].suspend()
        ended.set()

    threading.Thread(target=launch, daemon=True).start()
    assert ended.wait(20)
    assert samplers() == []


def test_a_sampler_that_cannot_live_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the launch goes on at once, without waiting for a first sample that does not come."""
    monkeypatch.setattr(sampler, "RESTART_AFTER_S", 0.0)
    monkeypatch.setattr(sampler, "START_TIMEOUT_S", 60.0)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with sampling(NOBODY, tmp_path / "metrics.jsonl", 0.2):
        said = capsys.readouterr().err
    assert said.count("ended by itself") == sampler.RESTARTS + 1
    assert "given up; cells of some seconds are flagged samples_missing" in said


def test_a_cell_without_its_sampler_is_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sampler, "RESTARTS", 0)
    # So that two seconds are enough to tell.
    monkeypatch.setattr(cell_module, "MIN_SAMPLES_SHARE", 1.0)
    start = sampler._Kept._start

    def killed(kept: sampler._Kept):  # type: ignore[no-untyped-def]
        process = start(kept)
        process.kill()
        return process

    folder = small_campaign(tmp_path, duration_s=2.0, max_cell_s=4.0)
    measure_run(folder.campaign_file, "plain", "a")
    monkeypatch.setattr(sampler._Kept, "_start", killed)
    measure_run(folder.campaign_file, "noop_connector", "a")
    flags = {}
    for connector in ("plain", "noop_connector"):
        (cell,) = folder.run(DATE, connector, "a").finished_cells()
        flags[connector] = "samples_missing" in read_cell(cell).flags
        assert read_cell(cell).verdict == "valid"
    assert flags == {"plain": False, "noop_connector": True}


def test_a_torn_line_in_the_middle_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    tail = QueueTail(path)
    path.write_text('{"t_ns":1,"ok":tr')
    assert list(tail()) == []
    with Lines(path) as lines:
        lines.write('{"t_ns":2,"ok":true,"values":{"num_requests_waiting":3.0}}')
    assert list(tail()) == [(2, 3.0)]


def line(t_ns: int, waiting: float | None, ok: str = "true") -> str:
    values = "{}" if waiting is None else f'{{"num_requests_waiting":{waiting}}}'
    return f'{{"t_ns":{t_ns},"ok":{ok},"values":{values}}}\n'


def test_only_what_was_written_since_is_read_and_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    path.write_text(line(1, 7.0))
    tail = QueueTail(path)
    assert list(tail()) == []
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(line(2, 3.0) + line(3, None) + line(4, 4.0, ok="false") + line(5, 5.0)[:10])
    assert list(tail()) == [(2, 3.0)]
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(line(5, 5.0)[10:])
    assert list(tail()) == [(5, 5.0)]
    assert list(tail()) == []


def test_a_file_that_is_not_there_yet_has_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    tail = QueueTail(path)
    assert list(tail()) == []
    path.write_text(line(1, 2.0))
    assert list(tail()) == [(1, 2.0)]
