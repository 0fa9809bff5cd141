"""What blocks of repeated launches say, in ``aggregate.json``."""

from typing import Annotated, Literal

import msgspec

from connector_tax.base.documents.aggregate.intervals import Bounds, Kind
from connector_tax.base.documents.aggregate.words import (
    AnyLatencyMetric,
    Block,
    BlockVerdict,
    Count,
    Digits,
    LatencyMetric,
    Launch,
    Rate,
)
from connector_tax.base.documents.rates import Reference

Source = Literal[
    "steal_share",
    "cpu_mhz_p50",
    "cpu_work_us_mean",
    "gpu_sm_mhz_p50",
    "gpu_temperature_c_max",
    "gpu_power_w_mean",
]
# Of log latencies, which is squared.
Deviation = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
HostUnit = Literal["ratio", "MHz", "us", "C", "W"]


class EqualSpeed(Bounds, frozen=True, kw_only=True):
    """A tax at equal speed of the host.

    Attributes:
        work: the time of the fixed piece of work over plain's, less one.
    """

    verdict: BlockVerdict
    work: Bounds


class NoiseFloor(Bounds, frozen=True, kw_only=True):
    """What "tax" plain has against itself.

    Attributes:
        found_4_of_5: the smallest tax that as many blocks find with 80 % power, with the interval that the deviation of so few
            blocks gives it; null where it has no use. Aggregates of earlier versions have no interval of it, or do not say it.
        at_equal_host_speed: null where the speed is not known.
    """

    half_width: float
    found_4_of_5: Bounds | float | None = None
    at_equal_host_speed: EqualSpeed | None = None


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """How much plain's percentile changed from its first launch to its last."""

    change: Bounds
    p_value: float
    hours: float


class BlockTax(Bounds, frozen=True, kw_only=True):
    """A tax over blocks of launches.

    Attributes:
        sd: of the blocks' log ratios.
        adjusted: with a straight drift inside blocks taken out; null where there is none to take out.
        by_block: of each block.
    """

    config: str
    kind: Kind
    n: Count
    sd: Deviation
    verdict: BlockVerdict
    adjusted: Bounds | None
    at_equal_host_speed: EqualSpeed | None = None
    by_block: dict[Block, float]


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """What so many blocks of launches say of one latency.

    Attributes:
        host_speed_slope: log latency over the log time of a fixed piece of work, between launches; null where no launch tells it.
        between_launches: ``between_launch_sd`` with its interval.
        requests: median number behind a launch of plain.
    """

    blocks: Annotated[int, msgspec.Meta(ge=3)]
    noise_floor: NoiseFloor
    host_speed_slope: Bounds | None = None
    between_launch_sd: float | None
    between_launches: Bounds | None = None
    within_launch_sd: Deviation | None = None
    requests: float | None = None
    drift: Drift | None
    taxes: tuple[BlockTax, ...]


class Repeats(Blocks, frozen=True, kw_only=True):
    """The same at one reference rate."""

    reference: Reference
    rate_per_s: Rate
    metric: AnyLatencyMetric


class FailedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Who has no tax at a reference rate, since requests failed in a launch at it, of a block or of phase B'; of plain: nobody has one."""

    reference: Reference
    rate_per_s: Rate
    metric: LatencyMetric
    config: str
    blocks: tuple[Launch, ...]
    reason: str


class HostSource(msgspec.Struct, frozen=True, kw_only=True):
    source: Source
    unit: HostUnit
    n: Annotated[int, msgspec.Meta(ge=3)]
    mean: float
    change: Bounds
    p_value: float


class HostDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Of the host over plain's launches at one reference rate; a source that fewer than three know is absent."""

    reference: Reference
    rate_per_s: Rate
    n_launches: Count
    sources: tuple[HostSource, ...]


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest tax that would be found at that power; null where it cannot be told.

    Attributes:
        by_blocks: number of blocks -> that tax.
    """

    config: str
    metric: LatencyMetric
    power: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    one_launch: float | None
    by_blocks: dict[Digits, Bounds | None] | None
