"""What a hook spends on the CPU, beside its wall time: never more of it.

To read a thread's CPU clock takes up to a microsecond of CPU, which a short hook then seems to have taken. So its CPU time ends at its
wall time, and is called all of it there.
"""

from connector_tax.base.documents.aggregate import Hook

ALL_OF_IT = "all of it"


def cpu_us(hook: Hook) -> float | None:
    """Of a step; no more than its wall time, None where it is not known."""
    return None if hook.cpu_us_per_step is None else min(hook.cpu_us_per_step, hook.us_per_step)


def is_all(wall: float, cpu: float) -> bool:
    """Whether one of ``cpu_us``, or a sum of them, ends at the wall time."""
    return cpu >= wall
