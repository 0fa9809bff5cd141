"""CPU time that was stolen, clocks of the cores, and how fast these run, taken beside each metrics sample.

Files stay open and are read again from their start: an open costs more than the read. A reading took 0.01 ms on two cores
(p99 0.05 ms) and 0.2 ms with clocks of 192 cores in plain files, against milliseconds for the page of metrics beside it.
"""

import os
import re
import time
from pathlib import Path

from connector_tax.base.records.host import HostReading
from connector_tax.run.sampler.gpu_state import GpuReader

PROC_STAT = Path("/proc/stat")
CPUS = Path("/sys/devices/system/cpu")
# user nice system idle iowait irq softirq steal. What follows, guest and guest_nice, is in user and nice already.
TICK_FIELDS = 8
STEAL_FIELD = 7
# About 0.2 ms of pure Python: long against the clock's resolution; four times a second it is a thousandth of a core.
WORK_TURNS = 4000


def cpu_ticks(stat: str) -> tuple[int, int] | None:
    """(all, stolen) ticks of all cores since boot from the text of ``/proc/stat``; None if it does not say.

    Source: proc_stat(5).
    """
    name, *fields = stat.partition("\n")[0].split() or [""]
    ticks = fields[:TICK_FIELDS]
    if name != "cpu" or len(ticks) < TICK_FIELDS or not all(t.isdigit() for t in ticks):
        return None
    return sum(map(int, ticks)), int(ticks[STEAL_FIELD])


def work_us(turns: int = WORK_TURNS) -> float:
    """CPU time that this thread takes for a fixed piece of work, microseconds; what others run meanwhile is not in it.

    A virtual machine's core may be one of two threads of a real core. While somebody else's thread is busy there, the same
    instructions take up to 1.5 times as long, though hardly any time is stolen and the clock is the same.
    """
    begun_ns, total = time.thread_time_ns(), 0
    for turn in range(turns):
        total += turn * turn
    return (time.thread_time_ns() - begun_ns) / 1e3


class HostReader:
    """Opens once what can be read, then reads it as often as asked.

    Args:
        gpu: a card's UUID, or its number as nvidia-smi counts; None: leave GPUs alone.
    """

    def __init__(self, gpu: str | None, *, proc_stat: Path = PROC_STAT, cpus: Path = CPUS) -> None:
        self._stat = _opened([proc_stat])
        # Not "cpu MHz" of /proc/cpuinfo: without a frequency driver, as on most virtual machines, and for idle cores it
        # repeats the nominal clock (arch_freq_get_on_cpu in the kernel's arch/x86/kernel/cpu/aperfmperf.c).
        self._mhz = _opened(sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=_cpu_number))
        self._gpu = GpuReader(gpu) if gpu is not None else None
        self._work_us: list[float] = []

    def time_work(self) -> None:
        """Do the fixed piece of work once more; the next reading holds how long it took."""
        self._work_us.append(round(work_us(), 1))

    def read(self) -> HostReading:
        """Everything right now; never fails."""
        done, self._work_us = tuple(self._work_us), []
        ticks = next((cpu_ticks(text) for text in _texts(self._stat)), None)
        return HostReading(
            cpu_ticks=ticks[0] if ticks else None,
            steal_ticks=ticks[1] if ticks else None,
            cpu_mhz=tuple(round(int(khz) / 1000) for khz in _texts(self._mhz) if khz.strip().isdigit()),
            cpu_work_us=done,
            gpu=self._gpu.read() if self._gpu is not None else None,
        )

    def close(self) -> None:
        for descriptor in (*self._stat, *self._mhz):
            os.close(descriptor)
        self._stat = self._mhz = []


def _cpu_number(path: Path) -> int:
    return int(re.sub(r"\D", "", path.parts[-3]))


def _opened(paths: list[Path]) -> list[int]:
    found = []
    for path in paths:
        try:
            found.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            continue
    return found


def _texts(descriptors: list[int]) -> list[str]:
    """What each holds now; one that cannot be read, as of a core that went offline, is left out."""
    found = []
    for descriptor in descriptors:
        try:
            found.append(os.pread(descriptor, 4096, 0).decode("ascii", errors="replace"))
        except OSError:
            continue
    return found
