"""Lock files: who holds one, and one message where the file system offers none.

``flock`` locks end with their holder, however it ended. A file that cannot be opened (read-only, another
user's) or locked (NFS without its lock service says ENOLCK) is an error, not a lock held by another.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from connector_tax.base.errors import IN_THE_WAY, EngineError
from connector_tax.base.files import in_the_way


def cache_folder() -> Path:
    """Return the folder of engines and locks, outside any checkout, since checkouts share a GPU.

    A user without a home (HOME unset and no passwd entry, as in a container with a numeric user) has it under
    TMPDIR.
    """
    configured = os.environ.get("CONNECTOR_TAX_CACHE")
    if configured:
        return Path(configured)
    try:
        return Path.home() / ".cache" / "connector-tax"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"connector-tax-cache-{os.getuid()}"


def open_lock(path: Path, what: str) -> TextIO:
    """Open the lock file at ``path``, creating it if missing, without locking it.

    Args:
        what: what it protects, for messages.

    Raises:
        EngineError: it cannot be opened for writing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The holder's text may contain a path that is not UTF-8.
        return open(path, "a+", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise _no_lock(path, what, error) from error


def take_lock(lock: TextIO, what: str, *, shared: bool = False) -> bool:
    """Lock the file for this process; return False if another process holds it.

    Args:
        shared: allow other shared holders.

    Raises:
        EngineError: its file system does not lock files.
    """
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _no_lock(Path(lock.name), what, error) from error
    return True


def holder_of(lock: TextIO) -> str:
    """Return what the holder wrote into the lock; several if they share it and wrote at the same instant."""
    lock.seek(0)
    return " and process ".join(lock.read().splitlines()) or "unknown"


def name_holder(lock: TextIO, what: str, holder: str) -> None:
    """Write ``holder`` into a lock that is held.

    Raises:
        EngineError: the disk is full.
    """
    try:
        lock.truncate(0)
        lock.write(holder)
        lock.flush()
    except OSError as error:
        raise _no_lock(Path(lock.name), what, error) from error


@contextmanager
def started_once(path: Path, name: str, what: str = "campaign") -> Iterator[None]:
    """Hold the lock of a campaign's or sweep's only start: two starts would remove each other's receipts.

    Raises:
        EngineError: another start holds it, or files cannot be locked.
    """
    what = f"{what} {name}"
    with open_lock(path, what) as lock:
        if not take_lock(lock, what):
            raise EngineError(
                f"{what} was started already and is going on (process {holder_of(lock)}). "
                "Wait for it, or end it; its status says how far it is."
            )
        name_holder(lock, what, str(os.getpid()))
        yield


def _no_lock(path: Path, what: str, error: OSError) -> EngineError:
    if error.errno in IN_THE_WAY:
        return EngineError(
            f"{path}: the lock of {what} cannot be taken ({error.strerror}): {in_the_way(path)}. Move it"
            " away, then start again."
        )
    return EngineError(
        f"{path}: the lock of {what} cannot be taken ({error.strerror or error}). Nothing is measured without"
        " it. results/, TMPDIR and CONNECTOR_TAX_CACHE (without it ~/.cache/connector-tax) must lie where"
        " files can be written and locked: a local disk, or NFS with its lock service."
    )
