"""The device's clock: one step after the other, each done when its time is up.

A GPU runs behind the host: a step begins when it was launched and the one before it is done. Whoever wants
its result waits on an event and gives interpreter lock and core away, as here.
"""

import ctypes
import json
import os
import struct
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1
# Written out as often as the step records: a cell waits for the last rows of both.
FLUSH_S = float(os.environ.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5"))
BATCH_ROWS = 50
PR_SET_TIMERSLACK = 29
# The kernel keeps the CPUs awake while a process has this open with a 0 in it (PM QoS).
CPU_LATENCY = Path("/dev/cpu_dma_latency")


class RealTime:
    """The host's monotonic clock: whoever waits sleeps, and gives interpreter lock and core away."""

    now_ns = staticmethod(time.monotonic_ns)
    is_real = True

    def __init__(self) -> None:
        self._precise_threads: set[int] = set()

    def sleep_until(self, t_ns: int) -> None:
        left_ns = t_ns - self.now_ns()
        if left_ns > 0:
            self._sleep_precisely()
            time.sleep(left_ns / 1e9)

    def busy(self, duration_us: float) -> None:
        """Hold the interpreter's lock and a core, as Python code of that length does."""
        until_ns = self.now_ns() + round(duration_us * 1e3)
        while self.now_ns() < until_ns:
            pass

    def _sleep_precisely(self) -> None:
        """Linux wakes a sleeper up to 50 us late to save wake-ups; the thread that waits for the device asks
        for 1 ns."""
        ident = threading.get_ident()
        if ident not in self._precise_threads:
            self._precise_threads.add(ident)
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


# Where clocks take their time from. ``virtual_time`` puts its own here before the engine makes its clock.
source: Any = RealTime()


@dataclass
class Launched:
    """A step on the device; nanoseconds of the clock's source."""

    t_launch_ns: int
    t_due_ns: int


class Clock:
    """The times of one device, and their record: lists of ``[t_launch_ns, t_due_ns, t_asked_ns, t_done_ns]``.

    ``t_done_ns`` less the later of due and asked is the clock's error.
    """

    def __init__(self, log: Path) -> None:
        self.source = source
        self.now_ns = source.now_ns
        self._free_at_ns = 0
        self._rows: deque[tuple[int, int, int, int]] = deque()
        self._flushing = threading.Lock()
        self._awake = keep_cpus_awake() if source.is_real else None
        self._log = open(log, "a", encoding="utf-8")  # noqa: SIM115 - open for the life of the process
        header = {
            "kind": "header",
            "schema": SCHEMA,
            "pid": os.getpid(),
            "cpus_kept_awake": self._awake is not None,
        }
        self._log.write(json.dumps(header) + "\n")
        self._log.flush()
        if source.is_real:
            threading.Thread(target=self._keep_flushing, name="connector-tax-clock", daemon=True).start()

    def launch(self, duration_ns: int) -> Launched:
        launched_ns = self.now_ns()
        self._free_at_ns = max(launched_ns, self._free_at_ns) + duration_ns
        return Launched(launched_ns, self._free_at_ns)

    @property
    def free_at_ns(self) -> int:
        """When all that was launched is done."""
        return self._free_at_ns

    def not_before(self, t_ns: int) -> None:
        """What is launched next begins at ``t_ns`` or later."""
        self._free_at_ns = max(self._free_at_ns, t_ns)

    def sleep_until(self, t_ns: int) -> None:
        """The calling thread waits."""
        self.source.sleep_until(t_ns)

    def note(self, line: dict[str, object]) -> None:
        """Put a line beside the rows: what else a reader must know of this device."""
        with self._flushing:
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    def host_is_behind(self, step: Launched) -> None:
        """The host has only now handed the last layer over: the step cannot be done before."""
        self._free_at_ns = step.t_due_ns = max(step.t_due_ns, self.now_ns())

    def wait(self, step: Launched) -> None:
        """Until the step is done."""
        asked_ns = self.now_ns()
        self.sleep_until(step.t_due_ns)
        self._rows.append((step.t_launch_ns, step.t_due_ns, asked_ns, self.now_ns()))

    def flush(self) -> None:
        """Write what there is, a few rows at a time: a line being written holds the interpreter's lock."""
        with self._flushing:
            while self._rows:
                rows = [self._rows.popleft() for _ in range(min(len(self._rows), BATCH_ROWS))]
                self._log.write(json.dumps(rows, separators=(",", ":")) + "\n")
            self._log.flush()

    def _keep_flushing(self) -> None:
        while True:
            time.sleep(FLUSH_S)
            self.flush()


def keep_cpus_awake(device: Path = CPU_LATENCY) -> int | None:
    """A descriptor to hold for as long as the CPUs are to poll instead of sleep; None where that is not
    allowed.

    A host that waits for a GPU polls, too. A CPU of a virtual machine that went to sleep wakes up 0.1 ms late
    and, once in a hundred times, several milliseconds.
    """
    try:
        descriptor = os.open(device, os.O_WRONLY)
        os.write(descriptor, struct.pack("i", 0))
    except OSError as error:
        print(
            "connector-tax: virtual GPU: the CPUs may sleep between two steps, and the clock run late:"
            f" {device}: {error.strerror}",
            file=sys.stderr,
            flush=True,
        )
        return None
    return descriptor
