"""Maps a function over items in several processes or in this one, with equal results."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Protocol, TypeVar

from connector_tax.base.errors import AnalysisError

T = TypeVar("T")
R = TypeVar("R")

# More would wait for one disk, and each holds a cell's records.
MOST = 4


class Each(Protocol):
    """Like ``map``: results in the order of the items."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def cores() -> int:
    return min(MOST, len(os.sched_getaffinity(0)))


@contextmanager
def each_in(processes: int) -> Iterator[Each]:
    """Yield ``map`` for one process, else the ``map`` of a pool.

    Functions and items must be picklable; a function that raises ends the pool.

    Raises:
        AnalysisError: a process was killed.
    """
    if processes < 2:
        yield map
        return
    # Spawn, not fork: a fork may copy a lock that one of Arrow's threads holds, which is never released.
    pool = ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=begin_in_pool
    )
    try:
        yield pool.map
    except BrokenProcessPool as error:
        raise AnalysisError(
            f"one of {processes} processes was killed (out of memory?). Make room, or start again with one"
            " process."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def begin_in_pool() -> None:
    """Set up a pool's process to end with its parent, even if the parent is killed.

    It would wait for work forever and hold inherited pipes open, such as a log's, whose reader waits for the
    end. Ctrl-C reaches all processes of a terminal; the parent ends the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
