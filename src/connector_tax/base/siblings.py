"""Which logical CPUs are hyper-threads of one physical core, as Linux lists them below ``/sys``."""

from pathlib import Path

SYSFS = Path("/sys")


def siblings(cpu: int, sysfs: Path = SYSFS) -> set[int]:
    """All CPUs of the core that ``cpu`` belongs to; itself alone where the kernel does not say."""
    folder = sysfs / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
    # The second is the first's name in older kernels.
    for name in ("core_cpus_list", "thread_siblings_list"):
        if (folder / name).exists():
            return cpu_list((folder / name).read_text())
    return {cpu}


def cpu_list(text: str) -> set[int]:
    """``"0-3,8"`` to ``{0, 1, 2, 3, 8}``."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        if low:
            cpus |= set(range(int(low), int(high or low) + 1))
    return cpus
