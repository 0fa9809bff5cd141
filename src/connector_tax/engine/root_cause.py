"""The line of an engine's log that says why it died.

vLLM dies in layers: a worker raises, the engine core wraps it, the API server wraps that and ends with
"Engine core initialization failed. See root cause above". The last line is thus the least telling;
the first exception of the first traceback that is not such a wrapper is the cause.
"""

import re
import signal

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
)
_PREFIX = re.compile(r"^(\([^)]*pid=\d+\)\s*)?((INFO|WARNING|ERROR|DEBUG|CRITICAL)\s[^\]]*\]\s?)?")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout)\b(:.*)?$"
)
_ERROR_WORD = re.compile(r"\b(error|fatal|killed|cannot|failed)\b", re.IGNORECASE)


def root_cause(log_text: str, exit_code: int | None = None) -> str:
    """One line, without vLLM's log prefix; never empty.

    Without an exception in the log: the signal that ended the process if one did, else the last line that
    speaks of an error, else the last line at all.
    """
    lines = [_PREFIX.sub("", line).strip() for line in log_text.splitlines()]
    lines = [line for line in lines if line]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    causes = [line for line in exceptions if not any(w in line for w in WRAPPERS)]
    # SystemExit and KeyboardInterrupt end a process that was told to end; they cause nothing.
    told = [line for line in causes if not line.startswith(("SystemExit", "KeyboardInterrupt"))]
    for candidates in (told, causes, exceptions):
        if candidates:
            return candidates[0]
    name = _signal_name(exit_code)
    if name is not None:
        return f"killed by {name}; the log gives no reason"
    errors = [line for line in lines if _ERROR_WORD.search(line)]
    if errors:
        return errors[-1]
    return lines[-1] if lines else "the engine left no output"


def _signal_name(exit_code: int | None) -> str | None:
    """The signal behind a shell's 128 + n or Python's -n; None for an ordinary end."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else None
