"""``python -m connector_tax.engine.supervisor GRACE_S COMMAND...``: a command that cannot outlive us.

Runs COMMAND in a session of its own and ends it, with every descendant it ever had, when standard
input reaches its end or SIGTERM arrives. Standard input is a pipe from the measuring script: the
kernel closes it however that script ends, ``kill -9`` included. As a child subreaper this process
also inherits grandchildren that left the session, so they are found and ended as well.

Standard library only; it must start in a few milliseconds.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from connector_tax.engine.lifeline import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl

KILL_WAIT_S = 5.0


def main(arguments: list[str]) -> int:
    grace_s, command = float(arguments[0]), arguments[1:]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGTERM, _woken)
    signal.signal(signal.SIGCHLD, _woken)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_supervisor)
    code = _wait(child, wake_read)
    _end_descendants(grace_s)
    return code


def _end_with_supervisor() -> None:
    """In the child: should this process be killed outright, the kernel ends the engine's front at once."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(child: "subprocess.Popen[bytes]", wake_fd: int) -> int:
    """Until the child ends (its exit code), or standard input ends or SIGTERM comes (143)."""
    while True:
        ready, _, _ = select.select([0, wake_fd], [], [])
        if 0 in ready and not os.read(0, 4096):
            return 128 + signal.SIGTERM
        if wake_fd in ready and signal.SIGTERM in os.read(wake_fd, 4096):
            return 128 + signal.SIGTERM
        code = child.poll()
        if code is not None:
            return code if code >= 0 else 128 - code


def _end_descendants(grace_s: float) -> None:
    _signal_all(signal.SIGTERM)
    if not _gone(grace_s):
        _signal_all(signal.SIGKILL)
        _gone(KILL_WAIT_S)


def _gone(within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        _reap()
        if not descendants(os.getpid()):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _signal_all(signum: int) -> None:
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            continue


def descendants(root: int) -> list[int]:
    """Every living descendant of ``root``, from one walk over /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold spaces; the parent is the second field after it.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = children.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def _woken(signum: int, frame: FrameType | None) -> None:
    """The wake-up pipe carries the signal's number; nothing to do here."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
