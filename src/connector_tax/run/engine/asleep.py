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

from connector_tax.run.engine.process import LaunchError, RunningEngine
from connector_tax.run.engine.supervisor import descendants

# A process that waits for a core stops when it gets one.
STOP_TIMEOUT_S = 2.0
POLL_S = 0.005


def put_to_sleep(engine: RunningEngine) -> None:
    """Stop every process of the engine; back when they stand still. Those that have ended are passed over.

    Raises:
        LaunchError: some go on, or new ones are started all the time.
    """
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while running := [pid for pid in descendants(engine.root) if not _stands_still(pid)]:
        if time.monotonic() > deadline:
            raise LaunchError(
                f"{engine.request.connector.id}: {len(running)} processes of the engine do not stop within {STOP_TIMEOUT_S:g} s of "
                "SIGSTOP, so no other engine can have the host to itself"
            )
        _signal(running, signal.SIGSTOP)
        time.sleep(POLL_S)


def wake(engine: RunningEngine) -> None:
    """Let every process of the engine go on."""
    _signal(descendants(engine.root), signal.SIGCONT)


@contextmanager
def awake(engine: RunningEngine) -> Iterator[None]:
    """For the body alone. Where that ends by an exception the engine stays awake: it is to be ended, and nothing may take the exception's place.

    Raises:
        LaunchError: it does not stop again.
    """
    wake(engine)
    yield
    put_to_sleep(engine)


def _signal(pids: list[int], signum: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


def _stands_still(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
