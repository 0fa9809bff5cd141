"""One function over many items, in several processes or in this one; what comes out is the same."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
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
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=_ignore_interrupts
    )
    try:
        yield pool.map
    except BrokenProcessPool as error:
        raise AnalysisError(
            f"one of {processes} processes was killed (out of memory?). Make room, or start again with one process."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
