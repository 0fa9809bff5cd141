"""Campaigns of a sweep, one after another: each is a process of its own, and one that fails stops no other.

Snakemake keeps Ctrl-C and SIGTERM to itself, or ends when its jobs have: so a campaign's processes are a group, and whoever ends the sweep
ends the group. Killed outright, the sweep takes Snakemake with it; its jobs then end in order, as they do whenever Snakemake is gone.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from connector_tax.base.prctl import killed_with_parent

# A job ends its engine, whose grace a campaign sets, and asks the driver for the memory. It is all waited for, so that the next campaign
# finds a card that is free; whatever takes longer is somebody's to look at.
MOST_ENDING_S = 300.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Interrupt:
    """What asked the sweep to end.

    Attributes:
        signum: None as long as nobody did.
        group: of the campaign at work; None between campaigns.
    """

    signum: int | None = None
    group: int | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        # A second one must not interrupt the clean-up that the first one started.
        if self.signum is None:
            self.signum = signum
            self.pass_on()

    def pass_on(self) -> None:
        if self.signum is not None and self.group is not None and _lives(self.group):
            os.killpg(self.group, self.signum)


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Take SIGINT, SIGTERM and SIGHUP; one that is ignored, as under ``nohup``, stays so."""
    interrupt = Interrupt()
    before = {s: signal.getsignal(s) for s in ENDING}
    taken = [s for s, handler in before.items() if handler != signal.SIG_IGN]
    for signum in taken:
        signal.signal(signum, interrupt)
    try:
        yield interrupt
    finally:
        for signum in taken:
            signal.signal(signum, before[signum])


def run_campaign(
    command: Sequence[str], folder: Path, interrupt: Interrupt, say: Callable[[str], None]
) -> int:
    """Run ``command`` in ``folder`` to its end, whatever it started included; its exit code.

    Args:
        interrupt: is passed on to all of it.
        say: is told of processes that do not end.
    """
    # A group, and no session: a scheduler that divides cores by session would set engine and client apart.
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=killed_with_parent
    ) as process:
        interrupt.group = process.pid
        interrupt.pass_on()  # one that came while it was started
        code = process.wait()
    if left := _wait_until_gone(process.pid):
        say(
            f"still at work {MOST_ENDING_S:g} s after their Snakemake ended, and not waited for any longer: {', '.join(left)}. "
            "They may hold a card or a port."
        )
    interrupt.group = None
    return code


def _wait_until_gone(group: int) -> list[str]:
    """Processes that are still there after the longest time."""
    deadline = time.monotonic() + MOST_ENDING_S
    while (alive := _lives(group)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if not alive:
        return []
    return [f"process {pid}" for pid in psutil.pids() if _group_of(pid) == group and _at_work(pid)]


def _lives(group: int) -> bool:
    """Whether a process of the group is at work. One that ended and that nobody asks after is not: some containers' first process never does."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return any(_at_work(pid) for pid in psutil.pids() if _group_of(pid) == group)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _at_work(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@dataclass(slots=True)
class Outcome:
    """
    Attributes:
        codes: campaign -> exit code, of those that came to an end.
        interrupted: the signal that ended the sweep; None where it went through.
        at: the campaign that was at work then; None between two.
    """

    codes: dict[str, int] = field(default_factory=dict)
    interrupted: int | None = None
    at: str | None = None

    @property
    def failed(self) -> dict[str, int]:
        return {name: code for name, code in self.codes.items() if code}


def run_all(
    commands: Mapping[str, Sequence[str]],
    folder: Path,
    say: Callable[[str], None],
    ended: Callable[[str, int], None],
) -> Outcome:
    """Every campaign once, in the order of ``commands``.

    Args:
        commands: campaign -> what measures it or goes on with it, to be run in ``folder``.
        ended: is told of each campaign that came to an end, and its exit code.
    """
    outcome = Outcome()
    with interruptible() as interrupt:
        for k, (name, command) in enumerate(commands.items(), start=1):
            if interrupt.signum is not None:
                break
            say(f"campaign {k} of {len(commands)}: {name}")
            code = run_campaign(command, folder, interrupt, say)
            if interrupt.signum is not None:
                outcome.at = name
                break
            outcome.codes[name] = code
            ended(name, code)
            if code:
                say(f"campaign {name} failed: {code_text(code)}")
        outcome.interrupted = interrupt.signum
    return outcome


def code_text(code: int) -> str:
    """``exit code 1``; ``ended by SIGKILL``."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
