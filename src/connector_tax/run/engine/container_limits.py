"""What an engine in a container may use of this host: shared memory, open files, processes and locked memory, as outside of one."""

import resource
import shutil
from pathlib import Path

LEAST_SHM_BYTES = 2**30


def shm_bytes() -> int:
    """As much as this host's own, which is a limit and no reservation."""
    try:
        return max(LEAST_SHM_BYTES, shutil.disk_usage("/dev/shm").total)  # nosec B108  # only its size is asked
    except OSError:
        return LEAST_SHM_BYTES


def limit_words() -> tuple[str, ...]:
    """Of open files, processes and locked memory, as this process has them: runtimes give others, and may not be allowed to."""
    found = []
    for name, which in (
        ("nofile", resource.RLIMIT_NOFILE),
        ("nproc", resource.RLIMIT_NPROC),
        ("memlock", resource.RLIMIT_MEMLOCK),
    ):
        # podman lowers its own limit of processes to as many as the kernel can number.
        most = (
            int(Path("/proc/sys/kernel/pid_max").read_text()) if name == "nproc" else resource.RLIM_INFINITY
        )
        limits = (_lower(n, most) for n in resource.getrlimit(which))
        found.append(
            f"--ulimit={name}={':'.join(str(-1 if n == resource.RLIM_INFINITY else n) for n in limits)}"
        )
    return tuple(found)


def _lower(limit: int, most: int) -> int:
    """RLIM_INFINITY is -1."""
    return min((n for n in (limit, most) if n != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY)
