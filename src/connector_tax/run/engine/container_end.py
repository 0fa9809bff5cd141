"""The end of an engine in a container: its first process, and what is left of it where somebody was killed on the way."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from connector_tax.base.artifacts.supervisor import process_stat, start_ticks
from connector_tax.base.config.model import Runtime
from connector_tax.base.errors import EngineError
from connector_tax.base.opening import printable
from connector_tax.run.engine.container import INIT, PREFIX
from connector_tax.run.engine.image import ANSWER_WITHIN_S
from connector_tax.run.engine.supervised import carries, signal_if
from connector_tax.run.engine.supervisor import descendants, newest_first

REMOVE_WITHIN_S = 10.0
MONITOR_ENDS_WITHIN_S = 3.0
POLL_S = 0.3


def first_process(mark: str) -> int | None:
    """The host's number of the first process of a launch's container; None while there is none, or where another host runs it."""
    found = []
    for pid in newest_first():
        if carries(pid, mark) and _runs_init(pid) and (fields := process_stat(pid)) is not None:
            found.append((int(fields[19]), pid))
    # A child is like its parent from its fork to its command.
    return min(found)[1] if found else None


def _runs_init(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:2] == [os.fsencode(INIT)]


class Inside:
    """The first process of one launch's container, looked up when it is first asked for, and again where that one has ended."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._found: tuple[int, int] | None = None

    @property
    def pid(self) -> int | None:
        if self._found is None or start_ticks(self._found[0]) != self._found[1]:
            pid = first_process(self._mark)
            ticks = start_ticks(pid) if pid is not None else None
            self._found = (pid, ticks) if pid is not None and ticks is not None else None
        return None if self._found is None else self._found[0]


def remove_container(runtime: Runtime, mark: str) -> None:
    """End and remove the container of a launch; nothing where there is none.

    Asked again for ``REMOVE_WITHIN_S``: podman fails where the container's process has just been killed, and nobody told it yet.

    Raises:
        EngineError: it may still be there.
    """
    deadline = time.monotonic() + REMOVE_WITHIN_S
    while (reason := _removed(runtime, PREFIX + mark)) is not None:
        if time.monotonic() > deadline:
            raise EngineError(
                f"container {PREFIX}{mark} may still be there: {runtime} rm failed: {printable(reason, 300)}. "
                f"Remove it by hand: {runtime} rm --force {PREFIX}{mark}"
            )
        time.sleep(POLL_S)
    if runtime == "podman":
        _end_monitors(PREFIX + mark)


def _end_monitors(name: str) -> None:
    """End podman's conmon of a container that podman has no more, with what is below it.

    A client that is killed while it makes a container leaves one now and then, with a process that waits to be started. Any other is about to end.
    """
    deadline = time.monotonic() + MONITOR_ENDS_WITHIN_S
    while (found := _monitors(name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for monitor, began in found.items():
        below = {pid: ticks for pid in descendants(monitor) if (ticks := start_ticks(pid)) is not None}
        if start_ticks(monitor) == began:  # else its number is another's by now
            for pid, ticks in {**below, monitor: began}.items():
                signal_if(pid, signal.SIGKILL, ticks)


def _monitors(name: str) -> dict[int, int]:
    """Those that live, with their start in clock ticks since boot, which was asked before who they are."""
    found = {}
    for pid in newest_first():
        with suppress(OSError):  # it has ended
            ticks = start_ticks(pid)
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            named = Path(os.fsdecode(words[0])).name == "conmon" and (b"-n", name.encode()) in pairwise(words)
            if named and ticks is not None:
                found[pid] = ticks
    return found


def _removed(runtime: Runtime, name: str) -> str | None:
    """Why it is not; None where it is, or was not there."""
    now = ("--time=0",) if runtime == "podman" else ()
    try:
        done = subprocess.run(
            [runtime, "rm", "--force", "--volumes", *now, "--", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 or "no such container" in done.stderr.lower() else done.stderr.strip()
