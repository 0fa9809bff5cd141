"""Finds why the jobs of one start ended, in their logs.

A measuring job continues the log of earlier starts, whose messages do not count.
"""

import re
import shlex
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.base.errors import ConnectorTaxError
from connector_tax.base.files import lines_of, open_regular, printable

# Set by `connector-tax run` for the Snakefile: the command that resumes, and that Snakemake is to be quiet.
COMMAND_VARIABLE, QUIET_VARIABLE = "CONNECTOR_TAX_COMMAND", "CONNECTOR_TAX_QUIET"

# Beginnings of log lines that say why a job ended.
INTERRUPTED = "interrupted; "
KILLED = "killed by "
LAST_WORDS = ("error: ", "not begun: ", INTERRUPTED)
# Lines that do not continue such a message: progress, as of a job that began again, or Python's warnings at
# exit.
_NO_PART = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |.*:\d+: \w*Warning: ")
# The log's last bytes tell whether it was continued or written anew.
_END_BYTES = 4096
# The last message stands at the end, however long the log is.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a log when a start began.

    Attributes:
        changed_ns: by its file system's clock, which need not be this host's.
        end: its last bytes; None if unreadable.
    """

    changed_ns: int
    size: int
    end: bytes | None


def marks_of(folder: Path) -> dict[Path, Mark]:
    return {log: mark for log in folder.glob("*.log") if (mark := _mark(log)) is not None}


def job_failures(folder: Path, marks_before: Mapping[Path, Mark]) -> dict[Path, list[str]]:
    """Return per log in ``folder`` why its job ended: the message with the log's name, and its further lines.

    Args:
        marks_before: marks of the logs when the start began.
    """
    messages_by_log: dict[Path, list[str]] = {}
    for log in sorted(folder.glob("*.log")):
        mark = _mark(log)
        if mark is None or mark == marks_before.get(log):
            continue
        try:
            lines = lines_of(_since(log, mark.size, marks_before.get(log)))
        except (OSError, ConnectorTaxError) as error:
            lines = [f"error: it cannot be read ({error})"]
        messages: list[str] = []
        goes_on = False
        for line in lines:
            if line.startswith(LAST_WORDS):
                messages.append(f"{printable(line)} ({log})")
                goes_on = True
            elif _NO_PART.match(line):
                goes_on = False
            elif goes_on:
                messages.append(f"  {printable(line)}")
        if messages:
            messages_by_log[log] = messages
    return messages_by_log


def silent_jobs(
    failed: Iterable[Any], said: Collection[Path], marks_before: Mapping[Path, Mark], snakemake_output: str
) -> dict[Path, list[str]]:
    """Return how jobs ended whose logs do not say it, as after a kill; a group counts as one job.

    Args:
        failed: Snakemake's jobs and groups; a failed group's other members never began.
        said: logs that say why their job ended.
        marks_before: as above.
        snakemake_output: text, which names command and exit code of jobs that it ran itself.
    """
    ending_by_log: dict[Path, list[str]] = {}
    for job in failed:
        members = list(getattr(job, "jobs", (job,)))
        logs = sorted(Path(log) for member in members for log in member.log)
        if (
            not logs
            or any(log in said for log in logs)
            or any(_finished(m, snakemake_output) for m in members)
        ):
            continue
        marks = {
            log: mark for log in logs if (mark := _mark(log)) is not None and mark != marks_before.get(log)
        }
        log = max(marks, key=lambda one: marks[one].changed_ns, default=logs[0])
        ending_by_log[log] = [f"{_ending(log, snakemake_output, begun=bool(marks))} ({log})"]
    return dict(sorted(ending_by_log.items()))


def _finished(job: Any, snakemake_output: str) -> bool:
    """Return whether the job succeeded, but Snakemake reports a missing file."""
    return (
        re.search(rf"^Job {job.jobid} .*completed successfully, but", snakemake_output, re.MULTILINE)
        is not None
    )


def _ending(log: Path, snakemake_output: str, *, begun: bool) -> str:
    command = re.escape(shlex.quote(str(log)))
    match = re.search(
        rf"{command}' (?:died with <Signals\.(\w+)|returned non-zero exit status (\d+))", snakemake_output
    )
    if match is None:
        return (
            "ended without a word, as what is killed does" if begun else "ended before it wrote into its log"
        )
    signal_name = match[1] or _signal_of(int(match[2]))
    return f"{KILLED}{signal_name}" if signal_name else f"ended with exit code {match[2]}"


def _signal_of(code: int) -> str:
    """Return the signal behind a shell's exit code; empty for other codes."""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return ""


def _mark(log: Path) -> Mark | None:
    """Return a log's mark; None if it does not exist, as behind a dangling link."""
    try:
        status = log.stat()
    except OSError:
        return None
    try:
        tail = _bytes(log, max(0, status.st_size - _END_BYTES), status.st_size)
    except (OSError, ConnectorTaxError):
        tail = None
    return Mark(status.st_mtime_ns, status.st_size, tail)


def _since(log: Path, size: int, mark_before: Mark | None) -> bytes:
    """Return what was written since ``mark_before``, or a whole new log; at most the last ``_MOST_BYTES``."""
    start = 0
    if mark_before is not None and mark_before.end is not None and mark_before.size < size:
        continued = _bytes(log, mark_before.size - len(mark_before.end), mark_before.size) == mark_before.end
        start = mark_before.size if continued else 0
    return _bytes(log, max(start, size - _MOST_BYTES), size)


def _bytes(log: Path, begin: int, end: int) -> bytes:
    with open_regular(log) as handle:
        handle.seek(begin)
        return handle.read(end - begin)
