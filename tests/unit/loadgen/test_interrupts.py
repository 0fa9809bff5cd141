"""Ctrl-C and SIGTERM: what was measured is written, and nothing of the client is left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from truth_server import Reply, answer_well, truth_server

ROOT = Path(__file__).parents[3]


def interrupted_bench(
    tmp_path: Path, script: Any, seen: threading.Event, *signals: int
) -> "tuple[subprocess.CompletedProcess[str], dict[str, Any], list[dict[str, Any]]]":
    """bench_loop.py, told ``signals`` one after the other once ``seen`` is set: how it ended, its cell, its requests."""
    (tmp_path / "tmp").mkdir()
    with truth_server(script) as url:
        command = [sys.executable, "scripts/bench_loop.py", "--model", "m", "--base-url", url]
        command += ["--rates", "50,60", "--shape", "8,4", "--out", str(tmp_path / "out"), "--warmup", "0.1"]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell has its background jobs ignore SIGINT, and a child inherits that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stderr is not None
        assert seen.wait(60)
        for signum in signals:
            process.send_signal(signum)
            # It says that it has heard each of them.
            assert any("interrupted; sending has stopped" in line for line in process.stderr)
        said, rest = process.communicate(timeout=60)
    done = subprocess.CompletedProcess(command, process.returncode, said, rest)
    cells = json.loads((tmp_path / "out" / "summary.json").read_text())["cells"]
    summary = {cell["cell_id"]: cell for cell in cells}
    lines = (tmp_path / "out" / "requests_r50_8x4.jsonl").read_text().splitlines()
    return done, summary, [json.loads(line) for line in lines]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_one_signal_stops_sending_and_what_is_in_flight_is_waited_for(
    tmp_path: Path, signum: signal.Signals
) -> None:
    seen = threading.Event()

    async def slow(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0.3)
        await answer_well(reply, request, number)
        if number > 20:
            seen.set()

    done, summary, requests = interrupted_bench(tmp_path, slow, seen, signum)
    assert done.returncode == 130, done.stderr
    assert list(summary) == ["r50_8x4"], "the second rate is not begun"
    assert summary["r50_8x4"]["health"]["aborted"] == "interrupted"
    assert {r["status"] for r in requests} == {"ok"}
    assert len(requests) == summary["r50_8x4"]["n_scheduled"] > 20
    assert "ended early: interrupted" in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_second_signal_leaves_what_is_in_flight(tmp_path: Path) -> None:
    """A server that answers nothing more after 20 requests would hold the first one for two minutes."""
    seen = threading.Event()

    async def stuck(reply: Reply, request: dict[str, Any], number: int) -> None:
        if number > 20:
            seen.set()
            await asyncio.sleep(300)
        await answer_well(reply, request, number)

    done, summary, requests = interrupted_bench(tmp_path, stuck, seen, signal.SIGTERM, signal.SIGTERM)
    assert done.returncode == 130, done.stderr
    assert {r["status"] for r in requests} == {"ok", "aborted"}
    assert summary["r50_8x4"]["health"]["aborted"] == "interrupted"
    assert list((tmp_path / "tmp").iterdir()) == []
