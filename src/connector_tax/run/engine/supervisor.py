"""Supervisor: runs a command that cannot outlive its caller.

    python -m connector_tax.run.engine.supervisor GRACE_S [--lifeline] COMMAND...

Runs COMMAND as a child, and ends it with all its descendants when standard input reaches its end or
SIGTERM arrives. Standard input is the lifeline pipe from the measuring script; the kernel closes it
however that script ends, ``kill -9`` included. As a child subreaper this process inherits orphaned
grandchildren, so it finds and ends them too. With --lifeline COMMAND gets a pipe on standard input that
closes with this process, for commands that run under another parent, as in a container; that pipe first
carries the container's variables.

Standard library only: it must start in a few milliseconds.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import IO

from connector_tax.base.prctl import PR_SET_CHILD_SUBREAPER, killed_with_parent, prctl

KILL_WAIT_S = 5.0
LIFELINE = "--lifeline"
# Names the variables that launch/plugins/container_init.py reads from standard input.
HANDED = "CONNECTOR_TAX_HANDED"


def main(arguments: list[str], ends_on: tuple[signal.Signals, ...] = (signal.SIGTERM,)) -> int:
    """Run the command and return its exit code.

    Args:
        ends_on: signals that end the command; SIGINT is ignored unless listed.
    """
    grace_s, command = float(arguments[0]), arguments[1:]
    lifeline = command[:1] == [LIFELINE]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    # If our parent is killed while an engine is stopped, the kernel sends SIGHUP to the group.
    # Survive it, to end the others.
    survived = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for signum in (*ends_on, signal.SIGCHLD, *survived):
        signal.signal(signum, _woken)
    child = subprocess.Popen(
        command[lifeline:],
        stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
        preexec_fn=killed_with_parent,
    )
    if child.stdin is not None and os.environ.get(HANDED):
        # The pipe may not be read for a while, and this thread must react to signals meanwhile.
        threading.Thread(target=_hand_over, args=(child.stdin,), daemon=True).start()
    code = _wait(child, wake_read, ends_on)
    _end_descendants(grace_s)
    return code


def _hand_over(pipe: IO[bytes]) -> None:
    """Write ``NAME=VALUE`` plus NUL for each variable that is set, then one NUL."""
    assignments = [f"{name}={os.environ[name]}" for name in os.environ[HANDED].split() if name in os.environ]
    with suppress(BrokenPipeError):
        pipe.write(b"".join(os.fsencode(assignment) + b"\0" for assignment in [*assignments, ""]))
        pipe.flush()


def _wait(child: "subprocess.Popen[bytes]", wake_fd: int, ends_on: tuple[signal.Signals, ...]) -> int:
    """Return the child's exit code, or 143 once standard input ends or a signal of ``ends_on`` arrives."""
    while True:
        readable, _, _ = select.select([0, wake_fd], [], [])
        if 0 in readable and not os.read(0, 4096):
            return 128 + signal.SIGTERM
        if wake_fd in readable and set(ends_on) & set(os.read(wake_fd, 4096)):
            return 128 + signal.SIGTERM
        code = child.poll()
        if code is not None:
            return code if code >= 0 else 128 - code


def _end_descendants(grace_s: float) -> None:
    for pid in descendants(os.getpid()):
        _signal(pid, signal.SIGTERM)
    if not _gone(grace_s):
        _kill_in_rounds()


def _kill_in_rounds() -> None:
    """Send SIGKILL to every descendant until none is left, for at most ``KILL_WAIT_S``."""
    deadline = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < deadline:
        if not _reap():
            return
        descendants(os.getpid(), strike=lambda pid: _signal(pid, signal.SIGKILL))


def _gone(within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        if not _reap():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _reap() -> bool:
    """Reap ended children; return whether any live. Orphans become children, so no child means nobody."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _signal(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def descendants(root: int, strike: Callable[[int], None] | None = None) -> list[int]:
    """Return every living descendant of ``root``, from one walk over /proc.

    Args:
        strike: called with each one as soon as it is known. A process that keeps forking and exiting has a
            new pid before a walk ends, so the newest are visited first.
    """
    children: dict[int, list[int]] = {}
    for pid in newest_first():
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                # The name in parentheses may hold anything; the parent is the second field after it.
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(pid)
            if strike is not None and int(fields[1]) == root:
                strike(pid)
    descendant_pids: list[int] = []
    frontier = [root]
    while frontier:
        parent = frontier.pop()
        child_pids = children.get(parent, [])
        if strike is not None and parent != root:  # the root's children were struck on the way
            for pid in child_pids:
                strike(pid)
        descendant_pids += child_pids
        frontier += child_pids
    return descendant_pids


def newest_first() -> list[int]:
    """Return every process id but this one's, newest first: in a chain of forks the newest lives.

    Pids are assigned upwards and wrap around; the last field of /proc/loadavg is the latest one.
    """
    with open("/proc/loadavg", "rb") as loadavg:
        last_pid = int(loadavg.read().split()[-1])
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - a round must be quick
    return sorted(
        (pid for pid in pids if pid != os.getpid()), key=lambda pid: (pid <= last_pid, pid), reverse=True
    )


def _woken(signum: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up pipe carries the signal's number."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
