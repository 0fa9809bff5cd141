"""Virtual time of one engine thread: its CPU time plus jumps. Standard library only.

now = base + CPU time of the engine's thread. When the virtual GPU waits for the device, or the driver for the
next arrival, ``base`` jumps. Between ``pause`` and ``resume`` time stands still, so the driver's own work
costs nothing. When the engine's thread waits for another thread of this process, it is charged the CPU time
that Python's other threads spend meanwhile: their work has to be done first, and they need the GIL. A sleep,
and a wait that times out, are charged the requested duration.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

cpu_ns = time.thread_time_ns
# Interval at which another thread checks whether virtual time has reached its target.
POLL_S = 0.0002


def thread_cpu_ns(native_id: int) -> int:
    """Return the CPU time of a thread of this process; 0 once it has ended.

    Uses the kernel's clock id of a thread (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED), since
    ``pthread_getcpuclockid`` is unsafe for a thread that ends.
    """
    try:
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return 0


class OtherThreads:
    """CPU time of Python's other threads since the last call."""

    def __init__(self, own_id: int) -> None:
        self._own_id = own_id
        self._seen: dict[int, int] = {}

    def spent_ns(self) -> int:
        before = self._seen
        self._seen = {
            t.native_id: thread_cpu_ns(t.native_id)
            for t in threading.enumerate()
            if t.native_id is not None and t.native_id != self._own_id
        }
        return sum(max(0, ns - before.get(thread, 0)) for thread, ns in self._seen.items())


class VirtualTime:
    """A time source for ``virtual_gpu.clock``, for the creating thread; it stands still until ``resume``.

    Attributes:
        charges_others: charge the engine's thread for all CPU time of Python's other threads.
        jumped_ns: sum of jumps: the device, idle waits, sleeps.
        waits: the engine thread's waits for other threads.
        others_ns: CPU time of Python's other threads that no wait was charged, as of the last ``settle``.
        ran_ns, wall_ns: CPU and real time of the engine's thread while time ran, without waits; their
            difference was not charged.
    """

    is_real = False

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._others = OtherThreads(threading.get_native_id())
        self._frozen_ns: int | None = time.monotonic_ns()
        self._base_ns = 0
        self._last_ns = self._frozen_ns
        self._waiting, self._charged_ns = False, 0
        self.charges_others = False
        self.jumped_ns = self.waits = self.others_ns = self.ran_ns = self.wall_ns = 0
        self._resumed_ns = (0, 0)

    def now_ns(self) -> int:
        """Return virtual time; other threads see the time of the engine thread's last look."""
        if self._frozen_ns is not None:
            return self._frozen_ns
        if threading.get_ident() == self._thread:
            self._last_ns = self._base_ns + cpu_ns()
        return self._last_ns

    def spent_ns(self) -> int:
        """Return the CPU time of the engine's thread plus charged waits; compare it only within one step."""
        return cpu_ns() + self._charged_ns

    def pause(self) -> None:
        ran_ns = cpu_ns()
        self._frozen_ns = self._last_ns = self._base_ns + ran_ns
        self.ran_ns += ran_ns - self._resumed_ns[0]
        self.wall_ns += time.perf_counter_ns() - self._resumed_ns[1]

    def resume(self) -> None:
        assert self._frozen_ns is not None
        wall_ns, ran_ns = time.perf_counter_ns(), cpu_ns()
        self._base_ns = self._frozen_ns - ran_ns
        self._resumed_ns = (ran_ns, wall_ns)
        self._frozen_ns = None

    def sleep_until(self, t_ns: int) -> None:
        """Jump to ``t_ns``.

        Another thread waits until the engine's thread reaches that time. If the engine's thread is itself
        waiting for other threads, the sleeper advances time to ``t_ns``.
        """
        if threading.get_ident() == self._thread:
            self._jump(t_ns - self.now_ns())
            return
        while self._last_ns < t_ns:
            if self._waiting:
                self._last_ns = t_ns
                return
            time.sleep(POLL_S)

    def busy(self, duration_us: float) -> None:
        """Jump as well: a known duration need not be burned."""
        self._jump(round(duration_us * 1e3))

    def _jump(self, ns: int) -> None:
        if ns > 0:
            self.jumped_ns += ns
            self._add(ns)

    def _add(self, ns: int) -> None:
        if self._frozen_ns is not None:
            self._frozen_ns += ns
        else:
            self._base_ns += ns

    def settle(self) -> None:
        """Account for what other threads have spent since the last call."""
        spent_ns = self._others.spent_ns()
        self.others_ns += spent_ns
        if self.charges_others:
            self._add(spent_ns)

    def wait(self, timeout_s: float | None, original: Callable[..., Any], *args: Any) -> Any:
        """Call ``original``, in which the engine's thread waits for another one or sleeps.

        A false result means that ``timeout_s`` ran out.
        """
        if self._frozen_ns is not None or threading.get_ident() != self._thread:
            return original(*args)
        began_ns = cpu_ns()
        self.pause()
        self.settle()
        self._last_ns = asked_ns = self._frozen_ns
        begun_ns = time.perf_counter_ns()
        self._waiting, found = True, None
        try:
            found = original(*args)
            return found
        finally:
            self._waiting = False
            charge_ns = min(time.perf_counter_ns() - begun_ns, self._others.spent_ns())
            # A thread that slept meanwhile advanced virtual time.
            slept_ns = max(0, self._last_ns - asked_ns)
            self._jump(slept_ns)
            if found or timeout_s is None:
                self.waits += 1
            else:
                charge_ns = max(0, round(timeout_s * 1e9) - slept_ns)
            self._add(charge_ns)
            self.resume()
            self._charged_ns += charge_ns - (cpu_ns() - began_ns)


def charge_waits(source: VirtualTime) -> None:
    """Charge every sleep and every wait on a condition, the base of futures, events, queues and barriers."""
    original, original_sleep = threading.Condition.wait, time.sleep

    def wait(self: Any, timeout: float | None = None) -> bool:
        return source.wait(timeout, original, self, timeout)

    def sleep(seconds: float, /) -> None:
        source.wait(seconds, original_sleep, seconds)

    threading.Condition.wait = wait  # type: ignore[method-assign]
    time.sleep = sleep
