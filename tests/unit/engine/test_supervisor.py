"""No engine outlives the script that launched it, however that script ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from families import alive, within

# An engine with a grandchild in a session of its own that ignores SIGTERM, as the worst of them do.
STUBBORN = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"],
    start_new_session=True)
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""
# In virtual time an engine is stopped while it is not its turn; the kernel then hangs up on its group when whoever started that dies.
STOPPED = STUBBORN.replace("\ntime.sleep(600)\n", "\nos.kill(os.getpid(), signal.SIGSTOP)\n")
LAUNCHER = """
import subprocess, sys, time
supervisor = subprocess.Popen([sys.executable, "-m", "connector_tax.run.engine.supervisor", "0.5",
    sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE, process_group=0)
print(supervisor.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("engine", [STUBBORN, STOPPED], ids=["stubborn", "stopped"])
def test_nothing_survives_the_death_of_the_launching_script(tmp_path: Path, engine: str) -> None:
    """kill -9 of the script closes the pipe; the supervisor then ends the whole family."""
    pids_file = tmp_path / "pids"
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, engine, str(pids_file)], stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    supervisor = int(launcher.stdout.readline())
    assert within(15, lambda: pids_file.exists() and len(pids_file.read_text().split()) == 2)
    family = [supervisor, *map(int, pids_file.read_text().split())]
    launcher.kill()
    launcher.wait()
    assert within(15, lambda: not any(map(alive, family))), [p for p in family if alive(p)]


def test_ctrl_c_in_the_terminal_does_not_reach_the_engine_first(tmp_path: Path) -> None:
    """SIGINT goes to the foreground group; the engine is in a session of its own and is ended in order."""
    process = subprocess.Popen(
        [sys.executable, "-m", "connector_tax.run.engine.supervisor", "5", "sleep", "600"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert within(15, lambda: bool(psutil.Process(process.pid).children()))
    child = psutil.Process(process.pid).children()[0].pid
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None and alive(child)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 143
    assert not alive(child)


def test_the_engines_exit_code_is_passed_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "connector_tax.run.engine.supervisor", "1", "bash", "-c", "exit 7"],
        stdin=subprocess.PIPE,
    )
    assert process.wait(10) == 7
