"""What the host did during a cell's window: its samples' ``host`` in a few numbers. Nothing is filled in."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from connector_tax.base.documents.aggregate import Gpu, Host
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.host import GpuReading, HostReading


def host_reading(row: Foreign) -> HostReading | None:
    """Of one line of ``metrics_*.jsonl``; None where it holds none, as lines of older versions and of rehearsals, or a foreign one."""
    try:
        return msgspec.convert(row["host"], HostReading)
    except (KeyError, msgspec.ValidationError):
        return None


def host_state(readings: Sequence[HostReading]) -> Host | None:
    """The readings of one window, in time order; None without any."""
    if not readings:
        return None
    medians = [float(np.median(r.cpu_mhz)) for r in readings if r.cpu_mhz]
    return Host(
        n=len(readings),
        steal_share=_steal_share(readings),
        cpu_mhz_p50=float(np.median(medians)) if medians else None,
        cpu_mhz_min=min(medians, default=None),
        cpu_work_us_mean=_mean([us for r in readings for us in r.cpu_work_us]),
        gpu=_gpu_state([r.gpu for r in readings if r.gpu is not None]),
    )


def _steal_share(readings: Sequence[HostReading]) -> float | None:
    known = [
        (r.cpu_ticks, r.steal_ticks)
        for r in readings
        if r.cpu_ticks is not None and r.steal_ticks is not None
    ]
    if not known:
        return None
    total, stolen = (last - first for first, last in zip(known[0], known[-1], strict=True))
    # No time lies between a sample and itself. Some hypervisors let the counter run backwards: nobody knows, then.
    return stolen / total if 0 <= stolen <= total and total > 0 else None


def _gpu_state(readings: Sequence[GpuReading]) -> Gpu | None:
    if not readings:
        return None
    reasons = [r.clock_reasons for r in readings if r.clock_reasons is not None]
    counts = Counter(name for names in reasons for name in names)
    temperatures = _known(r.temperature_c for r in readings)
    return Gpu(
        sm_mhz_p50=median(_known(r.sm_mhz for r in readings)),
        mem_mhz_p50=median(_known(r.mem_mhz for r in readings)),
        temperature_c_max=max(temperatures, default=None),
        power_w_mean=_mean(_known(r.power_w for r in readings)),
        utilisation_mean=_mean(_known(r.utilisation for r in readings)),
        clock_reasons={k: counts[k] / len(reasons) for k in sorted(counts)} if reasons else None,
        n_failed=sum(bool(r.errors) for r in readings),
        errors=tuple(dict.fromkeys(e for r in readings for e in r.errors)),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
