"""A timer of nanosecond deadlines on an event loop.

asyncio's own timers have whole milliseconds in uvloop, and a spinning thread would hold the GIL and
delay every stamp. A timerfd does neither: the kernel wakes the loop at an absolute time.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable

from connector_tax.units import NS_PER_S

CLOCK_MONOTONIC = 1
TFD_NONBLOCK = os.O_NONBLOCK
TFD_CLOEXEC = os.O_CLOEXEC
TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("it_interval", _Timespec), ("it_value", _Timespec)]


_libc = ctypes.CDLL(None, use_errno=True)


class DeadlineTimer:
    """Calls ``on_due()`` on the loop's thread when the deadline last given to ``arm`` has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._fd: int = _libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._fd, self._ready)

    def arm(self, deadline_ns: int) -> None:
        """Set the deadline, CLOCK_MONOTONIC nanoseconds; one in the past is due at once."""
        # A value of zero would disarm the timer.
        seconds, nanoseconds = divmod(max(deadline_ns, 1), NS_PER_S)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if _libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _ready(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # armed anew between the wake-up and now
        self._on_due()
