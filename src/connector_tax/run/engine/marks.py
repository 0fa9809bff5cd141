"""Which processes belong to a launch, also those that left its session, and after whoever launched them was killed.

A process id alone says nothing for certain: the kernel gives it to somebody else later, and so it does with a session's
number. What cannot be had by chance is one of these signs:

* ``CONNECTOR_TAX_RUN`` in its environment: a random word, drawn for each launch, that children inherit;
* its standard output or error is the launch's own log. setproctitle, by which vLLM names its engine core and workers,
  overwrites the environment that the kernel shows, so the first sign is gone in just those;
* it is a child of such a process.
"""

import os
import secrets
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.artifacts.supervisor import process_stat, start_ticks
from connector_tax.run.engine.supervisor import newest_first

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
