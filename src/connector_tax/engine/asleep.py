"""An engine stopped by signal, whole, and woken again: of several that are up at once only one has the host.

A connector's thread that polls takes a core also while nobody asks. Stopped it takes none, and its connections, caches and memory stay.
Its supervisor goes on, so that it is ended all the same when whoever measures ends.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from connector_tax.engine.process import RunningEngine
from connector_tax.engine.supervisor import descendants

# A process that waits for a core stops when it gets one.
STOP_TIMEOUT_S = 2.0
POLL_S = 0.005


def put_to_sleep(engine: RunningEngine) -> None:
    """Stop every process of the engine; back when they stand still. Those that have ended are passed over."""
    pids = _signal_all(engine, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not all(map(_stands_still, pids)) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def wake(engine: RunningEngine) -> None:
    """Let every process of the engine go on."""
    _signal_all(engine, signal.SIGCONT)


@contextmanager
def awake(engine: RunningEngine) -> Iterator[None]:
    """For the body alone."""
    wake(engine)
    try:
        yield
    finally:
        put_to_sleep(engine)


def _signal_all(engine: RunningEngine, signum: int) -> list[int]:
    pids = descendants(engine.supervisor.pid)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
    return pids


def _stands_still(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
