"""Engine processes that nobody looks after any more: found by their session, and ended.

The supervisor ends its engine in every case but one: being killed itself with SIGKILL. It leads a
session of its own, which the engine's processes stay in, so the session's number finds them then.
"""

import json
import os
import signal
import time
from pathlib import Path

from connector_tax.files import write_json

RECORD = "engine.pid.json"
KILL_AFTER_S = 5.0
POLL_S = 0.05


def record_supervisor(folder: Path, pid: int) -> None:
    """Note in the run's folder which process looks after its engine."""
    write_json(folder / RECORD, {"pid": pid, "start_ticks": _start_ticks(pid), "boot": _boot_id()})


def end_leftovers(folder: Path, *, grace_s: float) -> list[int]:
    """End what the supervisor recorded in ``folder`` left running, itself included; forget the record.

    Returns:
        The processes that had to be signalled.
    """
    path = folder / RECORD
    if not path.exists():
        return []
    try:
        recorded = json.loads(path.read_text())
        supervisor, ticks, boot = int(recorded["pid"]), recorded["start_ticks"], recorded["boot"]
    except (ValueError, KeyError, TypeError):
        path.unlink()  # of another version, or torn: it names nobody for certain
        return []
    ended: list[int] = []
    if boot == _boot_id() and _start_ticks(supervisor) in (ticks, None):
        # Its number is its session's too, and stays taken while anyone is left in that session. Only if
        # another process has the number by now is the session gone.
        if _start_ticks(supervisor) == ticks:
            ended.append(supervisor)
            _end([supervisor], grace_s + KILL_AFTER_S)
        left = _session(supervisor)
        ended += left
        _end(left, KILL_AFTER_S)
    path.unlink()
    return ended


def _end(pids: list[int], wait_s: float) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        alive = [pid for pid in pids if _start_ticks(pid) is not None]
        for pid in alive:
            _signal(pid, signum)
        deadline = time.monotonic() + wait_s
        while any(_start_ticks(pid) is not None for pid in alive) and time.monotonic() < deadline:
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
        fields = _stat(int(entry.name))
        if fields is not None and int(fields[3]) == leader:
            found.append(int(entry.name))
    return found


def _start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on; None if it is gone or a zombie."""
    try:
        # The name in parentheses may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
