"""Reports while a campaign runs: one at a time, not too often, and by default only while no cell is measured.

The analysis is a process of its own. It is stopped (SIGSTOP) when a cell begins and goes on when the cell has ended.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import printable
from connector_tax.base.prctl import killed_with_parent
from connector_tax.read.watch.partial import ONE_THREAD, READ, Read
from connector_tax.read.watch.under_way import Progress, cell_under_way, progress_of

When = Literal["on-request", "auto", "never"]
COMMAND = (sys.executable, "-m", "connector_tax.read.watch.partial")
# A cell's warm-up takes longer: by its window the analysis has been stopped.
LOOK_S = 0.2
# How often it is looked whether a cell has ended, where reports are made without being asked for.
NEW_CELLS_S = 2.0


@dataclass(frozen=True, slots=True)
class Report:
    """
    Attributes:
        number: 1 for the first.
        read: by when that was read of which it is made.
        cells: how many those were.
        took_s: from its beginning to its end, with the time that it was stopped.
    """

    number: int
    html: bytes
    read: datetime
    cells: int
    took_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Making:
    """
    Attributes:
        doing: nothing; ``waiting`` for a cell to end, or for the time that has to pass between two reports; ``making`` it; or
            ``stopped`` while a cell is measured.
        failed: why the last one could not be made; empty where it could.
        latest: the last one that was made.
    """

    doing: Literal["nothing", "waiting", "making", "stopped"] = "nothing"
    failed: str = ""
    latest: Report | None = None


class Maker:
    """Makes reports of the campaign at ``folder``, whose ``made_in`` they are made in.

    Args:
        when: ``auto``: when a cell or a run has ended since the last one was begun, or what was decided of one has changed.
        every_s: at most one report in so many seconds.
        during_cells: also while a cell is measured.
        under_way: whether one is.
        command: makes a report; it gets the campaign's folder and the one that it is made in.
    """

    def __init__(
        self,
        folder: CampaignFolder,
        when: When,
        every_s: float,
        *,
        during_cells: bool = False,
        under_way: Callable[[CampaignFolder], bool] = cell_under_way,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.when = when
        self.every_s = every_s
        self.during_cells = during_cells
        self._folder = folder
        self._under_way = under_way
        self._command = command
        self._state = Making()
        self._asked = threading.Event()
        self._ending = threading.Event()
        self._holding = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_s = -float("inf")
        self._tried = Progress()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def state(self) -> Making:
        return self._state

    def ask(self) -> None:
        """For a report; one that is asked for twice before it is begun is made once."""
        self._asked.set()

    def close(self) -> None:
        """Ends what is being made; nothing runs any more when this returns."""
        self._ending.set()
        self._asked.set()
        self._thread.join()

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is being made stands still until this is left, or until a cell has ended that is measured then."""
        self._holding.set()
        if (process := self._process) is not None:
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            self._holding.clear()

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                if self._asked.wait(NEW_CELLS_S if self.when == "auto" else None):
                    self._make_in_time()
                elif self._begun_s + self.every_s <= time.monotonic():
                    self._ask_if_new()
            except OSError as error:
                # A disk that is full, a host without room for a process, a folder that is not ours.
                self._asked.clear()
                self._fail(f"{error.filename or 'its process'}: {error.strerror or error}")

    def _make_in_time(self) -> None:
        if self._wait_for_its_time():
            self._asked.clear()
            self._begun_s = time.monotonic()
            self._make()

    def _ask_if_new(self) -> None:
        if progress_of(self._folder) != self._tried:
            self._asked.set()

    def _wait_for_its_time(self) -> bool:
        """False: all is to end."""
        while not self._ending.is_set():
            soon = self._begun_s + self.every_s > time.monotonic()
            if not soon and not self._measuring():
                return True
            self._state = replace(self._state, doing="waiting")
            self._ending.wait(LOOK_S)
        return False

    def _measuring(self) -> bool:
        return self._holding.is_set() or (not self.during_cells and self._under_way(self._folder))

    def _make(self) -> None:
        self._tried = progress_of(self._folder)
        self._state = replace(self._state, doing="making")
        before_s = _children_cpu_s()
        log = self._folder.made / "making.log"
        with open(log, "wb") as words:
            process = subprocess.Popen(
                [*self._command, self._folder.root, self._folder.made],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=words,
                env=os.environ | ONE_THREAD,
                # A stopped group of which nobody is left in the session that could let it go on is ended by the kernel.
                process_group=0,
                # Not so where a parent of ours in this session takes orphans, as a container's shell does.
                preexec_fn=killed_with_parent,
            )
            self._process = process
            try:
                code = self._watch(process)
            finally:
                self._process = None
                _end(process)
        if code is None:
            return
        if code != 0:
            text = log.read_text(encoding="utf-8", errors="replace")
            with suppress(SystemExit):  # of ``door``: nobody reads what is said, and the page says it, too
                sys.stderr.write(text)
            said = next(
                (s for s in reversed(text.split("\n")) if s.strip()), f"its process ended with {code}"
            )
            self._fail(said.removeprefix("error: "))
            return
        try:
            read = read_document(self._folder.made / READ, Read)
        except ArtifactError as error:
            self._fail(str(error))
            return
        latest = self._state.latest
        report = Report(
            number=1 if latest is None else latest.number + 1,
            html=self._folder.report.read_bytes(),
            read=datetime.fromtimestamp(read.utc_s, UTC),
            cells=read.cells,
            took_s=time.monotonic() - self._begun_s,
            cpu_s=_children_cpu_s() - before_s,
        )
        self._state = Making(latest=report)

    def _fail(self, why: str) -> None:
        self._state = replace(self._state, doing="nothing", failed=printable(why))

    def _watch(self, process: subprocess.Popen[bytes]) -> int | None:
        """Until it has ended: its exit status; None where all is to end."""
        while not self._ending.is_set():
            with suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_S)
            stopped = self._measuring()
            # Each time, since others stop it as well: ``held`` does.
            _signal(process, signal.SIGSTOP if stopped else signal.SIGCONT)
            self._state = replace(self._state, doing="stopped" if stopped else "making")
        return None


def _signal(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    """To all of it; it may have ended, and another thread may just have seen that."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _children_cpu_s() -> float:
    """Of those that have ended. Nothing else is started here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
