"""Lock files: who holds one, and one message where a file system has none to give.

``flock`` locks drop with their holder, however that ended. A file that cannot be opened (read-only, another
user's), or that cannot be locked (NFS without its lock service says ENOLCK), is no lock that somebody else
holds.
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
    """Where engines and locks live, outside any checkout: several checkouts share a GPU.

    A user without a home (HOME unset, no entry in passwd, as in a container with a number for a user) has it
    under TMPDIR.
    """
    given = os.environ.get("CONNECTOR_TAX_CACHE")
    if given:
        return Path(given)
    try:
        return Path.home() / ".cache" / "connector-tax"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"connector-tax-cache-{os.getuid()}"


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


def take_lock(lock: TextIO, what: str, *, shared: bool = False) -> bool:
    """Lock it for this process; False where somebody else holds it.

    Args:
        shared: others may hold it meanwhile who share it, too.

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
    """What its holder wrote into it, or several who share it at the same instant."""
    lock.seek(0)
    return " and process ".join(lock.read().splitlines()) or "unknown"


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


@contextmanager
def started_once(path: Path, name: str, what: str = "campaign") -> Iterator[None]:
    """Hold the lock of one start of a campaign or a sweep: two would remove each other's receipts.

    Raises:
        EngineError: another start holds it, or there is none to be had.
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
