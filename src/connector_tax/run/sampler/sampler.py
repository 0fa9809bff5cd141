"""Samples the engine's ``/metrics``, under names that are stable across vLLM releases, and the host's state.

Runs in its own process beside a launch's cells, once a second: parsing a page of metrics takes
milliseconds, which the load generator's loop must not feel. A failed sample is a line that says so; every
line has the host's state.
"""

import argparse
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from connector_tax.base import direct
from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.base.files import Lines
from connector_tax.base.records.host import GpuReading, HostReading, Sample
from connector_tax.base.units import is_number, s_to_ns

# One GPU's clocks, temperature, power and clock limits, from NVIDIA's driver (NVML).

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
    """Return the reasons, lowest bit first; an unknown bit is its number."""
    bits = [1 << k for k in range(mask.bit_length()) if mask >> k & 1]
    return tuple(CLOCK_REASONS.get(bit, hex(bit)) for bit in bits)


class GpuReader:
    """Reads one GPU.

    Args:
        gpu: its UUID, or its number in bus order, as NVML and nvidia-smi count. Measurements pass the UUID
            that ``run/engine/gpus.py`` found; only that module reads CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, gpu: str) -> None:
        self._handle: Any = None
        self._error: str | None = None
        try:
            # Imported here: it takes 0.1 s of a core, and an engine without a GPU does not need it.
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
            pass  # no NVIDIA driver: nothing to read
        except pynvml.NVMLError as error:
            self._error = f"GPU {gpu}: {error}"

    def read(self) -> GpuReading | None:
        """Return all current values; None without an NVIDIA driver. Never fails."""
        if self._error is not None:
            return GpuReading(errors=(self._error,))
        if self._handle is None:
            return None
        values: dict[str, Any] = {}
        errors = []
        for name, query in _QUESTIONS.items():
            try:
                values[name] = query(self._nvml, self._handle)
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


# The host: stolen CPU time, the cores' clocks and their actual speed, beside each metrics sample.

PROC_STAT = Path("/proc/stat")
CPUS = Path("/sys/devices/system/cpu")
# user nice system idle iowait irq softirq steal; guest and guest_nice after them are in user and nice.
TICK_FIELDS = 8
STEAL_FIELD = 7
# About 0.2 ms of pure Python: long against the clock's resolution, and a thousandth of a
# core at four times a second.
WORK_TURNS = 4000


def cpu_ticks(stat: str) -> tuple[int, int] | None:
    """Return (all, stolen) ticks of all cores since boot from the text of ``/proc/stat``; None if absent.

    Source: proc_stat(5).
    """
    name, *fields = stat.partition("\n")[0].split() or [""]
    ticks = fields[:TICK_FIELDS]
    if name != "cpu" or len(ticks) < TICK_FIELDS or not all(t.isdigit() for t in ticks):
        return None
    return sum(map(int, ticks)), int(ticks[STEAL_FIELD])


def work_us(turns: int = WORK_TURNS) -> float:
    """Return this thread's CPU time for a fixed piece of work, in microseconds.

    A virtual machine's core may be one of two hyper-threads. While the other one is busy, the same
    instructions take up to 1.5 times as long, although hardly any time is stolen and the clock is unchanged.
    """
    begun_ns, total = time.thread_time_ns(), 0
    for turn in range(turns):
        total += turn * turn
    return (time.thread_time_ns() - begun_ns) / 1e3


class HostReader:
    """Opens the readable sources once, then reads them repeatedly.

    Args:
        gpu: a card's UUID, or its number as nvidia-smi counts; None: no GPU.
    """

    def __init__(self, gpu: str | None, *, proc_stat: Path = PROC_STAT, cpus: Path = CPUS) -> None:
        self._stat = _opened([proc_stat])
        # Not "cpu MHz" of /proc/cpuinfo: without a frequency driver, as on most virtual machines, and for
        # idle cores it repeats the nominal clock (arch_freq_get_on_cpu in the kernel's
        # arch/x86/kernel/cpu/aperfmperf.c).
        self._mhz = _opened(sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=_cpu_number))
        self._gpu = GpuReader(gpu) if gpu is not None else None
        self._work_us: list[float] = []

    def time_work(self) -> None:
        self._work_us.append(round(work_us(), 1))

    def read(self) -> HostReading:
        """Return all current values; never fails."""
        work_times_us, self._work_us = tuple(self._work_us), []
        ticks = next((cpu_ticks(text) for text in _texts(self._stat)), None)
        return HostReading(
            cpu_ticks=ticks[0] if ticks else None,
            steal_ticks=ticks[1] if ticks else None,
            cpu_mhz=tuple(round(int(khz) / 1000) for khz in _texts(self._mhz) if khz.strip().isdigit()),
            cpu_work_us=work_times_us,
            gpu=self._gpu.read() if self._gpu is not None else None,
        )

    def close(self) -> None:
        for descriptor in (*self._stat, *self._mhz):
            os.close(descriptor)
        self._stat = self._mhz = []


def _cpu_number(path: Path) -> int:
    return int(re.sub(r"\D", "", path.parts[-3]))


def _opened(paths: list[Path]) -> list[int]:
    descriptors = []
    for path in paths:
        try:
            descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            continue
    return descriptors


def _texts(descriptors: list[int]) -> list[str]:
    """Return each file's current content, without unreadable ones, as of a core that went offline."""
    texts = []
    for descriptor in descriptors:
        try:
            texts.append(os.pread(descriptor, 4096, 0).decode("ascii", errors="replace"))
        except OSError:
            continue
    return texts


# Canonical name -> its names in vLLM 0.11 to 0.32. Counters appear with and without `_total`, depending on
# where the parser puts the suffix.
NAMES: dict[str, tuple[str, ...]] = {
    "num_requests_running": ("vllm:num_requests_running",),
    "num_requests_waiting": ("vllm:num_requests_waiting",),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prefix_cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_prefix_cache_queries": ("vllm:external_prefix_cache_queries_total",),
    "external_prefix_cache_hits": ("vllm:external_prefix_cache_hits_total",),
    "num_preemptions": ("vllm:num_preemptions_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    # Number of iterations observed, not of their tokens.
    "iterations": ("vllm:iteration_tokens_total_count",),
    "engine_core_failed": ("vllm:engine_core_failed_total",),
}
_CANONICAL = {name: canonical for canonical, names in NAMES.items() for name in names}
SAMPLE_INTERVAL_S = 1.0
TIMEOUT_S = 2.0
# A question that must be answered gets longer on each try, since a busy engine sometimes answers late.
PATIENT_TIMEOUTS_S = (TIMEOUT_S, 5.0, 10.0)
PAUSE_S = 0.5
START_TIMEOUT_S = 10.0
MOST_REDIRECTS = 5
NO_METRICS = (httpx.HTTPError, httpx.InvalidURL, ValueError)
# Restarts of a sampler that was killed or met a full disk; each takes a core for half a second.
RESTARTS = 3
RESTART_AFTER_S = 0.5
# A sampler ends within milliseconds of SIGTERM. This long is waited before it is killed,
# and again for the kernel.
END_WITHIN_S = 5.0
# The host's speed changes within seconds, so it is sampled more often than the engine.
WORK_INTERVAL_S = 0.25


def parse_metrics(text: str, *, all_counters: bool = False) -> dict[str, float]:
    """Return canonical values from Prometheus text, summed over engines, without non-finite ones.

    Args:
        all_counters: also return every other counter, and each histogram's count, under its own name.

    Raises:
        ValueError: it is not Prometheus text.
    """
    by_name: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            counts = sample.name.endswith(
                "_total" if family.type not in ("histogram", "summary") else "_count"
            )
            if sample.name in _CANONICAL or (all_counters and counts):
                by_name[sample.name] = by_name.get(sample.name, 0.0) + sample.value
    values = {k: v for k, v in by_name.items() if k not in _CANONICAL and math.isfinite(v)}
    for canonical, names in NAMES.items():
        # A release in transition exports both names; the newer one counts.
        for name in names:
            if math.isfinite(by_name.get(name, math.nan)):  # JSON cannot represent others
                values[canonical] = by_name[name]
                break
    return values


def scrape_once(
    base_url: str, timeout_s: float = TIMEOUT_S, *, all_counters: bool = False
) -> dict[str, float]:
    with direct.Client(timeout_s=timeout_s) as client:
        return scrape(client, base_url, timeout_s, all_counters=all_counters)


def scrape(
    client: direct.Client, base_url: str, timeout_s: float, *, all_counters: bool = False
) -> dict[str, float]:
    """Return the current values; see ``parse_metrics``.

    Raises:
        OSError: the server does not answer, or not with metrics.
    """
    try:
        return parse_metrics(_metrics(client, base_url, timeout_s), all_counters=all_counters)
    except NO_METRICS as error:
        raise OSError(f"{base_url}/metrics: {error or type(error).__name__}") from error


def _metrics(client: direct.Client, base_url: str, timeout_s: float) -> str:
    """Return the page; redirects on the same host and port are followed, as mounted applications need.

    Raises:
        NO_METRICS: the server does not answer, or not with metrics.
    """
    url = httpx.URL(f"{base_url}/metrics")
    for _ in range(MOST_REDIRECTS):
        response = direct.whole(client, "GET", str(url), within_s=timeout_s)
        if not response.has_redirect_location:
            break
        target = url.join(response.headers["Location"])
        if (target.host, target.port) != (url.host, url.port) or (url.scheme, target.scheme) == (
            "https",
            "http",
        ):
            # Another address has another server's counters, and headers may hold a key.
            raise ValueError(
                f"HTTP {response.status_code}: it refers to {target.scheme}://{target.netloc.decode()}"
            )
        url = target
    if response.status_code != 200:
        raise ValueError(f"HTTP {response.status_code}")
    return response.text


def scrape_patiently(
    base_url: str, gone: Callable[[], bool] = lambda: False, *, all_counters: bool = False
) -> dict[str, float]:
    """Like ``scrape_once``, with further tries and longer time-outs if an answer is slow or fails.

    Args:
        gone: whether nobody is left to answer; checked before each further try.

    Raises:
        OSError: of the last try.
    """
    for timeout_s in PATIENT_TIMEOUTS_S[:-1]:
        try:
            return scrape_once(base_url, timeout_s, all_counters=all_counters)
        except OSError:
            if gone():
                raise
            time.sleep(PAUSE_S)
    return scrape_once(base_url, PATIENT_TIMEOUTS_S[-1], all_counters=all_counters)


@contextmanager
def sampling(base_url: str, out: Path, interval_s: float, gpu: str | None = None) -> Iterator[None]:
    """Sample into ``out`` during the body, in a process that dies with this one.

    Args:
        gpu: UUID of the engine's card; None: it has none.
    """
    command = [sys.executable, "-m", "connector_tax.run.sampler.sampler"]
    arguments = ["--base-url", base_url, "--out", str(out), "--interval-s", str(interval_s)]
    if gpu is not None:
        arguments += ["--gpu", gpu]
    out.touch()  # exists even if the sampler dies before it creates it
    size_before = _size(out)  # an earlier sampler of this launch may have written to it
    sampler = _Kept([*command, *arguments])
    try:
        _wait_for_first_sample(
            out, size_before, sampler
        )  # its imports take half a second of a core; keep them out of the cell
        yield
    finally:
        sampler.end()


class _Kept:
    """A sampler that is restarted up to ``RESTARTS`` times if it ends early."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._told = threading.Event()
        self._turn = threading.Lock()
        self._process = self._start()
        self._thread = threading.Thread(target=self._restart_when_ended, daemon=True)
        self._thread.start()

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        with self._turn:
            self._told.set()
            self._process.terminate()
        self._thread.join(END_WITHIN_S)
        if self._thread.is_alive():
            # It is stopped (SIGSTOP) or waits for a driver that does not answer; the
            # launch would wait for ever.
            self._process.kill()
            self._thread.join(END_WITHIN_S)

    def _start(self) -> "subprocess.Popen[bytes]":
        # Standard input is the lifeline, which closes with this process. In its own process group, so
        # that Ctrl-C reaches only us.
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, process_group=0)

    def _restart_when_ended(self) -> None:
        for restarts_left in reversed(range(RESTARTS + 1)):
            code = self._process.wait()
            if self._told.is_set():
                return
            outcome = (
                "started again"
                if restarts_left
                else "given up; cells of some seconds are flagged samples_missing"
            )
            print(
                f"sampler of /metrics ended by itself (exit code {code}): {outcome}",
                file=sys.stderr,
                flush=True,
            )
            if not restarts_left or self._told.wait(RESTART_AFTER_S):
                return
            with self._turn:
                if self._told.is_set():
                    return
                self._process = self._start()


def _wait_for_first_sample(out: Path, size_before: int, sampler: _Kept) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and _size(out) <= size_before and sampler.lives:
        time.sleep(0.01)


def _size(out: Path) -> int:
    return out.stat().st_size if out.exists() else 0


def sample_until_told(base_url: str, out: Path, interval_s: float, gpu: str | None = None) -> None:
    """Write one line per interval on an absolute grid, until SIGTERM or the end of standard input.

    Raises:
        ArtifactError: a line cannot be written.
    """
    signal.signal(signal.SIGTERM, _exit)
    host = HostReader(gpu)
    start_ns = time.monotonic_ns()
    with Lines(out) as lines, direct.Client(timeout_s=TIMEOUT_S) as client:
        beat = 0
        while True:
            sample = msgspec.structs.replace(_sample(client, base_url), host=host.read())
            lines.write(sample.line)
            now_ns = time.monotonic_ns()
            beat = max(beat + 1, (now_ns - start_ns) // s_to_ns(interval_s))
            if _work_until(start_ns + beat * s_to_ns(interval_s), host):
                return


def _sample(client: direct.Client, base_url: str) -> Sample:
    try:
        values = parse_metrics(_metrics(client, base_url, TIMEOUT_S))
        return Sample(t_ns=time.monotonic_ns(), ok=True, values=values)
    except NO_METRICS as error:
        return Sample(t_ns=time.monotonic_ns(), ok=False, error=f"{type(error).__name__}: {error}")


def _work_until(until_ns: int, host: HostReader) -> bool:
    """Time the host's speed until ``until_ns``; return whether the parent is gone."""
    while (left_s := (until_ns - time.monotonic_ns()) / 1e9) > WORK_INTERVAL_S:
        host.time_work()
        if _parent_gone_within(WORK_INTERVAL_S):
            return True
    host.time_work()
    return _parent_gone_within(left_s)


def _parent_gone_within(seconds: float) -> bool:
    if sys.stdin.isatty():
        time.sleep(max(seconds, 0))
        return False
    readable, _, _ = select.select([sys.stdin], [], [], max(seconds, 0))
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


def _exit(signum: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--interval-s", type=float, default=1.0)
    parser.add_argument("--gpu", help="whose state is read as well, a number or a UUID; none: no GPU's")
    args = parser.parse_args()
    sample_until_told(args.base_url, args.out, args.interval_s, args.gpu)


if __name__ == "__main__":
    run_entrypoint(main)
