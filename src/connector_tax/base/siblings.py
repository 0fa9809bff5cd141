"""Finds the logical CPUs that are hyper-threads of one physical core, from Linux's ``/sys``."""

from pathlib import Path

SYSFS = Path("/sys")


def siblings(cpu: int, sysfs: Path = SYSFS) -> set[int]:
    """Return all CPUs of the core of ``cpu``; only ``cpu`` if the kernel does not say."""
    folder = sysfs / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
    # The second is the older kernels' name.
    for name in ("core_cpus_list", "thread_siblings_list"):
        if (folder / name).exists():
            return cpu_list((folder / name).read_text())
    return {cpu}


def cpu_list(text: str) -> set[int]:
    """``"0-3,8"`` -> ``{0, 1, 2, 3, 8}``."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        if low:
            cpus |= set(range(int(low), int(high or low) + 1))
    return cpus
