"""``connector-tax status --web`` as a person starts and ends it."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from half import half, listing

ROOT = Path(__file__).parents[3]
# A shell has a background job's SIGINT ignored, and so may who runs these tests.
DOOR = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from connector_tax.cli import main; main(sys.argv[1:])"


@contextmanager
def started(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """The page of a campaign that is half measured, its port, and the folder for temporary ones."""
    half(tmp_path / "results")
    config = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(config))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    arguments = [
        "--web",
        "--port",
        "0",
        "--configfile",
        str(tmp_path / "demo.yaml"),
        "--root",
        str(tmp_path / "results"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", DOOR, "status", *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    try:
        found = re.match(
            r"http://127\.0\.0\.1:(\d+)/ shows campaign demo until Ctrl-C", process.stdout.readline()
        )
        assert found is not None
        yield process, int(found[1]), temporary
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("signum", "code", "said"),
    [
        (signal.SIGINT, 0, "The campaign goes on as it was."),
        (signal.SIGTERM, 143, ""),
        (signal.SIGHUP, 129, ""),
    ],
)
def test_it_ends_in_order_and_leaves_nothing(
    tmp_path: Path, signum: signal.Signals, code: int, said: str
) -> None:
    with started(tmp_path) as (process, port, temporary):
        before = listing(tmp_path / "results")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/")
        assert b"runs have ended" in connection.getresponse().read()
        assert len(list(temporary.iterdir())) == 1
        process.send_signal(signum)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code and said in out and err == ""
        assert list(temporary.iterdir()) == []
        assert listing(tmp_path / "results") == before


def test_a_second_ctrl_c_changes_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as (process, _, temporary):
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        err = process.communicate(timeout=120)[1]
        assert process.returncode == 0 and err == "" and list(temporary.iterdir()) == []


def test_ctrl_z_stops_the_report_that_is_made_as_well(tmp_path: Path) -> None:
    """Nobody would look whether a cell is measured beside it."""
    with started(tmp_path, "--report", "auto", "--every", "0") as (process, _, _):
        own = psutil.Process(process.pid)
        until(own.children)
        (child,) = own.children()
        until(
            lambda: "partial" in " ".join(child.cmdline()) and child.cpu_times().user > 0
        )  # no fork of ours any more
        process.send_signal(signal.SIGTSTP)
        until(lambda: own.status() == psutil.STATUS_STOPPED)
        until(lambda: child.status() == psutil.STATUS_STOPPED)
        process.send_signal(signal.SIGCONT)
        until(lambda: not child.is_running() or child.status() != psutil.STATUS_STOPPED)


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_port_in_use_is_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "connector_tax",
            "status",
            "--web",
            "--port",
            port,
            "--configfile",
            "config/demo.yaml",
        ]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
    assert ended.returncode == 2 and ended.stdout == ""
    assert (
        ended.stderr
        == f"error: port {port} of 127.0.0.1 is in use. Give another with --port, or --port 0 for any that is free.\n"
    )
    assert list(tmp_path.iterdir()) == []
