"""Which code made a measurement.

The load generator's version is recorded in each cell. It is not part of the hash that decides
whether a cell is measured again: an edit there warns, it does not throw GPU hours away.
"""

import hashlib
from functools import cache
from pathlib import Path

from connector_tax import __version__

PACKAGE = Path(__file__).resolve().parents[1]
LOAD_ROOMS = ("loadgen", "traffic", "workload")


@cache
def loadgen_sha256() -> str:
    """SHA-256 over names and contents of the rooms that make and time the load."""
    digest = hashlib.sha256()
    for room in LOAD_ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def code_version() -> dict[str, str]:
    return {"connector_tax": __version__, "loadgen_sha256": loadgen_sha256()}
