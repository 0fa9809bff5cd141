"""NVML without a GPU: a stand-in that answers, fails and comes back; and the real bindings without a driver."""

import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from connector_tax.run.sampler.sampler import CLOCK_REASONS, GpuReader, reason_names

CALLS = {
    "sm_mhz": "nvmlDeviceGetClockInfo",
    "temperature_c": "nvmlDeviceGetTemperature",
    "power_w": "nvmlDeviceGetPowerUsage",
    "utilisation": "nvmlDeviceGetUtilizationRates",
    "clock_reasons": "nvmlDeviceGetCurrentClocksEventReasons",
}


class NVMLError(Exception):
    pass


def kind(name: str) -> type[NVMLError]:
    return type(f"NVMLError_{name}", (NVMLError,), {})


class Nvml:
    """What of ``pynvml`` is used. ``failing``: function -> what it raises from now on."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVMLError = NVMLError
    NVMLError_LibraryNotFound = kind("LibraryNotFound")
    NVMLError_DriverNotLoaded = kind("DriverNotLoaded")
    NVMLError_NotSupported = kind("NotSupported")
    NVMLError_FunctionNotFound = kind("FunctionNotFound")
    NVMLError_GpuIsLost = kind("GpuIsLost")
    NVMLError_InvalidArgument = kind("InvalidArgument")

    def __init__(self) -> None:
        self.failing: dict[str, NVMLError] = {}
        self.opened: list[Any] = []

    def _call(self, name: str, value: Any) -> Any:
        if name in self.failing:
            raise self.failing[name]
        return value

    def nvmlInit(self) -> None:
        self._call("nvmlInit", None)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self.opened.append(index)
        return str(self._call("nvmlDeviceGetHandleByIndex", f"handle {index}"))

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.opened.append(uuid)
        return f"handle {uuid}"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> Any:
        return self._call("nvmlDeviceGetClockInfo", {1: 1755, 2: 2619}[clock])

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> Any:
        return self._call("nvmlDeviceGetTemperature", 61)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> Any:
        return self._call("nvmlDeviceGetPowerUsage", 412_345)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._call("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=93, memory=40))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> Any:
        return self._call("nvmlDeviceGetCurrentClocksEventReasons", 0x44)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> Any:
        return self._call("nvmlDeviceGetCurrentClocksThrottleReasons", 0x1)


ALL = {
    "sm_mhz": 1755,
    "mem_mhz": 2619,
    "temperature_c": 61,
    "power_w": 412.345,
    "utilisation": 0.93,
    "clock_reasons": ["sw_power_cap", "hw_thermal_slowdown"],
}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    found = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def told(reader: GpuReader) -> Any:
    """As it stands in a line of a file."""
    return msgspec.json.decode(msgspec.json.encode(reader.read()))


@pytest.mark.parametrize(("gpu", "opened"), [("1", 1), ("GPU-12ab", "GPU-12ab")])
def test_everything_in_its_unit_through_one_handle(nvml: Nvml, gpu: str, opened: Any) -> None:
    reader = GpuReader(gpu)
    assert [told(reader) for _ in range(3)] == [ALL] * 3
    assert nvml.opened == [opened]


@pytest.mark.parametrize("name", ["NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"])
def test_without_a_driver_there_is_nothing_and_no_error(nvml: Nvml, name: str) -> None:
    nvml.failing["nvmlInit"] = getattr(Nvml, name)()
    assert GpuReader("0").read() is None


def test_a_gpu_that_is_not_there_is_an_error_that_names_it(nvml: Nvml) -> None:
    nvml.failing["nvmlDeviceGetHandleByIndex"] = Nvml.NVMLError_InvalidArgument("Invalid Argument")
    assert told(GpuReader("9")) == {"errors": ["GPU 9: Invalid Argument"]}


def test_bindings_that_are_not_installed_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (error,) = told(GpuReader("0"))["errors"]
    assert "pynvml" in error


def test_what_this_gpu_cannot_tell_is_absent_without_an_error(nvml: Nvml) -> None:
    nvml.failing[CALLS["power_w"]] = Nvml.NVMLError_NotSupported("Not Supported")
    assert told(GpuReader("0")) == {k: v for k, v in ALL.items() if k != "power_w"}


def test_an_older_driver_has_another_name_for_the_reasons(nvml: Nvml) -> None:
    nvml.failing[CALLS["clock_reasons"]] = Nvml.NVMLError_FunctionNotFound()
    reader = GpuReader("0")
    assert told(reader) == {**ALL, "clock_reasons": ["gpu_idle"]}
    nvml.failing["nvmlDeviceGetCurrentClocksThrottleReasons"] = Nvml.NVMLError_FunctionNotFound()
    assert "clock_reasons" not in told(reader)


def test_a_failure_in_the_middle_is_data_and_the_next_sample_asks_again(nvml: Nvml) -> None:
    reader = GpuReader("0")
    assert told(reader) == ALL
    nvml.failing["nvmlDeviceGetPowerUsage"] = Nvml.NVMLError_GpuIsLost("GPU is lost")
    assert told(reader) == {k: v for k, v in ALL.items() if k != "power_w"} | {
        "errors": ["power_w: GPU is lost"]
    }
    nvml.failing = {call: Nvml.NVMLError_GpuIsLost("GPU is lost") for call in CALLS.values()}
    lost = told(reader)
    assert set(lost) == {"errors"} and len(lost["errors"]) == len(ALL)
    nvml.failing = {}
    assert told(reader) == ALL


def test_reasons_have_names_and_unknown_bits_are_numbers() -> None:
    assert reason_names(0) == ()
    assert reason_names(0x1 | 0x8 | 0x1000) == ("gpu_idle", "hw_slowdown", "0x1000")


def test_the_real_bindings_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("pynvml")

    def no_library() -> None:
        raise real.NVMLError(real.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(real, "nvmlInit", no_library)
    assert GpuReader("0").read() is None
    # Nothing was opened: each question is refused, and that is said and not thrown.
    monkeypatch.setattr(real, "nvmlInit", lambda: None)
    monkeypatch.setattr(real, "nvmlDeviceGetHandleByIndex", lambda index: object())
    assert told(GpuReader("0")) == {"errors": [f"{name}: Uninitialized" for name in ALL]}


def test_the_bits_are_those_of_the_real_bindings() -> None:
    real = pytest.importorskip("pynvml")
    for bit, name in CLOCK_REASONS.items():
        assert getattr(real, f"nvmlClocksThrottleReason{name.title().replace('_', '')}") == bit
    assert len(CLOCK_REASONS) == 11
