"""How many files a worker may have open, and how many its load takes: a connection per request in flight.

Most systems begin with a soft limit of 1,024 and a hard one far above it, up to which a process may go by itself.
"""

import resource
from math import ceil
from pathlib import Path

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import Session, read_sessions
from connector_tax.run.workload.arrivals import OPEN_LOOP

# Interpreter, event loop, ZeroMQ, timers, logs and spare connections; some 40 of them are open in a worker.
OWN = 64
# The kernel's table grows with what is open and not with the limit; one without an end helps nobody.
HIGHEST = 1 << 20


def raise_limit() -> None:
    """Let this process open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = _highest(hard)
    if soft == resource.RLIM_INFINITY or soft >= highest:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))


def check_limit(spec: CellSpec) -> None:
    """Refuse a cell that would run out of files.

    Raises:
        ConfigError: with the number that is needed.
    """
    most = _highest(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    needed = files_needed(spec)
    if needed > most:
        raise ConfigError(
            f"{in_flight(spec)} requests in flight over {spec.workers or 1} load-generator worker(s) take {needed} open files in "
            f"each, and the hard limit is {most}. Raise it (ulimit -Hn), take more workers, or allow fewer in flight."
        )


def files_needed(spec: CellSpec) -> int:
    """By the worker that has the most."""
    return ceil(in_flight(spec) / (spec.workers or 1)) + OWN


def in_flight(spec: CellSpec) -> int:
    """The most requests that can be on their way at once; of conversations, those of the widest one each."""
    if spec.arrival == "offline":
        return spec.num_requests or 0
    if spec.arrival in OPEN_LOOP or spec.concurrency is None:
        return spec.inflight_cap
    if spec.sessions is None:
        return spec.concurrency
    return spec.concurrency * max(_width(s) for s in read_sessions(Path(spec.sessions)))


def _width(session: Session) -> int:
    """Turns at the same distance from the session's beginning, at most."""
    depths: list[int] = []
    for turn in session.turns:
        depths.append(max((depths[k] + 1 for k in turn.after), default=0))
    return max(depths.count(depth) for depth in set(depths))


def _highest(hard: int) -> int:
    return HIGHEST if hard == resource.RLIM_INFINITY else min(hard, HIGHEST)
