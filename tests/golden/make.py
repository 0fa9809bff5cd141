"""``python -m tests.golden.make [SUBJECT ...]``: write the golden files anew, all or those named; says what changed.

A value changes when behaviour does. So look at what is printed: it belongs into the commit that changed it, and nowhere else.
"""

import difflib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import DATA, answers, events, exit_codes, kept, launches, schedules, workloads

SUBJECTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "answers": answers.build,
    "events": events.build,
    "exit_codes": exit_codes.build,
    "schedules": schedules.build,
    "workloads": workloads.build,
    **launches.BUILDS,
}


def found(subject: str, folder: Path) -> Any:
    """What the code does now, as a file would hold it."""
    return json.loads(json.dumps(SUBJECTS[subject](folder)))


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """A line for each entry that differs, with the old and the new value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{place} > {key}" if place else key)
    elif isinstance(old, list) and isinstance(new, list):
        texts = [[json.dumps(part) for part in whole] for whole in (old, new)]
        for tag, i, j, k, m in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
            if tag != "equal":
                yield f"{place}[{i}]: {' '.join(texts[0][i:j])} -> {' '.join(texts[1][k:m])}"
    elif old != new:
        yield f"{place}: {json.dumps(old)} -> {json.dumps(new)}"


def main() -> None:
    for subject in sys.argv[1:] or SUBJECTS:
        old = kept(subject)
        with tempfile.TemporaryDirectory() as folder:
            new = found(subject, Path(folder))
        (DATA / f"{subject}.json").write_text(
            json.dumps(new, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        lines = list(differences(old, new)) if old else ["is new"]
        print(f"{subject}: {len(lines)} changes", *lines, sep="\n  ")


if __name__ == "__main__":
    main()
