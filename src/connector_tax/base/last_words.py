"""What the jobs of one start said last, of their logs. A measuring job goes on with the log of earlier
starts, whose words are not this one's."""

import re
import shlex
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.base.errors import ConnectorTaxError
from connector_tax.base.files import lines_of, open_regular, printable

# What `connector-tax run` tells the Snakefile: the command that goes on, and that Snakemake is not to be
# heard.
COMMAND_VARIABLE, QUIET_VARIABLE = "CONNECTOR_TAX_COMMAND", "CONNECTOR_TAX_QUIET"

# How a line of a job's log begins that says why the job ended.
INTERRUPTED = "interrupted; "
KILLED = "killed by "
LAST_WORDS = ("error: ", "not begun: ", INTERRUPTED)
# Behind such a line no part of it: a line of progress, as of a job that began again, or what Python warns of
# at its end.
_NO_PART = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |.*:\d+: \w*Warning: ")
# Of a log: by its last bytes one that was continued is told from one that was written anew.
_END_BYTES = 4096
# What a job said last stands at the end, however long its log became.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """A log as it was when a start began.

    Attributes:
        changed_ns: by the clock of its file system, which need not be this host's.
        end: its last bytes; None where it could not be read.
    """

    changed_ns: int
    size: int
    end: bytes | None


def marks_of(folder: Path) -> dict[Path, Mark]:
    """Of every log in ``folder``."""
    return {log: mark for log in folder.glob("*.log") if (mark := _mark(log)) is not None}


def last_words(folder: Path, before: Mapping[Path, Mark]) -> dict[Path, list[str]]:
    """Why jobs ended, of each log in ``folder`` that says it: that line with the log's name, and those that
    it goes on into.

    Args:
        before: marks of the logs when the start began.
    """
    found: dict[Path, list[str]] = {}
    for log in sorted(folder.glob("*.log")):
        now = _mark(log)
        if now is None or now == before.get(log):
            continue
        try:
            lines = lines_of(_since(log, now.size, before.get(log)))
        except (OSError, ConnectorTaxError) as error:
            lines = [f"error: it cannot be read ({error})"]
        said: list[str] = []
        goes_on = False
        for line in lines:
            if line.startswith(LAST_WORDS):
                said.append(f"{printable(line)} ({log})")
                goes_on = True
            elif _NO_PART.match(line):
                goes_on = False
            elif goes_on:
                said.append(f"  {printable(line)}")
        if said:
            found[log] = said
    return found


def without_a_word(
    failed: Iterable[Any], said: Collection[Path], before: Mapping[Path, Mark], told: str
) -> dict[Path, list[str]]:
    """How those jobs ended that say nothing of it in their logs, as one that is killed. Of a group that is
    one job: its others never began.

    Args:
        failed: Snakemake's jobs, also groups of them.
        said: logs that say it.
        before: as above.
        told: what Snakemake wrote, which names the command and its exit code where it ran the job itself.
    """
    found: dict[Path, list[str]] = {}
    for job in failed:
        members = list(getattr(job, "jobs", (job,)))
        logs = sorted(Path(log) for member in members for log in member.log)
        if not logs or any(log in said for log in logs) or any(_finished(m, told) for m in members):
            continue
        marks = {log: mark for log in logs if (mark := _mark(log)) is not None and mark != before.get(log)}
        log = max(marks, key=lambda one: marks[one].changed_ns, default=logs[0])
        found[log] = [f"{_ending(log, told, begun=bool(marks))} ({log})"]
    return dict(sorted(found.items()))


def _finished(job: Any, told: str) -> bool:
    """Whether it did not fail by itself: Snakemake misses a file of it, and says which."""
    return re.search(rf"^Job {job.jobid} .*completed successfully, but", told, re.MULTILINE) is not None


def _ending(log: Path, told: str, *, begun: bool) -> str:
    command = re.escape(shlex.quote(str(log)))
    ended = re.search(rf"{command}' (?:died with <Signals\.(\w+)|returned non-zero exit status (\d+))", told)
    if ended is None:
        return (
            "ended without a word, as what is killed does" if begun else "ended before it wrote into its log"
        )
    name = ended[1] or _signal_of(int(ended[2]))
    return f"{KILLED}{name}" if name else f"ended with exit code {ended[2]}"


def _signal_of(code: int) -> str:
    """By the exit code that a shell gives what a signal ended; nothing of every other."""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return ""


def _mark(log: Path) -> Mark | None:
    """None where there is nothing, as behind a link that leads nowhere."""
    try:
        found = log.stat()
    except OSError:
        return None
    try:
        end = _bytes(log, max(0, found.st_size - _END_BYTES), found.st_size)
    except (OSError, ConnectorTaxError):
        end = None
    return Mark(found.st_mtime_ns, found.st_size, end)


def _since(log: Path, size: int, before: Mark | None) -> bytes:
    """What was written into it since ``before``, or all of it where it was written anew; of that the last
    ``_MOST_BYTES``."""
    begin = 0
    if before is not None and before.end is not None and before.size < size:
        continued = _bytes(log, before.size - len(before.end), before.size) == before.end
        begin = before.size if continued else 0
    return _bytes(log, max(begin, size - _MOST_BYTES), size)


def _bytes(log: Path, begin: int, end: int) -> bytes:
    with open_regular(log) as handle:
        handle.seek(begin)
        return handle.read(end - begin)
