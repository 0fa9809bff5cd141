"""Runs a command under its own supervisor: marks and records it, and ends it with all it launched."""

import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import IO

from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.artifacts.supervisor import (
    RECORD,
    process_stat,
    record_supervisor,
    recorded_supervisor,
    start_ticks,
)
from connector_tax.base.artifacts.supervisor import Supervisor as Recorded
from connector_tax.base.config.model import Runtime
from connector_tax.base.errors import EngineError
from connector_tax.base.files import printable, write_pieces
from connector_tax.base.secrets import masked
from connector_tax.run.engine.container import ANSWER_WITHIN_S, INIT, PREFIX
from connector_tax.run.engine.supervisor import LIFELINE, descendants, newest_first

# Logs are masked after the engine has ended, since the engine writes them itself.

# A log may be larger than memory, so it is read in pieces of about this size, cut at line ends.
PIECE_CHARS = 1 << 22


def clean_logs(folder: Path) -> None:
    """Mask the logs in ``folder``; one without a secret keeps its content and time stamp.

    Raises:
        ArtifactError: there is no room for the masked log.
    """
    for name in LOGS:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            _clean(path)


def _clean(path: Path) -> None:
    # Two passes, so that a log without a secret needs no space for a copy.
    if all(raw == masked_text for raw, masked_text in _pieces(path)):
        return
    masked_pieces = (masked_text.encode("utf-8", "surrogateescape") for _, masked_text in _pieces(path))
    write_pieces(path, masked_pieces, mode=path.stat().st_mode & 0o777)


def _pieces(path: Path) -> Iterator[tuple[str, str]]:
    """Yield pieces of a log, raw and masked; bytes that are not UTF-8 survive the round trip."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as log:
        while text := log.read(PIECE_CHARS):
            text += log.readline()
            yield text, masked(text)


# The processes of a launch, also those that left its session or outlived their launcher.

VARIABLE = "CONNECTOR_TAX_RUN"


def new_mark() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Found:
    """A launch's processes, from one walk over /proc.

    Attributes:
        ticks: process id -> start in clock ticks since boot.
        groups: process groups of marked processes -> start of the group's leader, None if it has ended.
            A group stays within its session, which the supervisor or a descendant founded, so all
            members belong to the launch.
    """

    ticks: dict[int, int]
    groups: dict[int, int | None]


@dataclass(frozen=True, slots=True)
class Marked:
    """The processes of one launch.

    Attributes:
        folder: holds its logs.
    """

    mark: str
    folder: Path

    def living(self, newest: int | None = None) -> Found:
        """Return the launch's living processes, without this one.

        Args:
            newest: examine only this many, the newest; None: all.
        """
        parents, ticks, pids, groups = {}, {}, set(), {}
        logs = self._logs()
        for pid in islice(newest_first(), newest):
            fields = process_stat(pid)
            if fields is None:
                continue
            parents[pid], ticks[pid] = int(fields[1]), int(fields[19])
            if carries(pid, self.mark):
                groups[int(fields[2])] = start_ticks(int(fields[2]))
                pids.add(pid)
            elif logs & _written_by(pid):
                pids.add(pid)
        frontier = pids
        while frontier:
            frontier = {pid for pid, parent in parents.items() if parent in frontier} - pids
            pids |= frontier
        groups.pop(os.getpgrp(), None)
        return Found({pid: ticks[pid] for pid in pids}, groups)

    def _logs(self) -> set[tuple[int, int]]:
        """Return device and inode of the launch's regular log files; links and devices identify nothing."""
        identities = set()
        for name in LOGS:
            with suppress(OSError):  # not there yet
                status = os.lstat(self.folder / name)
                if stat.S_ISREG(status.st_mode):
                    identities.add((status.st_dev, status.st_ino))
        return identities


def carries(pid: int, mark: str) -> bool:
    """Return whether a process's environment contains the mark."""
    variable = f"{VARIABLE}={mark}".encode()
    with suppress(OSError):  # ended, or another user's
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _written_by(pid: int) -> set[tuple[int, int]]:
    """Return device and inode of a process's standard output and error."""
    identities = set()
    for descriptor in (1, 2):
        with suppress(OSError):  # ended, closed, or another user's
            status = Path(f"/proc/{pid}/fd/{descriptor}").stat()
            identities.add((status.st_dev, status.st_ino))
    return identities


def signal_if(pid: int, signum: signal.Signals, ticks: int) -> None:
    """Send ``signum`` to ``pid`` if it is still the process that started at ``ticks``.

    A pidfd holds the process during the check, so the signal cannot reach a successor with the same pid.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3, or one that forbids it
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
# Longest time that the supervisor takes beyond the grace that it gives.
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
    """Start ``command``, which is ended when this process ends, however that happens.

    Args:
        folder: gets the record by which a later start finds what a killed supervisor left.
        grace_s: from SIGTERM to SIGKILL.
        stdout, stderr: None: this process's own.
        cards: names for the record.
        mark: the launch's, if the command contains it.
        container: the runtime of the command's container; the command then ends with its standard input.
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
        # A process group of its own, so that Ctrl-C reaches only us; not a session (docs/decisions/0024).
        process_group=0,
    )
    try:
        record_supervisor(folder, supervisor.pid, mark, cards, container)
    except BaseException:
        # A later start could not find an unrecorded supervisor.
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait()
        raise
    return supervisor


def stop_supervised(supervisor: Supervisor, folder: Path, *, grace_s: float) -> None:
    """Close the lifeline, on which the supervisor ends everything and itself; then end any leftovers.

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


# Ends an engine in a container: its first process, and leftovers of a killed client.

REMOVE_WITHIN_S = 10.0
MONITOR_ENDS_WITHIN_S = 3.0
POLL_S = 0.3


def first_process(mark: str) -> int | None:
    """Return the host's pid of the container's first process; None before it starts or on another host."""
    candidates = []
    for pid in newest_first():
        if carries(pid, mark) and _runs_init(pid) and (fields := process_stat(pid)) is not None:
            candidates.append((int(fields[19]), pid))
    # Between fork and exec a child looks like its parent, so the oldest counts.
    return min(candidates)[1] if candidates else None


def _runs_init(pid: int) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return arguments[1:2] == [os.fsencode(INIT)]


class Inside:
    """The first process of a launch's container, looked up on first use and again once it has ended."""

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
    """End and remove a launch's container, if there is one.

    Retries for ``REMOVE_WITHIN_S``: podman fails if the container's process was killed just now.

    Raises:
        EngineError: it may still be there.
    """
    deadline = time.monotonic() + REMOVE_WITHIN_S
    while (reason := _removed(runtime, PREFIX + mark)) is not None:
        if time.monotonic() > deadline:
            raise EngineError(
                f"container {PREFIX}{mark} may still be there: {runtime} rm failed: {printable(reason, 300)}."
                f" Remove it by hand: {runtime} rm --force {PREFIX}{mark}"
            )
        time.sleep(POLL_S)
    if runtime == "podman":
        _end_monitors(PREFIX + mark)


def _end_monitors(name: str) -> None:
    """End conmon processes of a container that podman no longer knows, with their descendants.

    A client killed while it creates a container sometimes leaves one, with a process waiting to be started.
    Any other is about to end.
    """
    deadline = time.monotonic() + MONITOR_ENDS_WITHIN_S
    while (monitors := _monitors(name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for monitor, began_ticks in monitors.items():
        ticks_below = {pid: ticks for pid in descendants(monitor) if (ticks := start_ticks(pid)) is not None}
        if start_ticks(monitor) == began_ticks:  # else the pid belongs to another process now
            for pid, ticks in {**ticks_below, monitor: began_ticks}.items():
                signal_if(pid, signal.SIGKILL, ticks)


def _monitors(name: str) -> dict[int, int]:
    """Return living monitors -> start in clock ticks since boot, read before their command line."""
    monitors = {}
    for pid in newest_first():
        with suppress(OSError):  # it has ended
            ticks = start_ticks(pid)
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_monitor = Path(os.fsdecode(arguments[0])).name == "conmon" and (
                b"-n",
                name.encode(),
            ) in pairwise(arguments)
            if is_monitor and ticks is not None:
                monitors[pid] = ticks
    return monitors


def _removed(runtime: Runtime, name: str) -> str | None:
    """Return why the container was not removed; None if it was, or did not exist."""
    no_grace = ("--time=0",) if runtime == "podman" else ()
    try:
        process = subprocess.run(
            [runtime, "rm", "--force", "--volumes", *no_grace, "--", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        None
        if process.returncode == 0 or "no such container" in process.stderr.lower()
        else process.stderr.strip()
    )


# Leftovers: engine processes without a supervisor, found by the launch's mark and ended.

KILL_AFTER_S = 5.0
GIVE_UP_AFTER_S = 5.0
CLEAR_POLL_S = 0.05
# A process that keeps forking may slip through a walk over /proc, but is among the newest. So nobody is
# left once LOOKS looks at the NEWEST processes find nobody. With forks every 3 ms on two busy cores,
# one look in two found each.
NEWEST = 16
LOOKS = 40


def end_leftovers(folder: Path, *, grace_s: float) -> list[int]:
    """End what the supervisor recorded in ``folder`` left running, itself included; remove the record.

    Returns:
        The processes that had to be signalled.

    Raises:
        EngineError: processes survive SIGKILL, or a container stays. The record is kept for the next start.
    """
    ended_pids: list[int] = []
    supervisor = recorded_supervisor(folder)
    if supervisor is not None and supervisor.of_this_boot:
        if supervisor.lives:
            ended_pids.append(supervisor.pid)
            _end_supervisor(supervisor, grace_s + KILL_AFTER_S)
        ended_pids += _end_marked(Marked(supervisor.mark, folder))
    if supervisor is not None and supervisor.container is not None:
        remove_container(supervisor.container, supervisor.mark)
    (folder / RECORD).unlink(missing_ok=True)
    return ended_pids


def recorded_below(root: Path) -> list[Path]:
    return [record.parent for record in sorted(root.rglob(RECORD))]


def end_all_leftovers(root: Path, *, grace_s: float) -> list[int]:
    """Run ``end_leftovers`` on every run below ``root``; the caller holds the campaign's lock."""
    return [pid for folder in recorded_below(root) for pid in end_leftovers(folder, grace_s=grace_s)]


def _end_supervisor(supervisor: Recorded, wait_s: float) -> None:
    """Send SIGTERM, on which it ends its descendants; then SIGKILL if it does not end."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if supervisor.start_ticks is not None:
            signal_if(supervisor.pid, signum, supervisor.start_ticks)
        deadline = time.monotonic() + wait_s
        while supervisor.lives and time.monotonic() < deadline:
            time.sleep(CLEAR_POLL_S)


def _end_marked(launch: Marked) -> list[int]:
    """Send SIGTERM to all, then SIGKILL in rounds until none is found.

    Groups are killed as a whole: a process that keeps forking has a new pid by the time a signal arrives.
    """
    living = _living(launch)
    if not living.ticks:
        return []
    known_ticks, groups = dict(living.ticks), dict(living.groups)
    for pid, ticks in living.ticks.items():
        signal_if(pid, signal.SIGTERM, ticks)
    deadline = time.monotonic() + KILL_AFTER_S
    while (living := _living(launch)).ticks and time.monotonic() < deadline:
        known_ticks |= living.ticks
        groups |= living.groups
        time.sleep(CLEAR_POLL_S)
    deadline = time.monotonic() + GIVE_UP_AFTER_S
    # Some carry no mark and their marked parent has ended; their start time identifies them.
    while True:
        for group, leader in groups.items():
            _kill_group(group, leader)
        left_ticks = living.ticks | {p: t for p, t in known_ticks.items() if start_ticks(p) == t}
        for pid, ticks in left_ticks.items():
            signal_if(pid, signal.SIGKILL, ticks)
        living = _living(launch)
        known_ticks |= living.ticks
        groups = dict(living.groups)
        if not living.ticks and not any(start_ticks(p) == t for p, t in known_ticks.items()):
            return sorted(known_ticks)
        if time.monotonic() > deadline:
            raise EngineError(
                f"{launch.folder}: processes of a launch that is over do not end, even when killed:"
                f" {', '.join(map(str, sorted(living.ticks or left_ticks)))}. Look what they wait for"
                " (/proc/PID/stack), or restart the host."
            )


def _kill_group(group: int, leader: int | None) -> None:
    """Kill the group, unless its number was reused, which requires that the group is empty."""
    if start_ticks(group) in (None, leader):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _living(launch: Marked) -> Found:
    living = launch.living()
    for _ in range(LOOKS):
        if living.ticks:
            break
        living = launch.living(NEWEST)
    return living
