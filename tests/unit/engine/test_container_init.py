"""The first process of an engine's container: what it ends with, and the cores that it stays on."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil

from connector_tax.run.engine.container import INIT, PACKAGE


def first_process(*command: str, cpus: str = "", **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, str(INIT), str(PACKAGE.parent), "1", cpus, *command], **options)


def wait_until_it_runs(init: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while not psutil.Process(init.pid).children():
        assert init.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_container_runs_ends_with_its_standard_input() -> None:
    with first_process("sleep", "60", stdin=subprocess.PIPE) as init:
        wait_until_it_runs(init)
        assert init.stdin is not None
        init.stdin.close()
        assert init.wait(30) == 128 + signal.SIGTERM


def test_by_hand_there_is_no_standard_input_to_end_with() -> None:
    with first_process("sh", "-c", "sleep 0.4; exit 7", stdin=subprocess.DEVNULL) as init:
        assert init.wait(30) == 7
    with first_process("sleep", "60", stdin=subprocess.DEVNULL) as init:
        wait_until_it_runs(init)
        init.terminate()
        assert init.wait(30) == 128 + signal.SIGTERM


def test_ctrl_c_ends_a_container_that_was_started_by_hand_and_no_other() -> None:
    with first_process("sleep", "60", stdin=subprocess.DEVNULL) as init:
        wait_until_it_runs(init)
        init.send_signal(signal.SIGINT)
        assert init.wait(30) == 128 + signal.SIGTERM
    with first_process("sleep", "60", stdin=subprocess.PIPE) as init:
        wait_until_it_runs(init)
        init.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert init.poll() is None
        init.terminate()


def test_a_container_stays_on_the_cores_that_it_is_given() -> None:
    ask = "import os; print(sorted(os.sched_getaffinity(0)))"
    mine = min(os.sched_getaffinity(0))
    with first_process(
        sys.executable, "-c", ask, cpus=str(mine), stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as init:
        assert init.stdout is not None and init.stdout.read().decode().strip() == f"[{mine}]"
    with first_process("true", cpus="4095", stdin=subprocess.PIPE, stderr=subprocess.PIPE) as init:
        assert init.stderr is not None and b"cores 4095 are not open to this container" in init.stderr.read()
        assert init.wait(5) == 1
