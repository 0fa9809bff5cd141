"""One measurement at a time per GPU and per campaign folder.

Snakemake's own lock is off (it would have to be removed by hand after ``kill -9``); these are
``flock`` locks, which the kernel drops with their holder, however that ended.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connector_tax.errors import EngineError

# After kill -9 of Snakemake its job needs a moment to notice and to stop its engine.
WAIT_S = 30.0


def cache_folder() -> Path:
    """Where engines and locks live, outside any checkout: several checkouts share a GPU."""
    return Path(os.environ.get("CONNECTOR_TAX_CACHE") or Path.home() / ".cache" / "connector-tax")


@contextmanager
def measuring_alone(root: Path, campaign: str, gpu: int) -> Iterator[None]:
    """Nobody else measures in the campaign's folder or on the GPU while the body runs.

    Raises:
        EngineError: someone else did for ``WAIT_S``; names the process and its campaign.
    """
    gpu_lock = cache_folder() / "locks" / f"gpu{gpu}.lock"
    with alone_in(root, campaign), held(gpu_lock, f"GPU {gpu}", _holder(root, campaign)):
        yield


@contextmanager
def alone_in(root: Path, campaign: str) -> Iterator[None]:
    """Nobody else measures in the campaign's folder, wherever its engines run.

    Raises:
        EngineError: someone else did for ``WAIT_S``; names the process.
    """
    with held(root / ".lock", f"campaign {campaign}", _holder(root, campaign)):
        yield


def _holder(root: Path, campaign: str) -> str:
    return f"{os.getpid()}, which works on campaign {campaign} in {root.resolve()}"


@contextmanager
def held(path: Path, what: str, holder: str, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock at ``path`` for the body.

    Args:
        holder: what somebody else is told who wants it meanwhile.

    Raises:
        EngineError: someone else held it for ``wait_s``; names the holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as handle:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    handle.seek(0)
                    other = handle.read().strip() or "unknown"
                    raise EngineError(
                        f"{what} is in use by process {other} (lock {path}). Two measurements at once would "
                        "measure each other; wait for it to end, or end that process, then start again."
                    ) from error
                time.sleep(0.2)
        handle.truncate(0)
        handle.write(holder)
        handle.flush()
        yield
