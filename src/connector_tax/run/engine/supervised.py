"""A command under a supervisor of its own: started with a mark, recorded, and ended with everything that it launched."""

import os
import secrets
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.artifacts.supervisor import process_stat, record_supervisor, start_ticks
from connector_tax.base.config.model import Runtime
from connector_tax.run.engine.leftovers import end_leftovers
from connector_tax.run.engine.supervisor import LIFELINE, newest_first

# Which processes belong to a launch, also those that left its session, and after whoever launched them was killed.

VARIABLE = "CONNECTOR_TAX_RUN"


def new_mark() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Found:
    """What one walk over /proc found of a launch.

    Attributes:
        ticks: process id -> start in clock ticks since boot.
        groups: process groups of those with the mark, with the start of each group's leader, None where it has ended. Groups
            are handed down with a session, which the supervisor or a descendant of it founded, so all in there are of the launch.
    """

    ticks: dict[int, int]
    groups: dict[int, int | None]


@dataclass(frozen=True, slots=True)
class Marked:
    """The processes of one launch.

    Attributes:
        folder: where its logs lie.
    """

    mark: str
    folder: Path

    def living(self, newest: int | None = None) -> Found:
        """The launch's processes that live, this one left out.

        Args:
            newest: look at so many processes only, those that began last; None: at all.
        """
        parents, ticks, found, groups = {}, {}, set(), {}
        logs = self._logs()
        for pid in islice(newest_first(), newest):
            fields = process_stat(pid)
            if fields is None:
                continue
            parents[pid], ticks[pid] = int(fields[1]), int(fields[19])
            if carries(pid, self.mark):
                groups[int(fields[2])] = start_ticks(int(fields[2]))
                found.add(pid)
            elif logs & _written_by(pid):
                found.add(pid)
        frontier = found
        while frontier:
            frontier = {pid for pid, parent in parents.items() if parent in frontier} - found
            found |= frontier
        groups.pop(os.getpgrp(), None)
        return Found({pid: ticks[pid] for pid in found}, groups)

    def _logs(self) -> set[tuple[int, int]]:
        """Device and inode of the launch's logs; a link or a device in their place, as in a stranger's results, is nobody's sign."""
        found = set()
        for name in LOGS:
            with suppress(OSError):  # not there yet
                state = os.lstat(self.folder / name)
                if stat.S_ISREG(state.st_mode):
                    found.add((state.st_dev, state.st_ino))
        return found


def carries(pid: int, mark: str) -> bool:
    """Whether the environment of a process shows the word."""
    wanted = f"{VARIABLE}={mark}".encode()
    with suppress(OSError):  # it has ended, or is another user's
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _written_by(pid: int) -> set[tuple[int, int]]:
    """Device and inode of what a process has as standard output and error."""
    found = set()
    for descriptor in (1, 2):
        with suppress(OSError):  # it has ended, has none, or is another user's
            state = Path(f"/proc/{pid}/fd/{descriptor}").stat()
            found.add((state.st_dev, state.st_ino))
    return found


def signal_if(pid: int, signum: signal.Signals, ticks: int) -> None:
    """Send ``signum`` to ``pid`` if it still is the process that started at ``ticks``.

    It is held by a descriptor while that is asked, so nobody else can have its number when the signal goes out.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel older than 5.3, or one that forbids it
        if start_ticks(pid) == ticks:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)
        return
    try:
        if start_ticks(pid) == ticks:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signum)
    finally:
        os.close(descriptor)


Supervisor = subprocess.Popen[bytes]
# What the supervisor itself takes at most, beyond the grace that it gives.
KILL_S = 10.0


def start_supervised(
    command: list[str],
    *,
    folder: Path,
    environment: dict[str, str],
    grace_s: float,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    cards: tuple[str, ...] = (),
    mark: str | None = None,
    container: Runtime | None = None,
) -> Supervisor:
    """Start ``command``; it is ended when this process ends, however that happens.

    Args:
        folder: gets the record by which a later start finds what a killed supervisor left.
        grace_s: from SIGTERM to SIGKILL, when it is ended.
        stdout, stderr: None: this process's own.
        cards: by their names, for the record.
        mark: the launch's, where the command knows it already.
        container: by which runtime the command runs one of its own; it then ends with its standard input.
    """
    mark = mark or new_mark()
    supervisor = subprocess.Popen(
        [
            *(sys.executable, "-m", "connector_tax.run.engine.supervisor", str(grace_s)),
            *([LIFELINE] if container is not None else []),
            *command,
        ],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env={**environment, VARIABLE: mark},
        # A group, for Ctrl-C to reach us alone; not a session: see docs/decisions/0024.
        process_group=0,
    )
    try:
        record_supervisor(folder, supervisor.pid, mark, cards, container)
    except BaseException:
        # Of what is recorded nowhere no later start could know.
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait()
        raise
    return supervisor


def stop_supervised(supervisor: Supervisor, folder: Path, *, grace_s: float) -> None:
    """Close the lifeline, on which the supervisor ends everything and itself; then look for what is left all the same.

    Raises:
        EngineError: something does not end.
    """
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    try:
        supervisor.wait(grace_s + KILL_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
    end_leftovers(folder, grace_s=0.0)
