"""CPU time that was stolen, clocks of the cores, and how fast these run, taken beside each metrics sample.

Files stay open and are read again from their start: an open costs more than the read. A reading took 0.01 ms on two cores
(p99 0.05 ms) and 0.2 ms with clocks of 192 cores in plain files, against milliseconds for the page of metrics beside it.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector_tax.base.records.host import GpuReading, HostReading
from connector_tax.base.units import is_number

# Clocks, temperature, power and what holds the clocks down of one GPU, asked of NVIDIA's driver (NVML).

# Bits of nvmlClocksEventReasons. Source: nvml.h.
CLOCK_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def reason_names(mask: int) -> tuple[str, ...]:
    """Lowest bit first; a bit that has no name here is its number."""
    bits = [1 << k for k in range(mask.bit_length()) if mask >> k & 1]
    return tuple(CLOCK_REASONS.get(bit, hex(bit)) for bit in bits)


class GpuReader:
    """One GPU.

    Args:
        gpu: its UUID, or a number in the order of the PCI bus, as NVML and nvidia-smi count. Measurements give the UUID that
            ``run/engine/gpus.py`` found; what CUDA_VISIBLE_DEVICES holds is read there alone.
    """

    def __init__(self, gpu: str) -> None:
        self._handle: Any = None
        self._error: str | None = None
        try:
            # Here, since it takes 0.1 s of a core, and an engine without a GPU has no use for it.
            import pynvml
        except ImportError as error:
            self._error = str(error)
            return
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            if is_number(gpu):
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
            else:
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
            pass  # no NVIDIA driver: there is nothing that could be told
        except pynvml.NVMLError as error:
            self._error = f"GPU {gpu}: {error}"

    def read(self) -> GpuReading | None:
        """Everything right now; None without an NVIDIA driver. Never fails."""
        if self._error is not None:
            return GpuReading(errors=(self._error,))
        if self._handle is None:
            return None
        values: dict[str, Any] = {}
        errors = []
        for name, ask in _QUESTIONS.items():
            try:
                values[name] = ask(self._nvml, self._handle)
            except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound):
                continue
            except self._nvml.NVMLError as error:
                errors.append(f"{name}: {error}")
        return GpuReading(**values, errors=tuple(errors))


def _clock_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        return reason_names(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError_FunctionNotFound:
        # Its name before driver 535.
        return reason_names(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


_QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sm_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    "mem_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
    "temperature_c": lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    "power_w": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "utilisation": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    "clock_reasons": _clock_reasons,
}


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
