"""Observes the jobs of a running campaign from outside: parallel jobs must share nothing."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# Descriptors that may write, by their flags in /proc/PID/fdinfo: O_WRONLY or O_RDWR.
WRITES = 0o3
# Files that all jobs of a campaign share on purpose: each appends single lines, or only locks it.
SHARED = ("logs/progress.log", ".lock")


@dataclass
class Held:
    """Resources of one job with all that it started: listening ports, bound Unix sockets, writable files."""

    ports: set[int] = field(default_factory=set)
    sockets: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


@dataclass
class Watch:
    """Observations.

    Attributes:
        most: most parallel jobs.
        looks: looks that found several jobs.
        shared: resources held by two jobs at once.
    """

    most: int = 0
    looks: int = 0
    shared: set[str] = field(default_factory=set)
    held: dict[int, Held] = field(default_factory=dict)

    def look(self, root: Path) -> None:
        now = {job.pid: held_by(job, root) for job in jobs(root)}
        self.most = max(self.most, len(now))
        self.looks += len(now) > 1
        for pid, own in now.items():
            seen = self.held.setdefault(pid, Held())
            seen.ports |= own.ports
            for other, theirs in now.items():
                if other < pid:
                    both = (own.ports & theirs.ports, own.sockets & theirs.sockets, own.files & theirs.files)
                    self.shared |= {str(x) for part in both for x in part}


def jobs(root: Path) -> list[psutil.Process]:
    """Return measuring processes of the checkout at ``root`` that still live after all were listed.

    A child between fork and exec has its parent's command line and files, and is not a job.
    """
    found: dict[int, tuple[psutil.Process, int]] = {}
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if any(w.endswith("scripts/measure.py") for w in words) and process.cwd() == str(root):
                found[process.pid] = (process, process.ppid())
        except psutil.Error:
            continue
    return [job for job, parent in found.values() if parent not in found and job.is_running()]


def held_by(job: psutil.Process, root: Path) -> Held:
    found = Held()
    try:
        family = [job, *job.children(recursive=True)]
    except psutil.Error:
        return found
    for process in family:
        try:
            for connection in process.net_connections("all"):
                if connection.status == psutil.CONN_LISTEN:
                    found.ports.add(connection.laddr.port)
                elif isinstance(connection.laddr, str) and connection.laddr:
                    found.sockets.add(connection.laddr)
            found.files |= written_by(process.pid, root)
        except (psutil.Error, OSError):
            continue
    return found


def written_by(pid: int, root: Path) -> set[str]:
    """Return regular files below ``root`` or in /tmp that the process may write."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            flags = int(Path(f"/proc/{pid}/fdinfo/{name}").read_text().split("flags:")[1].split()[0], 8)
        except OSError:
            continue
        own = target.startswith((str(root), "/tmp/")) and Path(target).is_file()
        if own and flags & WRITES and not target.endswith(SHARED) and Path(target).name != "snakemake.log":
            found.add(target)
    return found


@contextmanager
def watching(root: Path, every_s: float = 0.3) -> Iterator[Watch]:
    """Look repeatedly while the body runs."""
    watch, over = Watch(), threading.Event()

    def work() -> None:
        while not over.wait(every_s):
            watch.look(root)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Measured:
    """One finished cell, by its own record."""

    run: str
    slot: int
    port: int
    begun_ns: int
    ended_ns: int


def cells_of(results: Path) -> list[Measured]:
    """Return where and when each cell of a campaign on several GPUs was measured."""
    found = []
    for file in sorted(results.glob("*/phase_*/cells/[!.]*/cell.json")):
        cell = json.loads(file.read_text())
        run = file.parents[2]
        script = (run / "launch.sh").read_text()
        port = int(script.split("PORT=${PORT:-")[1].split("}")[0])
        begun, ended = cell["window"]["t0_ns"], cell["window"]["drained_ns"]
        found.append(Measured(str(run.relative_to(results)), cell["engine"]["slot"], port, begun, ended))
    return found


def collisions(cells: list[Measured]) -> list[str]:
    """Return pairs of cells of two runs that overlapped in time and shared a slot or a port."""
    found = []
    for k, one in enumerate(cells):
        for other in cells[k + 1 :]:
            beside = one.begun_ns < other.ended_ns and other.begun_ns < one.ended_ns
            if one.run != other.run and beside and (one.slot == other.slot or one.port == other.port):
                found.append(f"{one} and {other}")
    return found


def overlapping(cells: list[Measured]) -> int:
    """Count pairs of cells of two runs that overlapped in time."""
    pairs = [(a, b) for k, a in enumerate(cells) for b in cells[k + 1 :] if a.run != b.run]
    return sum(a.begun_ns < b.ended_ns and b.begun_ns < a.ended_ns for a, b in pairs)


def wait_for(what: str, found: Callable[[], object], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not found():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)
