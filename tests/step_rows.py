"""Reads a step file as dictionaries, as a reference for the project's own reader, which decodes to arrays."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class StepFile:
    """The rows of one file, in file order.

    Attributes:
        headers: one per engine process.
        torn: the last line is cut off, as after ``kill -9``.
    """

    headers: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    worker_steps: list[dict[str, Any]]
    torn: bool


def read_step_file(path: Path) -> StepFile:
    """Parse ``path``; raises on an invalid line before the last."""
    by_kind: dict[str, list[dict[str, Any]]] = {"header": [], "step": [], "worker_step": []}
    torn = False
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            by_kind[row["kind"]].append(row)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                torn = True
                break
            raise ValueError(f"{path}:{number}: not a step record ({line[:60]!r}).") from error
    return StepFile(by_kind["header"], by_kind["step"], by_kind["worker_step"], torn)
