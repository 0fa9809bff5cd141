"""Taxes of ``aggregate.json``: of cells, over blocks, by length of use, injected ones; and their parts."""

from typing import Annotated, Literal

import msgspec

from connector_tax.base.documents.aggregate.values import (
    AnyLatencyMetric,
    AnyReference,
    Block,
    BlockVerdict,
    Bounds,
    CellRate,
    Count,
    Digits,
    Ends,
    LatencyMetric,
    Launch,
    Metric,
    NBlocks,
    Quantity,
    Rate,
    TaxPart,
    TaxPhase,
    TaxVerdict,
    Unit,
)
from connector_tax.base.documents.rates import Reference

Part = Literal["scheduler_hooks", "worker_hooks", "schedule", "update", "round_trip"]
Side = Literal["own", "plain"]
# A tax's configuration, metric, rate, prompt and output length. Two cells of one place are in two phases.
Place = tuple[str, Metric, float, int, int]


class TaxRow(Ends, frozen=True, kw_only=True):
    """One tax: a cell's in ``taxes``; in ``main_taxes`` a configuration's main one at a rate of Phase A.

    Attributes:
        phase: the cell's; null over blocks of launches, where ``n`` counts the requests of all of them.
        reference: ``neither`` at another rate of Phase A.
        reason, subject: as in a quantity; the reason is null if all ends are known.
        overloaded: the sides that did not keep up.
        phase_averaged: the tax of TTFT with the phase of arrival averaged out; only with Poisson arrivals.
    """

    config: str
    reference: AnyReference
    phase: TaxPhase | None
    cell_id: str
    rate_per_s: CellRate
    input_tokens: Count
    output_tokens: Count
    metric: Metric
    unit: Unit
    n_blocks: NBlocks
    n: Count
    n_plain: Count
    reason: str | None = None
    subject: str = ""
    overloaded: tuple[Side, ...] = ()
    verdict: TaxVerdict
    phase_averaged: TaxPart | msgspec.UnsetType = msgspec.UNSET

    @property
    def place(self) -> Place:
        return self.config, self.metric, self.rate_per_s, self.input_tokens, self.output_tokens

    @property
    def shape(self) -> tuple[int, int]:
        return self.input_tokens, self.output_tokens

    @property
    def of_one_launch(self) -> bool:
        return self.n_blocks == 1


class AttributionPart(Quantity, frozen=True, kw_only=True):
    """One part of a step; ``n``: steps of the side that has fewer."""

    part: Part


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One hook in numbers.

    Attributes:
        n_cpu_steps: steps that measured its CPU time; 0 if that is null.
    """

    hook: str
    calls_per_step: float
    us_per_step: float
    us_per_call: float
    us_per_token: float
    cpu_us_per_step: float | None
    n_cpu_steps: Count


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a configuration's decode-only steps, in one launch's Phase A cell at ref_safe.

    Attributes:
        in_hooks_share: null unless the difference is significant and positive.
        hooks_us, hooks_cpu_us: all hooks of a step, in wall time and in CPU time, which is capped at the
            former; null if no hook was recorded, or no step measured CPU time.
    """

    config: str
    cell_id: str
    n_steps: Count
    n_plain_steps: Count
    tokens_per_step: float
    step_us: float
    plain_step_us: float
    difference_us: Quantity
    parts: tuple[AttributionPart, ...]
    hooks: tuple[Hook, ...]
    in_hooks_share: Quantity | None
    hooks_us: Quantity | None = None
    hooks_cpu_us: Quantity | None = None


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """A tax in parts.

    Attributes:
        parts: 3; 2 without flags, which are then in either part; 0 if the tax cannot be split.
    """

    config: str
    metric: LatencyMetric
    settings: tuple[str, ...]
    parts: Literal[0, 2, 3]
    total: TaxPart
    flags: TaxPart
    framework: TaxPart
    implementation: TaxPart


class TwoParts(msgspec.Struct, frozen=True, kw_only=True):
    """The published experiment's parts at ref_safe: the no-op connector's tax, and what a connector adds."""

    config: str
    metric: Literal["ttft_p90", "step_p50_us"]
    unit: Unit
    total: TaxPart
    framework: TaxPart
    rest: TaxPart


class Amplification(Ends, frozen=True, kw_only=True, omit_defaults=True):
    """Tax at ref_load minus tax at ref_safe, at Phase A's shape; at others, Phase B' minus Phase B.

    Attributes:
        rate_per_s, safe_rate_per_s: the measured rates; absent if not measured.
        n_blocks: absent if one tax is of one launch and the other over blocks, which are not combined.
    """

    config: str
    metric: Metric
    input_tokens: Count
    output_tokens: Count
    rate_per_s: Rate | None = None
    safe_rate_per_s: Rate | None = None
    n_blocks: NBlocks | None = None
    n: Count
    reason: str | None = None
    subject: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        return self.input_tokens, self.output_tokens


class ObserverEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of recording steps on a configuration's latency, and its tax with and without recording."""

    config: str
    metric: AnyLatencyMetric
    rate_per_s: float
    effect: Quantity
    tax: Quantity | None
    tax_unrecorded: Quantity | None


# --- Over blocks of repeated launches

Source = Literal[
    "steal_share",
    "cpu_mhz_p50",
    "cpu_work_us_mean",
    "gpu_sm_mhz_p50",
    "gpu_temperature_c_max",
    "gpu_power_w_mean",
]
# A standard deviation of log latencies, which gets squared.
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
    """The "tax" of plain against itself.

    Attributes:
        found_4_of_5: the smallest tax that as many blocks find with 80 % power, with the interval due to the
            uncertain deviation of so few blocks; null if its upper end is too large to be of use.
        at_equal_host_speed: null if the speed is unknown.
    """

    half_width: float
    found_4_of_5: Bounds | None
    at_equal_host_speed: EqualSpeed | None = None


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The change of plain's percentile from its first launch to its last."""

    change: Bounds
    p_value: float
    hours: float


class BlockTax(Bounds, frozen=True, kw_only=True):
    """A tax over ``n`` blocks of launches.

    Attributes:
        sd: of the blocks' log ratios.
        adjusted: without a linear drift inside blocks; null without such a drift.
        by_block: of each block.
    """

    config: str
    n: Count
    sd: Deviation
    verdict: BlockVerdict
    adjusted: Bounds | None
    at_equal_host_speed: EqualSpeed | None = None
    by_block: dict[Block, float]


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """The results of several blocks of launches for one latency.

    Attributes:
        host_speed_slope: log latency over the log time of a fixed piece of work, between launches; null if no
            launch has it.
        between_launches: ``between_launch_sd`` with its interval.
        requests: median number per launch of plain.
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
    """A configuration without a tax at a reference rate, since requests failed; if plain, none has one.

    The launch is one of a block or of phase B'.
    """

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
    """Drift of the host over plain's launches at one reference rate; a source needs three values."""

    reference: Reference
    rate_per_s: Rate
    n_launches: Count
    sources: tuple[HostSource, ...]


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest tax that would be found with that power; null if unknown.

    Attributes:
        by_blocks: number of blocks -> that tax.
    """

    config: str
    metric: LatencyMetric
    power: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    one_launch: float | None
    by_blocks: dict[Digits, Bounds | None] | None


# --- Over cached blocks and running requests

# Microseconds of a step, medians of cells. ``decode_step_us`` is plain's; the others have the difference from
# it.
GrowthQuantity = Literal[
    "build_meta_us",
    "get_finished_us",
    "start_load_kv_us",
    "connector_total_us",
    "decode_step_us",
    "decode_step_over_plain_us",
]
MedianMetric = Literal["ttft_p50", "tpot_p50"]


class GrowthCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of Phase D.

    Attributes:
        running: median of the samples.
        cached_blocks: in the middle of the window; null if the engine did not report its block size.
        p50_taxes: ratios of medians, less one; none for plain.
    """

    cell_id: str
    concurrency: Count | None
    running: float
    cached_tokens_wanted: Count | None
    cached_blocks: float | None
    medians_us: dict[GrowthQuantity, Quantity]
    p50_taxes: dict[MedianMetric, Quantity]


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of one quantity.

    Attributes:
        cached_blocks, running: minimum and maximum over the cells.
    """

    quantity: GrowthQuantity
    n_cells: Count
    cached_blocks: tuple[float, float] | None
    running: tuple[float, float] | None
    per_1000_cached_blocks: Quantity
    per_running_request: Quantity


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of Phase D."""

    config: str
    cells: tuple[GrowthCell, ...]
    slopes: tuple[Slope, ...]


# --- Put in


class PutInRow(msgspec.Struct, frozen=True, kw_only=True):
    """The model's tax beside the measured one in ``main_taxes``.

    Attributes:
        tax: the model's; null if its percentile falls on unfinished requests.
        held: whether the measured tax's interval contains it; null if either is missing or the interval is
            open.
    """

    config: str
    metric: LatencyMetric
    reference: Reference
    rate_per_s: Rate
    tax: float | None
    held: bool | None


class PutIn(msgspec.Struct, frozen=True, kw_only=True):
    """The model's taxes and how many were recovered.

    Attributes:
        launches: of each configuration, in virtual time.
        asked: taxes both injected and measured, each once if both reference rates are equal.
        held: those of them that the interval contains.
    """

    launches: Annotated[int, msgspec.Meta(ge=1)]
    asked: Count
    held: Count
    taxes: tuple[PutInRow, ...]


# Hooks of a step, a step, and latencies; all in microseconds.
BurnMetric = Literal["hooks_p50_us", "step_p50_us", "tpot_p50_us", "tpot_p90_us", "ttft_p90_us"]


class BurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a test connector minus that of the test connector that burns nothing.

    Attributes:
        put_in_us: the effect of the burn; null if there is none to expect, as ``reason`` says.
        held: whether the interval of ``found`` contains it; null if either is missing.
    """

    config: str
    metric: BurnMetric
    reference: Reference
    rate_per_s: Rate
    put_in_us: float | None
    reason: str | None
    found: Quantity
    held: bool | None


class Burns(msgspec.Struct, frozen=True, kw_only=True):
    """The burns of test connectors and how many were recovered.

    Attributes:
        base: the test connector that burns nothing.
        asked: numbers both injected and measured.
        held: those of them that the interval contains.
    """

    base: str
    asked: Count
    held: Count
    rows: tuple[BurnRow, ...]
