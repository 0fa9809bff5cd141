"""Engine processes that nobody looks after any more: found by the launch's mark, and ended.

The supervisor ends its engine in every case but one: being killed itself with SIGKILL. What it launched then lives on, in its
process group or outside of it, and is found by what ``run.engine.pid.json`` says of the launch; see ``marks.py``.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from connector_tax.base.artifacts.supervisor import RECORD, Supervisor, recorded_supervisor, start_ticks
from connector_tax.base.errors import EngineError
from connector_tax.run.engine.supervised import Found, Marked, remove_container, signal_if

KILL_AFTER_S = 5.0
GIVE_UP_AFTER_S = 5.0
POLL_S = 0.05
# Who keeps forking may slip through a walk over /proc, and is one of the newest processes. So nobody is there once nobody is found
# among so many of the newest, so many times. Of forkers every 3 ms on two busy cores one look in two found each.
NEWEST = 16
LOOKS = 40


def end_leftovers(folder: Path, *, grace_s: float) -> list[int]:
    """End what the supervisor recorded in ``folder`` left running, itself included; forget the record.

    Returns:
        The processes that had to be signalled.

    Raises:
        EngineError: some do not end even when killed, or a container stays. The record is kept, so the next start tries again.
    """
    ended: list[int] = []
    supervisor = recorded_supervisor(folder)
    if supervisor is not None and supervisor.of_this_boot:
        if supervisor.lives:
            ended.append(supervisor.pid)
            _end_supervisor(supervisor, grace_s + KILL_AFTER_S)
        ended += _end_marked(Marked(supervisor.mark, folder))
    if supervisor is not None and supervisor.container is not None:
        remove_container(supervisor.container, supervisor.mark)
    (folder / RECORD).unlink(missing_ok=True)
    return ended


def recorded_below(root: Path) -> list[Path]:
    """Every folder below ``root`` in which an engine is recorded, in name order."""
    return [record.parent for record in sorted(root.rglob(RECORD))]


def end_all_leftovers(root: Path, *, grace_s: float) -> list[int]:
    """``end_leftovers`` of every run below ``root``; for whoever holds the campaign's lock, so that none of them is at work."""
    return [pid for folder in recorded_below(root) for pid in end_leftovers(folder, grace_s=grace_s)]


def _end_supervisor(supervisor: Supervisor, wait_s: float) -> None:
    """SIGTERM, on which it ends its family; SIGKILL if it does not end."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if supervisor.start_ticks is not None:
            signal_if(supervisor.pid, signum, supervisor.start_ticks)
        deadline = time.monotonic() + wait_s
        while supervisor.lives and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _end_marked(launch: Marked) -> list[int]:
    """SIGTERM to all, then SIGKILL in rounds until none is found.

    Groups are killed as a whole: who forks again and again is another process by the time that a signal to one arrives.
    """
    found = _living(launch)
    if not found.ticks:
        return []
    known, groups = dict(found.ticks), dict(found.groups)
    for pid, ticks in found.ticks.items():
        signal_if(pid, signal.SIGTERM, ticks)
    deadline = time.monotonic() + KILL_AFTER_S
    while (found := _living(launch)).ticks and time.monotonic() < deadline:
        known |= found.ticks
        groups |= found.groups
        time.sleep(POLL_S)
    deadline = time.monotonic() + GIVE_UP_AFTER_S
    # Some carry no sign, and their parent that did has ended: the start says that they are the same.
    while True:
        for group, leader in groups.items():
            _kill_group(group, leader)
        left = found.ticks | {p: t for p, t in known.items() if start_ticks(p) == t}
        for pid, ticks in left.items():
            signal_if(pid, signal.SIGKILL, ticks)
        found = _living(launch)
        known |= found.ticks
        groups = dict(found.groups)
        if not found.ticks and not any(start_ticks(p) == t for p, t in known.items()):
            return sorted(known)
        if time.monotonic() > deadline:
            raise EngineError(
                f"{launch.folder}: processes of a launch that is over do not end, even when killed: "
                f"{', '.join(map(str, sorted(found.ticks or left)))}. Look what they wait for (/proc/PID/stack), or restart the host."
            )


def _kill_group(group: int, leader: int | None) -> None:
    """Unless its number has been given to another process since, which only happens once nobody is left in the group."""
    if start_ticks(group) in (None, leader):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _living(launch: Marked) -> Found:
    found = launch.living()
    for _ in range(LOOKS):
        if found.ticks:
            break
        found = launch.living(NEWEST)
    return found
