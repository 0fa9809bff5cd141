"""Engine processes that nobody looks after any more: found by their session, and ended.

The supervisor ends its engine in every case but one: being killed itself with SIGKILL. It leads a
session of its own, which the engine's processes stay in, so the session's number finds them then.
"""

import os
import signal
import time
from pathlib import Path

from connector_tax.artifacts.supervisor import RECORD, process_stat, recorded_supervisor, start_ticks

KILL_AFTER_S = 5.0
POLL_S = 0.05


def end_leftovers(folder: Path, *, grace_s: float) -> list[int]:
    """End what the supervisor recorded in ``folder`` left running, itself included; forget the record.

    Returns:
        The processes that had to be signalled.
    """
    ended: list[int] = []
    supervisor = recorded_supervisor(folder)
    if supervisor is not None and supervisor.of_this_boot:
        # Its number is its session's too, and stays taken while anyone is left in that session. Only if
        # another process has the number by now is the session gone.
        if supervisor.lives:
            ended.append(supervisor.pid)
            _end([supervisor.pid], grace_s + KILL_AFTER_S)
        if supervisor.lives or start_ticks(supervisor.pid) is None:
            left = _session(supervisor.pid)
            ended += left
            _end(left, KILL_AFTER_S)
    (folder / RECORD).unlink(missing_ok=True)
    return ended


def _end(pids: list[int], wait_s: float) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        alive = [pid for pid in pids if start_ticks(pid) is not None]
        for pid in alive:
            _signal(pid, signum)
        deadline = time.monotonic() + wait_s
        while any(start_ticks(pid) is not None for pid in alive) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _signal(pid: int, signum: signal.Signals) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def _session(leader: int) -> list[int]:
    """The living processes of the session that ``leader`` founded, without itself."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == leader:
            continue
        fields = process_stat(int(entry.name))
        if fields is not None and int(fields[3]) == leader:
            found.append(int(entry.name))
    return found
