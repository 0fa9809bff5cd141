"""``connector-tax load`` where something about the server, the disk or the person at the keyboard is not as wished."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from truth_server import Reply, answer_well, truth_server

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import target_of
from connector_tax.commands.load import COMMAND as COMMAND_OF_LOAD
from connector_tax.load.server import CacheCounters

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "scripts/bench_loop.py"]
SHORT = ("--duration", "0.4", "--warmup", "0", "--min-completed", "0", "--shape", "8,4")


def load(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["requests_r1_8x4.jsonl", "summary.json"])
def test_results_that_lie_there_are_replaced_by_none(tmp_path: Path, name: str) -> None:
    """A load took the place of the one before without a word. Nobody listens here, which is not found out: no request is sent."""
    (tmp_path / name).write_text("measured")
    given = ["--base-url", "http://127.0.0.1:9", "--rate", "20", "--out", str(tmp_path), *SHORT]
    with pytest.raises(ConfigError, match=rf"holds results already \({name}\).*No request was sent"):
        COMMAND_OF_LOAD.call(given)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "measured")]


def test_numbers_are_shown_and_rates_go_on_where_files_cannot_be_written(tmp_path: Path) -> None:
    """A server that takes the folder away in the middle, as a disk that fills would."""

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        if number == 1:
            (out / "requests_r20_8x4.jsonl").mkdir()
            (out / "requests_r40_8x4.jsonl").mkdir()
        await answer_well(reply, request, number)

    out = tmp_path / "out"
    with truth_server(script) as url:
        done = load("--base-url", url, "--rates", "20,40", "--out", str(out), *SHORT)
    assert done.returncode == 2
    assert "r20_8x4: 8 requests in" in done.stdout and "r40_8x4: 16 requests in" in done.stdout
    assert "not written: requests of r20_8x4" in done.stderr
    assert f"some files are not in {out}: make room there" in done.stderr
    assert "start again to resume" not in done.stderr and "Traceback" not in done.stderr
    assert len(json.loads((out / "summary.json").read_text())["cells"]) == 2


def end_by_interrupts(process: subprocess.Popen[str]) -> None:
    """The kernel makes one of two interrupts that a busy process has not met yet: then another one is due."""
    for _ in range(20):
        try:
            process.wait(timeout=4)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    process.wait(timeout=8)


def test_the_third_interrupt_says_what_is_lost(tmp_path: Path) -> None:
    first = threading.Event()

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        first.set()
        await asyncio.sleep(60)

    # A file and no pipe: a stopped worker keeps its end of a pipe open.
    written = tmp_path / "stderr.txt"
    with truth_server(script) as url, written.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "--base-url", url, "--rate", "20", "--out", str(tmp_path / "out"), *SHORT],
            cwd=ROOT,
            stderr=stderr,
            stdout=subprocess.DEVNULL,
            text=True,
            # A shell has its background jobs ignore SIGINT, and a child inherits that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        assert first.wait(30)
        # A worker that is stopped keeps the cell from ending until the third one comes.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGSTOP)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        try:
            end_by_interrupts(process)
            assert not [child for child in children if Path(f"/proc/{child}").exists()]
        finally:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
    said = written.read_text()
    assert process.returncode == 130
    assert "r20_8x4 was not over: its numbers and requests are lost" in said
    assert "interrupted; cells that were over are written" in said
    assert not (tmp_path / "out" / "summary.json").exists()


def test_metrics_that_do_not_come_cost_a_bounded_time_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        counters = CacheCounters(target_of(url, "m"), within_s=0.1)
        start = time.monotonic()
        assert [counters.now() for _ in range(5)] == [{}] * 5
        assert time.monotonic() - start < 5
        listening.settimeout(1)
        listening.accept()
        listening.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listening.accept()
    assert f"{url}/metrics: an answer without an end after 0.1 s. Hits of" in capsys.readouterr().err
