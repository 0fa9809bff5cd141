"""Finds the line of an engine's log that says why it died.

vLLM dies in layers: a worker raises, the engine core wraps that, the API server wraps it again and ends with
"Engine core initialization failed. See root cause above". The cause is therefore the first exception that
ends a traceback and is no such wrapper. A process killed by a signal raises nothing; there the cause is the
line in which its parent reports the death.
"""

import re
import signal
from dataclasses import dataclass

from connector_tax.base.files import printable

# Lines of processes that only report another one's death.
WRAPPERS = (
    "Engine core initialization failed",
    "See root cause above",
    "See stack trace",
    "WorkerProc initialization failed",
    "Failed core proc",
    "EngineDeadError",
    "EngineCore encountered",
    "cancelled",
    # Raised in whatever waits when it is cancelled; the canceller logs the reason.
    "CancelledError",
)
# For one line; it becomes a skip reason in tables and terminals. vLLM's longest have about 500.
MOST_CHARACTERS = 1000
_PREFIX = re.compile(r"^(\([^)]*pid=\d+\)\s*)?((INFO|WARNING|ERROR|DEBUG|CRITICAL)\s[^\]]*\]\s?)?")
_EXCEPTION = re.compile(
    r"^(?:(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout)\b(:.*)?$|Fatal"
    r" Python error: .+)"
)
# vLLM's report of a dead child process; with the exit code since about 0.26.
_DIED = re.compile(
    r"(?P<kind>Worker|Engine core|RayWorkerProc) (?:proc )?(?P<name>\S+) died unexpectedly(?: \(exit code:"
    r" (?P<code>-?\d+)\))?"
)
_CAUSE_UNKNOWN = "vLLM's log does not say of what"
_WORKER_GONE = "WorkerProc initialization failed"
# All that a killed engine core leaves in 0.32, beside an EngineDeadError that points at a missing trace.
_CORE_GONE = "engine core exited unexpectedly"
_FAILED_CORE = re.compile(r"Failed core proc\(s\): \{'(?P<name>[^']+)': (?P<code>-?\d+)")
# vLLM's line on standard output and Uvicorn's on standard error.
_READY = re.compile(r"Starting vLLM (?:API )?server(?: \d+)? on|Application startup complete")
# Access log lines name a status but no reason.
_ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+" \d{3}')
_ERROR = re.compile(r"(error|exception|fatal)\b", re.IGNORECASE)
_ERROR_WORD = re.compile(r"\b(error|fatal|killed|cannot|failed)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Death:
    """A process that its parent found dead; ``signal`` is None if it ended otherwise or is unknown."""

    words: str
    signal: str | None


def root_cause(log_text: str, exit_code: int | None = None) -> str:
    """Return the cause in one line, without vLLM's log prefix; never empty.

    A process killed by a signal comes first, since its parents' exceptions only follow from that.
    Without an exception: the signal that ended the engine, else the last line that mentions an
    error, else the last line.
    """
    lines = _lines(log_text)
    exceptions, causes = _exceptions(lines)
    deaths = _deaths(lines)
    killed = _killed(deaths, causes)
    if killed is not None:
        return killed
    # SystemExit and KeyboardInterrupt mean that a process was told to end; they are no causes.
    real_causes = [line for line in causes if not line.startswith(("SystemExit", "KeyboardInterrupt"))]
    for candidates in (real_causes, causes, [death.words for death in deaths], exceptions):
        if candidates:
            return candidates[0]
    signal_name = _signal_name(exit_code)
    if signal_name is not None:
        return f"killed by {signal_name}; the log gives no reason"
    errors = [line for line in lines if _ERROR_WORD.search(line)]
    if errors:
        return errors[-1]
    return lines[-1] if lines else "the engine left no output"


def since_ready(stream_text: str) -> str:
    """Return a stream's text after the engine became ready; earlier errors did not prevent the start."""
    lines = stream_text.splitlines()
    ready_lines = [index for index, line in enumerate(lines) if _READY.search(line)]
    return "\n".join(lines[ready_lines[-1] + 1 :] if ready_lines else lines)


def error_in(log_text: str) -> str | None:
    """Return the root cause of error answers; None if no line beside access lines mentions an error."""
    telling = [line for line in log_text.splitlines() if not _ACCESS.search(line)]
    return root_cause("\n".join(telling)) if any(map(_ERROR.search, telling)) else None


def _lines(log_text: str) -> list[str]:
    lines = (printable(_PREFIX.sub("", line).strip(), MOST_CHARACTERS) for line in log_text.splitlines())
    return [line for line in lines if line]


def _exceptions(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return all lines that end a traceback, and those that are no wrappers."""
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    return exceptions, [line for line in exceptions if not any(wrapper in line for wrapper in WRAPPERS)]


def _deaths(lines: list[str]) -> list[_Death]:
    deaths = []
    for line in lines:
        if match := _DIED.search(line):
            role = "engine core" if match["kind"] == "Engine core" else "worker"
        elif match := _FAILED_CORE.search(line):
            role = "engine core"
        elif _WORKER_GONE in line:
            # If it raised an exception, that stands before this line and takes precedence.
            deaths.append(
                _Death(
                    f"a worker process ended while it started, without an exception: {_CAUSE_UNKNOWN}", None
                )
            )
            continue
        elif _CORE_GONE in line:
            deaths.append(_Death(f"engine core process ended unexpectedly: {_CAUSE_UNKNOWN}", None))
            continue
        else:
            continue
        code = match["code"]
        signal_name = _signal_name(int(code)) if code is not None else None
        manner = signal_name or (f"exit code {code}" if code is not None else _CAUSE_UNKNOWN)
        deaths.append(_Death(f"{role} process {match['name']} died: {manner}", signal_name))
    return deaths


def _killed(deaths: list[_Death], causes: list[str]) -> str | None:
    """Return the first death by a signal, unless vLLM sent the signal or an exception led to it."""
    for death in deaths:
        # vLLM ends the rest of a failed engine with SIGTERM; C++ code that gives up calls abort().
        if death.signal not in (None, "SIGTERM") and not (death.signal == "SIGABRT" and causes):
            return death.words
    return None


def _signal_name(exit_code: int | None) -> str | None:
    """Return the signal behind a shell's 128 + n or Python's -n; None for an ordinary exit."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    signum = -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(signum).name if signum in set(signal.Signals) else None
