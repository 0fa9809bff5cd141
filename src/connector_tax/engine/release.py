"""Waiting until the GPU is as free as before the launch; on a host without one there is nothing to wait for."""

import subprocess
import time

from connector_tax.errors import EngineError

POLL_S = 0.5


def gpu_memory_used_mib(gpu: int) -> int | None:
    """Memory in use on GPU ``gpu``; None where there is no NVIDIA GPU or it does not say (``[N/A]`` under MIG)."""
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"--id={gpu}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    used = found.stdout.strip()
    return int(used) if used.isdigit() else None


def wait_released(gpu: int, before_mib: int | None, *, tolerance_mib: int, timeout_s: float) -> None:
    """Wait until memory in use is back to ``before_mib`` within ``tolerance_mib``.

    Raises:
        EngineError: it is not after ``timeout_s``; the next launch would meet a smaller GPU.
    """
    if before_mib is None:
        return
    deadline = time.monotonic() + timeout_s
    while True:
        used_mib = gpu_memory_used_mib(gpu)
        if used_mib is None or used_mib <= before_mib + tolerance_mib:
            return
        if time.monotonic() > deadline:
            raise EngineError(
                f"GPU {gpu}: {used_mib} MiB in use {timeout_s:g} s after the engine ended, {before_mib} MiB "
                "before it started. See nvidia-smi for who holds it; end that process, then start again."
            )
        time.sleep(POLL_S)
