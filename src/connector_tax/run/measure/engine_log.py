"""What an engine that lives has written into its logs since a moment: the reason behind its HTTP 500s."""

import os
import re
from pathlib import Path

from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.secrets import masked
from connector_tax.run.engine.process import LOG_TAIL_BYTES, RunningEngine
from connector_tax.run.engine.root_cause import root_cause

# An access line names the answer's status and no reason.
_ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+" \d{3}')
_ERROR = re.compile(r"(error|exception|fatal)\b", re.IGNORECASE)


def log_sizes(engine: RunningEngine) -> dict[Path, int]:
    """How long each log is now, in bytes."""
    return {path: os.path.getsize(path) for path in _logs(engine)}


def error_since(engine: RunningEngine, sizes: dict[Path, int]) -> str | None:
    """The root cause among the lines that came after ``sizes``; None where none of them speaks of an error."""
    new = "\n".join(line for path in _logs(engine) for line in _new_lines(path, sizes.get(path, 0)))
    telling = [line for line in masked(new).splitlines() if not _ACCESS.search(line)]
    if not any(_ERROR.search(line) for line in telling):
        return None
    return root_cause("\n".join(telling))


def _logs(engine: RunningEngine) -> list[Path]:
    named = [engine.request.folder / n for n in LOGS]
    return [path for path in named if path.exists()]


def _new_lines(path: Path, start: int) -> list[str]:
    with open(path, "rb") as handle:
        handle.seek(max(start, os.path.getsize(path) - LOG_TAIL_BYTES))
        return handle.read().decode(errors="replace").splitlines()
