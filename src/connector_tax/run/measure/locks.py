"""One measurement at a time per GPU and per campaign folder.

Snakemake's own lock is off (it would have to be removed by hand after ``kill -9``); these are
``flock`` locks, which the kernel drops with their holder, however that ended.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from connector_tax.base.errors import EngineError
from connector_tax.base.locks import holder_of, name_holder, open_lock, take_lock
from connector_tax.run.engine.gpus import Cards

# After kill -9 of Snakemake its job needs a moment to notice and to stop its engine.
WAIT_S = 30.0


def cache_folder() -> Path:
    """Where engines and locks live, outside any checkout: several checkouts share a GPU.

    A user without a home (HOME unset, no entry in passwd, as in a container with a number for a user) has it under TMPDIR.
    """
    given = os.environ.get("CONNECTOR_TAX_CACHE")
    if given:
        return Path(given)
    try:
        return Path.home() / ".cache" / "connector-tax"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"connector-tax-cache-{os.getuid()}"


@contextmanager
def measuring_alone(root: Path, campaign: str, cards: Cards, port: int = 0) -> Iterator[None]:
    """Nobody else measures in the campaign's folder, on its cards or at its port while the body runs.

    Args:
        port: ``run.engine.port``. An engine that is still starting has bound it and does not listen yet, which nobody can see.

    Raises:
        EngineError: someone else did for ``WAIT_S``; names the process and its campaign.
    """
    with ExitStack() as stack:
        stack.enter_context(alone_in(root, campaign))
        ports = [(f"port{port}", f"engine.port {port}")] if port else []
        for name, what in (*ports, *_card_locks(cards)):
            path = cache_folder() / "locks" / f"{name}.lock"
            stack.enter_context(held(path, what, _holder(root, campaign)))
        yield


def _card_locks(cards: Cards) -> list[tuple[str, str]]:
    """(file name, what it stands for) of each lock, in an order that two campaigns share, lest they wait for each other."""
    if not cards.gpus:
        return [(f"gpu{cards.slot}", f"engine.gpu {cards.slot}")]
    return sorted((gpu.uuid.replace("/", "_"), str(gpu)) for gpu in cards.gpus)


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
def held(path: Path, what: str, holder: str, *, wait_s: float | None = None) -> Iterator[None]:
    """Hold the lock at ``path`` for the body.

    Args:
        holder: what somebody else is told who wants it meanwhile.
        wait_s: None: ``WAIT_S``.

    Raises:
        EngineError: someone else held it for ``wait_s``; names the holder. Or it cannot be had at all.
    """
    with open_lock(path, what) as handle:
        deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
        while not take_lock(handle, what):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{what} is in use by process {holder_of(handle)} (lock {path}). Two measurements at once would "
                    "measure each other; wait for it to end, or end that process, then start again."
                )
            time.sleep(0.2)
        name_holder(handle, what, holder)
        yield
