"""Who runs on which CPU: the host's topology -> a plan that keeps client and engine off each other's cores.

The client gets the fastest physical cores, one for each worker and then one for the coordinator, which stamps nothing,
starting on the NUMA node of the fastest core and spilling over to the next best node; the engine gets all others. A hyper-thread
is never split from its sibling: two busy threads on one core slow each other by a third or so.
Where there are too few cores nothing is pinned, and the plan says so in words.
"""

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.siblings import SYSFS, cpu_list, siblings

# What is left to the engine at least: its core and its API server each keep one busy.
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
    """Logical CPUs by role; empty where nothing is pinned, and ``warning`` then says why."""

    coordinator: tuple[int, ...]
    workers: tuple[tuple[int, ...], ...]
    engine: tuple[int, ...]
    warning: str | None


def discover(sysfs: Path = SYSFS, allowed: set[int] | None = None) -> tuple[Core, ...]:
    """The physical cores that this process may use, in CPU order.

    Args:
        allowed: CPUs to look at; by default those of the process's affinity, which a cgroup's cpuset narrows.

    A core whose hyper-threads are allowed only in part counts with the part. None where the host does not tell, as in a sandbox
    without ``/sys``: whose sibling a CPU is is not known then, and nothing can be pinned.
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
    """Client on the fastest cores, engine on the rest; nothing pinned where that leaves the engine too few.

    Args:
        engine_cores: what the engine is to have at least; 0 where it runs on another host.
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
    """CPPC's highest performance, ARM's capacity or the maximum frequency, whichever the kernel tells first."""
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
