"""Exit codes: of help, and of plain mistakes, for every command; and of ends that are none of a command's own.

The command lines are the keys of ``data/exit_codes.json``; a new one is a new key. In them OUT is a folder that can be written to, EMPTY
one that holds nothing, MISSING none, FILE no campaign and no archive, CAMPAIGN one.
"""

import errno
import os
from pathlib import Path
from typing import Any

from . import adapters, kept

ENDED = "ended by "
ENDS: dict[str, BaseException] = {
    "a mistake of a person": adapters.ConfigError("x"),
    "a full disk": OSError(errno.ENOSPC, "No space left on device", "file"),
    "a file of somebody else": PermissionError(errno.EACCES, "Permission denied", "file"),
    "Ctrl-C": KeyboardInterrupt(),
    "SIGTERM": SystemExit(143),
    "a verdict": SystemExit(1),
    "more to do": SystemExit(os.EX_TEMPFAIL),
    "a bug": KeyError("x"),
    "a disk that fails": OSError(errno.EIO, "Input/output error"),
}


def build(folder: Path) -> dict[str, Any]:
    places = {name: str(folder / name.lower()) for name in ("OUT", "EMPTY", "MISSING", "FILE")}
    places["CAMPAIGN"] = str(adapters.CAMPAIGN)
    (folder / "out").mkdir()
    (folder / "empty").mkdir()
    (folder / "file").write_text("neither: [campaign\n")

    def argv(line: str) -> list[str]:
        words = (word.partition("/") for word in line.split())
        return ["".join((places.get(first, first), *rest)) for first, *rest in words]

    lines = [line for line in kept("exit_codes") if not line.startswith(ENDED)]
    found = {line: adapters.exit_of(argv(line)) for line in lines}
    return {**found, **{ENDED + name: adapters.door_exit(raised) for name, raised in ENDS.items()}}
