"""One function over many items, in several processes or in this one; what comes out is the same."""

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

# More would be busy reading one disk, and each holds a cell's records.
MOST = 4


class Each(Protocol):
    """Results in the order of the items, like ``map``."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def cores() -> int:
    """How many this process may use, at most ``MOST``."""
    return min(MOST, len(os.sched_getaffinity(0)))


@contextmanager
def each_in(processes: int) -> Iterator[Each]:
    """``map`` itself for one process, else a pool of so many.

    Functions and items must be picklable; a function that raises ends the whole.

    Raises:
        AnalysisError: a process was killed.
    """
    if processes < 2:
        yield map
        return
    # Spawn, not fork: a copy of a process in which Arrow's threads run may hold a lock for ever.
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
    """Of a process of a pool: it ends with the one that it works for, also where that is killed outright.

    It would wait for work for ever, and hold open whatever it inherited: a pipe into a log, and whoever waits
    for its end. Ctrl-C reaches every process of a terminal; the first one ends the others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
