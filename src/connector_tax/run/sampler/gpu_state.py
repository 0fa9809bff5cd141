"""Clocks, temperature, power and what holds the clocks down of one GPU, asked of NVIDIA's driver (NVML).

NVML opens no CUDA context and takes no GPU memory. Its handle is opened once. A reading that fails is absent and its error
stands beside; the next sample asks again.
"""

from collections.abc import Callable
from typing import Any

from connector_tax.base.records.host import GpuReading
from connector_tax.base.units import is_number

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
