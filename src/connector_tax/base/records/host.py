"""What the host did at one moment, as it stands under ``host`` in a line of ``metrics_*.jsonl``.

What the kernel or the driver does not tell is absent. Ticks are cumulative since boot, so a cell's share is a difference.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

# Nothing that a host tells of itself is beyond these; a number that is would be no number any more in a mean.
Number = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
Ticks = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The GPU that the engine runs on.

    Attributes:
        utilisation: share of the driver's last sampling period in which a kernel ran, 0 to 1.
        clock_reasons: why the clocks are not at their maximum, by name; empty where nothing holds them down.
        errors: readings that failed, and how; what this GPU cannot tell at all is none of them.
    """

    sm_mhz: Number | None = None
    mem_mhz: Number | None = None
    temperature_c: Number | None = None
    power_w: Number | None = None
    utilisation: Number | None = None
    clock_reasons: tuple[str, ...] | None = None
    errors: tuple[str, ...] = ()


class HostReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole host, whoever runs on it.

    Attributes:
        cpu_ticks: of all cores, idle ones included.
        steal_ticks: those of them that the hypervisor gave to somebody else while a core here had work.
        cpu_mhz: of each core that says.
        cpu_work_us: CPU time of the same piece of work, each time that it was done since the reading before; see
            ``run.sampler.host_state.work_us``.
        gpu: None without an NVIDIA driver, and where the engine uses no GPU.
    """

    cpu_ticks: Ticks | None = None
    steal_ticks: Ticks | None = None
    cpu_mhz: tuple[Ticks, ...] = ()
    cpu_work_us: tuple[Number, ...] = ()
    gpu: GpuReading | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``metrics_*.jsonl``.

    Attributes:
        values: the engine's counters and gauges under canonical names; ``UNSET`` where it did not answer, which ``error`` says.
        host: ``UNSET`` in lines of rehearsals.
    """

    t_ns: int
    ok: bool
    values: dict[str, float] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    host: HostReading | UnsetType = UNSET

    @property
    def line(self) -> str:
        return msgspec.json.encode(self).decode()
