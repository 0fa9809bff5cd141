"""A timer with nanosecond deadlines on an event loop.

uvloop's timers have whole milliseconds, and a spinning thread would hold the GIL and delay every stamp. A
timerfd does neither: the kernel wakes the loop at an absolute time.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from connector_tax.base.units import NS_PER_S

# The one clock: CLOCK_MONOTONIC in integer nanoseconds.

now_ns = time.monotonic_ns


def asleep_ns() -> int:
    """Return the time suspended since boot: CLOCK_BOOTTIME counts it, CLOCK_MONOTONIC does not."""
    before_ns = time.monotonic_ns()
    booted_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_ns - (before_ns + time.monotonic_ns()) // 2


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One simultaneous reading of both clocks."""

    monotonic_ns: int
    utc_ns: int


def read_clock_pair() -> ClockPair:
    """Read both clocks within about a microsecond of each other.

    The tightest of five bracketed readings counts, so one preemption does not shift wall time by a scheduling
    quantum.
    """
    best: tuple[int, ClockPair] | None = None
    for _ in range(5):
        before_ns = time.monotonic_ns()
        utc_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        if best is None or after_ns - before_ns < best[0]:
            best = (after_ns - before_ns, ClockPair((before_ns + after_ns) // 2, utc_ns))
    assert best is not None
    return best[1]


CLOCK_MONOTONIC = 1
TFD_NONBLOCK = os.O_NONBLOCK
TFD_CLOEXEC = os.O_CLOEXEC
TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("it_interval", _Timespec), ("it_value", _Timespec)]


_libc = ctypes.CDLL(None, use_errno=True)


class DeadlineFd:
    """A timerfd, readable from the deadline last given to ``arm`` until ``clear``."""

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def arm(self, deadline_ns: int) -> None:
        """Set the deadline, CLOCK_MONOTONIC nanoseconds; one in the past is due at once."""
        # Zero would disarm the timer.
        seconds, nanoseconds = divmod(max(deadline_ns, 1), NS_PER_S)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if _libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def clear(self) -> bool:
        """Make it unreadable; return False if it was armed again since the wake-up."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class DeadlineTimer:
    """Calls ``on_due()`` on the loop's thread at the deadline last given to ``arm``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._timer = DeadlineFd()
        self.arm = self._timer.arm
        loop.add_reader(self._timer.fd, self._ready)

    def close(self) -> None:
        if self._timer.fd >= 0:
            self._loop.remove_reader(self._timer.fd)
            self._timer.close()

    def _ready(self) -> None:
        if self._timer.clear():
            self._on_due()
