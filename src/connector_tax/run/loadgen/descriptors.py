"""Host resources of the load generator: open files, one connection per request in flight, and CPU cores.

Most systems start with a soft limit of 1,024 files and a far higher hard one, up to which a
process may raise its own.
"""

import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import monotonic_ns

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import Session, read_sessions
from connector_tax.base.siblings import SYSFS, cpu_list, siblings
from connector_tax.run.workload.arrivals import OPEN_LOOP

# Placement: the host's topology -> a plan that keeps client and engine on different cores.

# Minimum for the engine: its core and its API server each keep one busy.
ENGINE_CORES = 2


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core.

    Attributes:
        cpus: its logical CPUs, ascending.
        performance: rank among the cores of this host, higher is faster; no unit.
    """

    numa: int
    cpus: tuple[int, ...]
    performance: float


@dataclass(frozen=True, slots=True)
class Placement:
    """Logical CPUs by role; empty if nothing is pinned, with the reason in ``warning``."""

    coordinator: tuple[int, ...]
    workers: tuple[tuple[int, ...], ...]
    engine: tuple[int, ...]
    warning: str | None


def discover(sysfs: Path = SYSFS, allowed: set[int] | None = None) -> tuple[Core, ...]:
    """Return the physical cores that this process may use, in CPU order.

    A core with some of its hyper-threads allowed counts with those. Empty if the host does not expose its
    topology, as a sandbox without ``/sys``: siblings are then unknown and nothing can be pinned.

    Args:
        allowed: CPUs to consider; default: the process's affinity, which a cgroup's cpuset narrows.
    """
    cpu_folder = sysfs / "devices" / "system" / "cpu"
    if not (cpu_folder / "online").is_file():
        return ()
    online = cpu_list((cpu_folder / "online").read_text())
    usable = online & (os.sched_getaffinity(0) if allowed is None else allowed)
    numa_of = _numa_nodes(sysfs)
    cores: dict[tuple[int, ...], Core] = {}
    for cpu in sorted(usable):
        cpus = tuple(sorted(siblings(cpu, sysfs) & usable))
        cores.setdefault(cpus, Core(numa_of.get(cpu, 0), cpus, _performance(cpu_folder / f"cpu{cpu}")))
    return tuple(cores.values())


def place(cores: tuple[Core, ...], n_workers: int, *, engine_cores: int = ENGINE_CORES) -> Placement:
    """Put the client on the fastest cores and the engine on the rest; pin nothing if too few remain.

    Args:
        engine_cores: minimum for the engine; 0 if it runs on another host.
    """
    needed = 1 + n_workers + engine_cores
    if len(cores) < needed:
        warning = (
            f"client and engine share cores: {len(cores)} physical cores, {needed} wanted "
            f"({n_workers + 1} for the client, {engine_cores} for the engine)"
        )
        return Placement((), ((),) * n_workers, (), warning)
    ordered = _by_node_then_speed(cores)
    client, engine = ordered[: n_workers + 1], ordered[n_workers + 1 :]
    return Placement(
        coordinator=client[-1].cpus,
        workers=tuple(core.cpus for core in client[:-1]),
        engine=tuple(sorted(cpu for core in engine for cpu in core.cpus)),
        warning=None,
    )


def _by_node_then_speed(cores: tuple[Core, ...]) -> list[Core]:
    nodes: dict[int, list[Core]] = defaultdict(list)
    for core in cores:
        nodes[core.numa].append(core)
    fastest_first = sorted(nodes.values(), key=lambda node: (-max(c.performance for c in node), node[0].numa))
    return [core for node in fastest_first for core in sorted(node, key=lambda c: (-c.performance, c.cpus))]


def _performance(folder: Path) -> float:
    """Return CPPC's highest performance, else ARM's capacity, else the maximum frequency."""
    for name in ("acpi_cppc/highest_perf", "cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        if (folder / name).exists():
            return float((folder / name).read_text())
    return 0.0


def _numa_nodes(sysfs: Path) -> dict[int, int]:
    nodes = {}
    for folder in (sysfs / "devices" / "system" / "node").glob("node[0-9]*"):
        for cpu in cpu_list((folder / "cpulist").read_text()):
            nodes[cpu] = int(folder.name.removeprefix("node"))
    return nodes


# Interpreter, event loop, ZeroMQ, timers, logs and spare connections; a worker has about 40 open.
OWN = 64
# The kernel's table grows with open files, not with the limit; an infinite limit has no use.
HIGHEST = 1 << 20


def raise_limit() -> None:
    """Raise this process's limit of open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = _highest(hard)
    if soft == resource.RLIM_INFINITY or soft >= highest:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))


def check_limit(spec: CellSpec) -> None:
    """Refuse a cell that would run out of files.

    Raises:
        ConfigError: with the number that is needed.
    """
    max_files = _highest(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    needed = files_needed(spec)
    if needed > max_files:
        raise ConfigError(
            f"{in_flight(spec)} requests in flight over {spec.workers or 1} load-generator worker(s) take"
            f" {needed} open files in each, and the hard limit is {max_files}. Raise it (ulimit -Hn), take"
            " more workers, or allow fewer in flight."
        )


def files_needed(spec: CellSpec) -> int:
    """Return the files open in the worker that has the most."""
    return ceil(in_flight(spec) / (spec.workers or 1)) + OWN


def in_flight(spec: CellSpec) -> int:
    """Return the most requests that can be in flight at once; for conversations by their widest session."""
    if spec.arrival == "offline":
        return spec.num_requests or 0
    if spec.arrival in OPEN_LOOP or spec.concurrency is None:
        return spec.inflight_cap
    if spec.sessions is None:
        return spec.concurrency
    return spec.concurrency * max(_width(s) for s in read_sessions(Path(spec.sessions)))


def _width(session: Session) -> int:
    """Return the largest number of turns at equal distance from the session's beginning."""
    depths: list[int] = []
    for turn in session.turns:
        depths.append(max((depths[k] + 1 for k in turn.after), default=0))
    return max(depths.count(depth) for depth in set(depths))


def _highest(hard: int) -> int:
    return HIGHEST if hard == resource.RLIM_INFINITY else min(hard, HIGHEST)


# CPU time of other processes, read from outside without their part.

# Linux: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of include/linux/posix-timers.h, as
# clock_getcpuclockid(3) returns it.
_CPUCLOCK_SCHED = 2


def cpu_ns(pid: int) -> int | None:
    """Return the user and system time of all threads of a process; None if it is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None


class CpuMeter:
    """Measures each process's share of a core, from now or from a later start."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._moved = False
        self._mark()

    def count_from(self, start_ns: int | None) -> None:
        """Restart the measurement once ``start_ns`` has passed; later calls do nothing."""
        if not self._moved and start_ns is not None and monotonic_ns() >= start_ns:
            self._moved = True
            self._mark()

    def shares(self) -> list[float]:
        """Return the share of each living process; 1 is a whole core."""
        elapsed_ns = max(monotonic_ns() - self._start_ns, 1)
        pairs = zip(self._used_ns, map(cpu_ns, self._pids), strict=True)
        return [
            (now_ns - then_ns) / elapsed_ns
            for then_ns, now_ns in pairs
            if then_ns is not None and now_ns is not None
        ]

    def _mark(self) -> None:
        self._start_ns = monotonic_ns()
        self._used_ns = [cpu_ns(pid) for pid in self._pids]
