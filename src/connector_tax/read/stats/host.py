"""What the host did beside the cells: what of it qualifies a cell, and whether it changed over a campaign's launches."""

from collections.abc import Callable, Sequence

import numpy as np

from connector_tax.base.documents.aggregate import Bounds, Gpu, Host, HostSource, HostUnit, Source
from connector_tax.base.statistics.drift import line_through_blocks

# What was stolen is missing in whatever ran: 1 % of the host's time can be 1 % of a latency, which is what the client may
# add to a median before its cell is flagged, too. Sixty seconds on two cores are 12,000 ticks, so 1 % is no rounding.
CPU_STOLEN_SHARE = 0.01
# Nothing was asked of the GPU, or somebody chose this clock.
HARMLESS_REASONS = frozenset({"gpu_idle", "applications_clocks_setting"})

# Microseconds that a fixed piece of work, 0.2 ms of Python on a host of today, can have taken. Anything else is a damaged record.
PLAUSIBLE_WORK_US = (1.0, 1e5)

# Source -> its unit, and where a cell has it.
SOURCES: dict[Source, tuple[HostUnit, Callable[[Host], float | None]]] = {
    "steal_share": ("ratio", lambda host: host.steal_share),
    "cpu_mhz_p50": ("MHz", lambda host: host.cpu_mhz_p50),
    "cpu_work_us_mean": ("us", lambda host: work_us(host)),
    "gpu_sm_mhz_p50": ("MHz", lambda host: _of_gpu(host, lambda gpu: gpu.sm_mhz_p50)),
    "gpu_temperature_c_max": ("C", lambda host: _of_gpu(host, lambda gpu: gpu.temperature_c_max)),
    "gpu_power_w_mean": ("W", lambda host: _of_gpu(host, lambda gpu: gpu.power_w_mean)),
}


def _of_gpu(host: Host, number: Callable[[Gpu], float | None]) -> float | None:
    return None if host.gpu is None else number(host.gpu)


def work_us(host: Host | None) -> float | None:
    """Mean CPU time of the fixed piece of work beside a cell; None where nobody says, or where it cannot have been that."""
    us = None if host is None else host.cpu_work_us_mean
    low, high = PLAUSIBLE_WORK_US
    return us if us is not None and low <= us <= high else None


def host_flags(host: Host | None) -> list[str]:
    """What qualifies a cell; neither keeps it out."""
    if host is None:
        return []
    flags = []
    if host.steal_share is not None and host.steal_share > CPU_STOLEN_SHARE:
        flags.append("cpu_stolen")
    if host.gpu is not None and set(host.gpu.clock_reasons or ()) - HARMLESS_REASONS:
        flags.append("gpu_throttled")
    return flags


def host_changes(
    launches: Sequence[tuple[str, float, Host | None]], confidence: float
) -> tuple[HostSource, ...]:
    """One entry per source that launches of enough blocks know; ``n`` counts blocks.

    Args:
        launches: (block, hours since the first launch, state in its cell).
    """
    found = []
    for source, (unit, number) in SOURCES.items():
        known = [
            (block, hours, value)
            for block, hours, host in launches
            if host is not None and (value := number(host)) is not None
        ]
        line = line_through_blocks(known, confidence)
        if line is not None:
            found.append(
                HostSource(
                    source=source,
                    unit=unit,
                    n=line.n,
                    mean=float(np.mean([v for _, _, v in known])),
                    change=Bounds(point=line.change, low=line.low, high=line.high),
                    p_value=line.p_value,
                )
            )
    return tuple(found)
