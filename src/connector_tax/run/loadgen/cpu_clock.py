"""CPU time of other processes by their own clocks: read from outside, so a worker has no part in it."""

import time
from collections.abc import Iterable
from time import monotonic_ns

# Linux: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of include/linux/posix-timers.h, as clock_getcpuclockid(3) returns it.
_CPUCLOCK_SCHED = 2


def cpu_ns(pid: int) -> int | None:
    """User and system time of a process, all its threads; None where it is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None


class CpuMeter:
    """How much of a core each process uses, from now on or from a time that is known later."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._moved = False
        self._mark()

    def count_from(self, start_ns: int | None) -> None:
        """Once ``start_ns`` has come, count from here; asked again and again, does so once."""
        if not self._moved and start_ns is not None and monotonic_ns() >= start_ns:
            self._moved = True
            self._mark()

    def shares(self) -> list[float]:
        """Of those that still live; 1 is a whole core."""
        elapsed_ns = max(monotonic_ns() - self._start_ns, 1)
        pairs = zip(self._used_ns, map(cpu_ns, self._pids), strict=True)
        return [(now - then) / elapsed_ns for then, now in pairs if then is not None and now is not None]

    def _mark(self) -> None:
        self._start_ns = monotonic_ns()
        self._used_ns = [cpu_ns(pid) for pid in self._pids]
