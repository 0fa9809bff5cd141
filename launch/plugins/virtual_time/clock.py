"""Virtual time of one engine thread: the CPU time that it spends, plus jumps. Standard library only.

now = base + CPU time of the engine's thread. Where the virtual GPU waits for the device or the driver for the
next arrival, ``base`` moves on at once. Between ``pause`` and ``resume`` time stands still: whatever the
driver does there costs nothing. When the engine's thread waits for another thread of this process, it is
charged the CPU time that Python's other threads spend meanwhile: their work has to be done first, and they
need the interpreter's lock. A sleep, and a wait that ends by its time-out, are charged how long they were
asked to last.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

cpu_ns = time.thread_time_ns
# How often another thread looks whether virtual time has come to where it waits for.
POLL_S = 0.0002


def thread_cpu_ns(native_id: int) -> int:
    """CPU time of a thread of this process; 0 where it has ended.

    By the kernel's clock id of a thread (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED): ``pthread_getcpuclockid``
    may not be asked for one that ends.
    """
    try:
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return 0


class OtherThreads:
    """CPU time of Python's other threads, since it was last asked."""

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
    """A source of time for ``virtual_gpu.clock``, of the thread that makes it. It stands still until
    ``resume``.

    Attributes:
        charges_others: whether the engine's thread is to wait for all that Python's other threads do.
        jumped_ns: taken by jumps: the device, idle waits, sleeps.
        waits: how often the engine's thread waited for another thread.
        others_ns: CPU time of Python's other threads beyond what such waits were charged, as of the last
            ``settle``.
        ran_ns, wall_ns: CPU and real time of the engine's thread while time went on, without waits: what they
            differ by, nobody was charged.
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
        """Other threads see when the engine's last looked."""
        if self._frozen_ns is not None:
            return self._frozen_ns
        if threading.get_ident() == self._thread:
            self._last_ns = self._base_ns + cpu_ns()
        return self._last_ns

    def spent_ns(self) -> int:
        """CPU time of the engine's thread and what it was charged for waits; only differences mean anything,
        and within one step."""
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
        """A jump. Another thread waits until the engine's comes there; when the engine's waits for other
        threads, it takes time there."""
        if threading.get_ident() == self._thread:
            self._jump(t_ns - self.now_ns())
            return
        while self._last_ns < t_ns:
            if self._waiting:
                self._last_ns = t_ns
                return
            time.sleep(POLL_S)

    def busy(self, duration_us: float) -> None:
        """A jump as well: nobody has to burn what is known."""
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
        """Note what other threads have spent since the last time."""
        spent_ns = self._others.spent_ns()
        self.others_ns += spent_ns
        if self.charges_others:
            self._add(spent_ns)

    def wait(self, timeout_s: float | None, original: Callable[..., Any], *args: Any) -> Any:
        """Call ``original``, in which the engine's thread waits for another one, or sleeps; it ends after
        ``timeout_s`` where it gives nothing true."""
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
            # A thread that slept meanwhile took virtual time on with it.
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
    """Have every wait on a condition charged, on which futures, events, queues and barriers all wait; and
    every sleep."""
    original, original_sleep = threading.Condition.wait, time.sleep

    def wait(self: Any, timeout: float | None = None) -> bool:
        return source.wait(timeout, original, self, timeout)

    def sleep(seconds: float, /) -> None:
        source.wait(seconds, original_sleep, seconds)

    threading.Condition.wait = wait  # type: ignore[method-assign]
    time.sleep = sleep
