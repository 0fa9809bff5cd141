"""What the engine's processes take of the host: CPU seconds, memory, and threads that spin.

A helper thread that polls costs nothing that a latency shows on a host with cores to spare, and a core all the same.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from connector_tax.base.documents.cell import IdleUse, Spinning
from connector_tax.run.engine.process import RunningEngine

# Of a core, with no request in sight: below it a thread wakes often, above it it does not sleep.
SPINS_FROM = 0.3
T = TypeVar("T")


def cpu_seconds(engine: RunningEngine) -> dict[str, float]:
    """User plus system CPU seconds of each process since it started, by role."""
    return _of_each(engine, lambda p: float(p.cpu_times().user + p.cpu_times().system))


def rss_mib(engine: RunningEngine) -> dict[str, float]:
    """Resident memory of each process, by role."""
    return _of_each(engine, lambda p: p.memory_info().rss / 2**20)


def host_busy_seconds() -> float:
    """CPU seconds since boot in which any core ran anything, this host's own work alone: no idling, nothing stolen."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def idle_use(engine: RunningEngine, sample_s: float) -> IdleUse:
    """What each process takes with no request in sight, watched for ``sample_s``; threads spin from ``SPINS_FROM`` of a core on."""
    processes, threads, start = cpu_seconds(engine), _thread_seconds(engine), time.monotonic()
    time.sleep(sample_s)
    elapsed_s = time.monotonic() - start
    now = _thread_seconds(engine)
    spinning = [
        Spinning(process=process, thread=name, share=(seconds - threads[process, tid][1]) / elapsed_s)
        for (process, tid), (name, seconds) in now.items()
        if (process, tid) in threads
    ]
    return IdleUse(
        idle_share={
            k: (v - processes[k]) / elapsed_s for k, v in cpu_seconds(engine).items() if k in processes
        },
        spinning=tuple(s for s in spinning if s.share >= SPINS_FROM),
    )


def _thread_seconds(engine: RunningEngine) -> dict[tuple[str, int], tuple[str, float]]:
    """(process, thread id) -> name and CPU seconds."""
    found = _of_each(engine, lambda p: (p.pid, p.threads()))
    return {
        (role, t.id): (thread_name(pid, t.id), t.user_time + t.system_time)
        for role, (pid, threads) in found.items()
        for t in threads
    }


def thread_name(pid: int, tid: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return str(tid)  # it ended since it was listed


def _of_each(engine: RunningEngine, figure: Callable[[psutil.Process], T]) -> dict[str, T]:
    out = {}
    if engine.supervisor.poll() is None:
        for role, process in engine.processes().items():
            # A process may end between the listing and the question; it then has no figure.
            with suppress(psutil.Error):
                out[role] = figure(process)
    return out
