"""How long a connector's hooks are on the CPU and how long they wait, per step of one cell; means, as in ``step_slopes``.

A hook waits where its wall time is above the CPU time of the thread that ran it: for a core, for a lock (the interpreter's among them), for
another process. CPU time is known of one step in 16, wall time of all.
"""

from dataclasses import dataclass

import numpy as np

from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import Estimate, block_length, small_sample_factor, unavailable
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.stats.step_slopes import CONFIDENCE, CellSteps, hook_costs
from connector_tax.read.stats.taxes import difference

DRAWS = 1000
# Fewer steps with CPU time than that make no interval.
FEWEST = 8


@dataclass(frozen=True, slots=True)
class HookTimes:
    """Microseconds per step.

    Attributes:
        wait: wall less CPU.
    """

    wall: Estimate
    cpu: Estimate
    wait: Estimate


def hook_times(steps: CellSteps, seed: int) -> dict[str, HookTimes]:
    """By hook, dearest first; a side's sum is none."""
    found = {}
    for entry in hook_costs(steps, seed):
        name, wall = entry.hook, entry.us_per_step
        if not name.endswith(" side"):
            cpu = _mean(steps.cpu_us[name], steps.calls[name], seed, f"{steps.launch} {name}")
            found[name] = HookTimes(wall, cpu, difference(wall, cpu, of_second="CPU time"))
    return found


def _mean(cpu_us: Floats, calls: Floats, seed: int, name: str) -> Estimate:
    """Of the steps that measured it, shape (n,), NaN in all others."""
    known = ~np.isnan(cpu_us)
    values, n = cpu_us[known], int(known.sum())
    if not calls[known].any():
        return unavailable("no step that measures CPU time called it", n)
    if n < FEWEST:
        return unavailable(f"{n} steps measured CPU time, {FEWEST} are wanted", n)
    length = block_length([values])
    blocks = np.array_split(values, max(2, n // length))
    sums, sizes = np.array([b.sum() for b in blocks]), np.array([b.size for b in blocks])
    drawn = stream(seed, "hook_cpu", name).integers(0, len(blocks), (DRAWS, len(blocks)))
    point = float(values.mean())
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return Estimate(point, point + small_sample_factor(n, length, CONFIDENCE) * (means - point), n)
