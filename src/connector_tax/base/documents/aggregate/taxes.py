"""Taxes of ``aggregate.json``: of cells, over blocks of launches, by length of use, and what was put in; and
what they are made of."""

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
# Of a tax: configuration, metric, rate, prompt and output length. Two cells of one place are of two phases.
Place = tuple[str, Metric, float, int, int]


class TaxRow(Ends, frozen=True, kw_only=True):
    """One tax: of one cell in ``taxes``, and in ``main_taxes`` the one that stands for a configuration at a
    rate of Phase A.

    Attributes:
        phase: whose cell it is; null over blocks of launches, where ``n`` counts the requests of all of them.
        reference: ``neither`` at another rate of Phase A.
        reason, subject: as a quantity has them; the reason is null where all ends are known.
        overloaded: which sides did not keep up.
        phase_averaged: the tax of TTFT with the phase of arrival averaged out; only behind Poisson arrivals.
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
        """Tokens of the prompt, tokens of the output."""
        return self.input_tokens, self.output_tokens

    @property
    def of_one_launch(self) -> bool:
        return self.n_blocks == 1


class AttributionPart(Quantity, frozen=True, kw_only=True):
    """``n``: steps of the side that has fewer."""

    part: Part


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        n_cpu_steps: steps that measured its CPU time; 0 where that is null.
    """

    hook: str
    calls_per_step: float
    us_per_step: float
    us_per_call: float
    us_per_token: float
    cpu_us_per_step: float | None
    n_cpu_steps: Count


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Where the microseconds of a configuration's steps go, in decode-only steps of its Phase A cell at
    ref_safe, of one launch.

    Attributes:
        in_hooks_share: null where the difference is not told apart from zero, and above it.
        hooks_us, hooks_cpu_us: all hooks of a step, by the clock and on the CPU, which is cut at the former;
            null where no hook was recorded, or no step measured CPU time.
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
        parts: 3; 2 without flags, which then lie in either; 0 where the tax cannot be split.
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
    """The published experiment's parts, at ref_safe: the no-op connector's tax, and what a connector adds to
    it."""

    config: str
    metric: Literal["ttft_p90", "step_p50_us"]
    unit: Unit
    total: TaxPart
    framework: TaxPart
    rest: TaxPart


class Amplification(Ends, frozen=True, kw_only=True, omit_defaults=True):
    """Tax at ref_load minus tax at ref_safe, at Phase A's shape; at another, tax in Phase B' minus tax in
    Phase B.

    Attributes:
        rate_per_s, safe_rate_per_s: at which it was measured; absent where that was not.
        n_blocks: absent where one tax is of one launch and the other over blocks, which are not combined.
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
        """Tokens of the prompt, tokens of the output."""
        return self.input_tokens, self.output_tokens


class ObserverEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What recording steps did to a latency of one configuration, and its tax with and without it."""

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
        found_4_of_5: the smallest tax that as many blocks find with 80 % power, with the interval that the
            deviation of so few blocks gives it; null where it has no use.
        at_equal_host_speed: null where the speed is not known.
    """

    half_width: float
    found_4_of_5: Bounds | None
    at_equal_host_speed: EqualSpeed | None = None


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """How much plain's percentile changed from its first launch to its last."""

    change: Bounds
    p_value: float
    hours: float


class BlockTax(Bounds, frozen=True, kw_only=True):
    """A tax over ``n`` blocks of launches.

    Attributes:
        sd: of the blocks' log ratios.
        adjusted: with a straight drift inside blocks taken out; null where there is none to take out.
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
    """What so many blocks of launches say of one latency.

    Attributes:
        host_speed_slope: log latency over the log time of a fixed piece of work, between launches; null where
            no launch tells it.
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
    """Who has no tax at a reference rate, since requests failed in a launch at it, of a block or of phase B';
    of plain: nobody has one."""

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
    """Of the host over plain's launches at one reference rate; a source that fewer than three know is
    absent."""

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


# --- Over cached blocks and running requests

# Microseconds of a step, medians of cells; the step itself of plain, its difference from plain's of the
# others.
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
    """
    Attributes:
        running: median of the samples.
        cached_blocks: in the middle of the window; null where the engine did not tell its block size.
        p50_taxes: ratios less one, of medians; none of plain.
    """

    cell_id: str
    concurrency: Count | None
    running: float
    cached_tokens_wanted: Count | None
    cached_blocks: float | None
    medians_us: dict[GrowthQuantity, Quantity]
    p50_taxes: dict[MedianMetric, Quantity]


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        cached_blocks, running: least and most of the cells.
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
    """One tax of the model beside the one that stands for it in ``main_taxes``.

    Attributes:
        tax: the model's; null where its percentile falls on requests that did not finish.
        held: whether the interval of the one that was found holds it; null where either is missing or the
            interval is open.
    """

    config: str
    metric: LatencyMetric
    reference: Reference
    rate_per_s: Rate
    tax: float | None
    held: bool | None


class PutIn(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        launches: of each configuration, in virtual time.
        asked: taxes that were both put in and found, each once where both reference rates are one.
        held: those of them that the interval holds.
    """

    launches: Annotated[int, msgspec.Meta(ge=1)]
    asked: Count
    held: Count
    taxes: tuple[PutInRow, ...]


# Hooks of a step, a step, and latencies; all in microseconds.
BurnMetric = Literal["hooks_p50_us", "step_p50_us", "tpot_p50_us", "tpot_p90_us", "ttft_p90_us"]


class BurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a test connector less that of the test connector that burns nothing.

    Attributes:
        put_in_us: what follows from the burn; null where nothing does, and ``reason`` says why.
        held: whether the interval of ``found`` holds it; null where either is missing.
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
    """
    Attributes:
        base: the test connector that burns nothing.
        asked: numbers that were both put in and found.
        held: those of them that the interval holds.
    """

    base: str
    asked: Count
    held: Count
    rows: tuple[BurnRow, ...]
