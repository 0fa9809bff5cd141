"""Lock files: who holds one, and one message where a file system has none to give.

``flock`` locks drop with their holder, however that ended. A file that cannot be opened (read-only, another user's), or that
cannot be locked (NFS without its lock service says ENOLCK), is no lock that somebody else holds.
"""

import fcntl
from pathlib import Path
from typing import TextIO

from connector_tax.base.errors import EngineError


def open_lock(path: Path, what: str) -> TextIO:
    """The lock file at ``path``, made where it is missing; not locked yet.

    Args:
        what: it stands for, in messages.

    Raises:
        EngineError: it cannot be opened for writing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A path in the holder's words may hold bytes that are no text.
        return open(path, "a+", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise _no_lock(path, what, error) from error


def take_lock(lock: TextIO, what: str) -> bool:
    """Lock it for this process; False where somebody else holds it.

    Raises:
        EngineError: its file system does not lock files.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _no_lock(Path(lock.name), what, error) from error
    return True


def holder_of(lock: TextIO) -> str:
    """What its holder wrote into it."""
    lock.seek(0)
    return lock.read().strip() or "unknown"


def name_holder(lock: TextIO, what: str, holder: str) -> None:
    """Write into a lock that is held by whom.

    Raises:
        EngineError: the disk is full.
    """
    try:
        lock.truncate(0)
        lock.write(holder)
        lock.flush()
    except OSError as error:
        raise _no_lock(Path(lock.name), what, error) from error


def _no_lock(path: Path, what: str, error: OSError) -> EngineError:
    return EngineError(
        f"{path}: the lock of {what} cannot be taken ({error.strerror or error}). Nothing is measured without it. results/, "
        "TMPDIR and CONNECTOR_TAX_CACHE (without it ~/.cache/connector-tax) must lie where files can be written and locked: a "
        "local disk, or NFS with its lock service."
    )
