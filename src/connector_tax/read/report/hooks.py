"""What a hook spends on the CPU, beside its wall time: never more of it.

To read a thread's CPU clock takes up to a microsecond of CPU, which a short hook then seems to have taken. So its CPU time ends at its
wall time, and is called all of it there.
"""

from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import number

ALL_OF_IT = "all of it"


def wall_us(hook: Mapping[str, Any]) -> float | None:
    """Of a step."""
    return number(hook.get("us_per_step"))


def cpu_us(hook: Mapping[str, Any]) -> float | None:
    """Of a step; no more than ``wall_us``, None where either is not known."""
    cpu, wall = number(hook.get("cpu_us_per_step")), wall_us(hook)
    return None if cpu is None or wall is None else min(cpu, wall)


def is_all(wall: float, cpu: float) -> bool:
    """Whether one of ``cpu_us``, or a sum of them, ends at the wall time."""
    return cpu >= wall
