"""The device's clock: steps run one after the other, each done when its time is up.

A GPU runs behind the host: a step begins once it was launched and the step before it is done. A thread that
wants the result waits on an event and releases GIL and core, as here.
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
# As often as the step records: a cell waits for the last rows of both.
FLUSH_S = float(os.environ.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5"))
BATCH_ROWS = 50
PR_SET_TIMERSLACK = 29
# The kernel keeps the CPUs awake while a process holds this file open with a 0 written to it (PM QoS).
CPU_LATENCY = Path("/dev/cpu_dma_latency")


class RealTime:
    """The host's monotonic clock: a waiting thread sleeps, and releases GIL and core."""

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
        """Hold the GIL and a core, as Python code of that length does."""
        until_ns = self.now_ns() + round(duration_us * 1e3)
        while self.now_ns() < until_ns:
            pass

    def _sleep_precisely(self) -> None:
        """Set the thread's timer slack to 1 ns; otherwise Linux may wake it up to 50 us late."""
        ident = threading.get_ident()
        if ident not in self._precise_threads:
            self._precise_threads.add(ident)
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


# The time source of new clocks. ``virtual_time`` replaces it before the engine makes its clock.
source: Any = RealTime()


@dataclass
class Launched:
    """A step on the device; nanoseconds of the clock's source."""

    t_launch_ns: int
    t_due_ns: int


class Clock:
    """The times of one device, recorded as lists of ``[t_launch_ns, t_due_ns, t_asked_ns, t_done_ns]``.

    The clock's error is ``t_done_ns`` less the later of due and asked.
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
        """Time at which all launched steps are done."""
        return self._free_at_ns

    def not_before(self, t_ns: int) -> None:
        """Let the next launch begin no earlier than ``t_ns``."""
        self._free_at_ns = max(self._free_at_ns, t_ns)

    def sleep_until(self, t_ns: int) -> None:
        self.source.sleep_until(t_ns)

    def note(self, line: dict[str, object]) -> None:
        """Write a line beside the rows, with other facts about this device."""
        with self._flushing:
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    def host_is_behind(self, step: Launched) -> None:
        """Delay the step's end to now, when the host hands over its last layer."""
        self._free_at_ns = step.t_due_ns = max(step.t_due_ns, self.now_ns())

    def wait(self, step: Launched) -> None:
        asked_ns = self.now_ns()
        self.sleep_until(step.t_due_ns)
        self._rows.append((step.t_launch_ns, step.t_due_ns, asked_ns, self.now_ns()))

    def flush(self) -> None:
        """Write pending rows, a few at a time: writing a line holds the GIL."""
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
    """Return a descriptor that keeps the CPUs polling instead of asleep while open; None if not permitted.

    A host that waits for a GPU polls, too. A sleeping CPU of a virtual machine wakes up 0.1 ms late, and in
    one of a hundred cases several milliseconds late.
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
