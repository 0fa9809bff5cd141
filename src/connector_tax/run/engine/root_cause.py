"""The line of an engine's log that says why it died.

vLLM dies in layers: a worker raises, the engine core wraps it, the API server wraps that and ends with
"Engine core initialization failed. See root cause above". The last line is thus the least telling;
the first exception of the first traceback that is not such a wrapper is the cause. A process that a signal
killed raises nothing: there the cause is the line in which its parent finds it dead.
"""

import re
import signal
from dataclasses import dataclass

from connector_tax.base.files import printable

# What a process that only reports another one's death says.
WRAPPERS = (
    "Engine core initialization failed",
    "See root cause above",
    "See stack trace",
    "WorkerProc initialization failed",
    "Failed core proc",
    "EngineDeadError",
    "EngineCore encountered",
    "cancelled",
    # How what waits is told to wait no longer; whoever told it says why.
    "CancelledError",
)
# Of one line; it becomes the reason of a skip, in tables and on terminals. The longest of vLLM's own have
# some 500.
MOST_CHARACTERS = 1000
_PREFIX = re.compile(r"^(\([^)]*pid=\d+\)\s*)?((INFO|WARNING|ERROR|DEBUG|CRITICAL)\s[^\]]*\]\s?)?")
_EXCEPTION = re.compile(
    r"^(?:(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout)\b(:.*)?$|Fatal"
    r" Python error: .+)"
)
# What vLLM logs of a process of its own that is gone; with the exit code from about 0.26 on.
_DIED = re.compile(
    r"(?P<kind>Worker|Engine core|RayWorkerProc) (?:proc )?(?P<name>\S+) died unexpectedly(?: \(exit code:"
    r" (?P<code>-?\d+)\))?"
)
_UNTOLD = "vLLM's log does not say of what"
_WORKER_GONE = "WorkerProc initialization failed"
# A killed engine core leaves no more than this in 0.32, and an EngineDeadError that points at a trace which
# is not there.
_CORE_GONE = "engine core exited unexpectedly"
_FAILED_CORE = re.compile(r"Failed core proc\(s\): \{'(?P<name>[^']+)': (?P<code>-?\d+)")
# vLLM's word on standard output and Uvicorn's on standard error.
_READY = re.compile(r"Starting vLLM (?:API )?server(?: \d+)? on|Application startup complete")
# An access line names the answer's status and no reason.
_ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+" \d{3}')
_ERROR = re.compile(r"(error|exception|fatal)\b", re.IGNORECASE)
_ERROR_WORD = re.compile(r"\b(error|fatal|killed|cannot|failed)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Death:
    """A process of the engine that its parent found dead; ``signal`` is None where it ended otherwise or is
    not told."""

    words: str
    signal: str | None


def root_cause(log_text: str, exit_code: int | None = None) -> str:
    """One line, without vLLM's log prefix; never empty.

    A process of the engine that a signal killed comes first, since what its parents raise then only follows.
    Without an exception in the log: the signal that ended the engine if one did, else the last line that
    speaks of an error, else the last line at all.
    """
    lines = _lines(log_text)
    exceptions, causes = _exceptions(lines)
    deaths = _deaths(lines)
    killed = _killed(deaths, causes)
    if killed is not None:
        return killed
    # SystemExit and KeyboardInterrupt end a process that was told to end; they cause nothing.
    told = [line for line in causes if not line.startswith(("SystemExit", "KeyboardInterrupt"))]
    for candidates in (told, causes, [d.words for d in deaths], exceptions):
        if candidates:
            return candidates[0]
    name = _signal_name(exit_code)
    if name is not None:
        return f"killed by {name}; the log gives no reason"
    errors = [line for line in lines if _ERROR_WORD.search(line)]
    if errors:
        return errors[-1]
    return lines[-1] if lines else "the engine left no output"


def since_ready(stream_text: str) -> str:
    """Of one stream of an engine that got ready, what it said afterwards: it started in spite of everything
    before."""
    lines = stream_text.splitlines()
    ready = [k for k, line in enumerate(lines) if _READY.search(line)]
    return "\n".join(lines[ready[-1] + 1 :] if ready else lines)


def error_in(log_text: str) -> str | None:
    """Return the root cause of an engine's answers with errors; None where no line but those of its accesses
    speaks of one."""
    telling = [line for line in log_text.splitlines() if not _ACCESS.search(line)]
    return root_cause("\n".join(telling)) if any(map(_ERROR.search, telling)) else None


def _lines(log_text: str) -> list[str]:
    lines = (printable(_PREFIX.sub("", line).strip(), MOST_CHARACTERS) for line in log_text.splitlines())
    return [line for line in lines if line]


def _exceptions(lines: list[str]) -> tuple[list[str], list[str]]:
    """All lines that end a traceback, and those of them that are no wrapper."""
    found = [line for line in lines if _EXCEPTION.match(line)]
    return found, [line for line in found if not any(w in line for w in WRAPPERS)]


def _deaths(lines: list[str]) -> list[_Death]:
    found = []
    for line in lines:
        if match := _DIED.search(line):
            kind = "engine core" if match["kind"] == "Engine core" else "worker"
        elif match := _FAILED_CORE.search(line):
            kind = "engine core"
        elif _WORKER_GONE in line:
            # Its own exception, if it raised one, stands before this line and is taken first.
            found.append(
                _Death(f"a worker process ended while it started, without an exception: {_UNTOLD}", None)
            )
            continue
        elif _CORE_GONE in line:
            found.append(_Death(f"engine core process ended unexpectedly: {_UNTOLD}", None))
            continue
        else:
            continue
        code = match["code"]
        name = _signal_name(int(code)) if code is not None else None
        end = name or (f"exit code {code}" if code is not None else _UNTOLD)
        found.append(_Death(f"{kind} process {match['name']} died: {end}", name))
    return found


def _killed(deaths: list[_Death], causes: list[str]) -> str | None:
    """The first process that a signal ended, unless vLLM sent the signal itself or an exception led to it."""
    for death in deaths:
        # vLLM ends what is left of a failed engine with SIGTERM; C++ code that gives up calls abort().
        if death.signal not in (None, "SIGTERM") and not (death.signal == "SIGABRT" and causes):
            return death.words
    return None


def _signal_name(exit_code: int | None) -> str | None:
    """The signal behind a shell's 128 + n or Python's -n; None for an ordinary end."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else None
