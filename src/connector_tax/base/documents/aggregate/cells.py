"""``cells`` of ``aggregate.json``: every measured cell, with its numbers if statistics may use it."""

from typing import Annotated, Any, Literal, get_args

import msgspec

from connector_tax.base.documents.aggregate.values import (
    CellRate,
    Count,
    Phase,
    Problem,
    Quantity,
    Share,
    Verdict,
)
from connector_tax.base.documents.cell import ClockHealth, CpuUse, Health
from connector_tax.base.documents.rates import Criterion
from connector_tax.base.records.cell import Look

Percentile = Literal["p50", "p90", "p99"]
StepColumn = Literal[
    "step_duration_us",
    "build_meta_us",
    "get_finished_us",
    "start_load_kv_us",
    "connector_total_us",
    "round_trip_us",
]
Latency = Literal["ttft_ms", "tpot_ms", "e2e_ms", "ttft_from_send_ms"]
# The status of a request.
Status = Annotated[
    str,
    msgspec.Meta(
        pattern="^(ok|dropped|connect_error|http_error|timeout|truncated|malformed|stream_error|wrong_length|aborted)$"
    ),
]


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a latency, milliseconds."""

    p50: Quantity
    p90: Quantity
    p99: Quantity

    def at(self, which: Percentile) -> Quantity:
        found: Quantity = getattr(self, which)
        return found


class StepPercentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a time in a step, microseconds."""

    p50: Quantity
    p90: Quantity


class StepsOfKind(StepPercentiles, frozen=True, kw_only=True):
    """Duration of the steps of one kind, microseconds."""

    n: Count


class ByKind(msgspec.Struct, frozen=True, kw_only=True):
    decode_only: StepsOfKind
    mixed: StepsOfKind
    prefill_only: StepsOfKind


class Cdf(msgspec.Struct, frozen=True, kw_only=True):
    """200 quantiles from 0 to 1, evenly spaced."""

    step_duration_us: Annotated[tuple[float, ...], msgspec.Meta(min_length=200, max_length=200)]


class StepRecords(msgspec.Struct, frozen=True, kw_only=True):
    """``step`` of a cell; with step records it is a ``Steps``."""

    available: bool


class NoSteps(StepRecords, frozen=True, kw_only=True):
    reason: str


class Steps(StepRecords, frozen=True, kw_only=True):
    """Statistics of step records."""

    n_steps: Count
    n_empty: Count
    n_unjoined: Count
    torn: bool
    step_duration_us: StepPercentiles
    build_meta_us: StepPercentiles
    get_finished_us: StepPercentiles
    start_load_kv_us: StepPercentiles
    connector_total_us: StepPercentiles
    round_trip_us: StepPercentiles
    by_kind: ByKind
    cdf: Cdf

    def column(self, name: StepColumn) -> StepPercentiles:
        found: StepPercentiles = getattr(self, name)
        return found


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU over a cell's window; a number is null if no sample has it.

    Attributes:
        clock_reasons: share of the samples in which each held the clocks down; null if unknown.
        n_failed: samples with a failed reading.
        errors: each kind of failed reading, once.
    """

    sm_mhz_p50: float | None
    mem_mhz_p50: float | None
    temperature_c_max: float | None
    power_w_mean: float | None
    utilisation_mean: Share | None
    clock_reasons: dict[str, float] | None
    n_failed: Count
    errors: tuple[str, ...]


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The host during the window; a number is null if kernel or driver do not report it.

    Attributes:
        n: samples with a reading of the host.
        cpu_work_us_mean: CPU time of the fixed piece of work.
    """

    n: Count
    steal_share: Share | None
    cpu_mhz_p50: float | None
    cpu_mhz_min: float | None
    gpu: Gpu | None
    cpu_work_us_mean: float | None = None


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """The stopping rule of a cell, which makes its intervals ``wider`` by that factor.

    Attributes:
        planned: completed requests at each interim analysis.
        reached: whether the rule ended the cell.
    """

    half_width: Annotated[float, msgspec.Meta(gt=0)]
    planned: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]
    wider: Annotated[float, msgspec.Meta(ge=1)]
    looks: tuple[Look, ...]
    reached: bool


class SaturationCriteria(msgspec.Struct, frozen=True, kw_only=True):
    """True: it fired; null: it could not be judged. Growth exists only in Phase A."""

    throughput: bool | None
    waiting: bool | None
    ttft_growth: bool | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def fired(self) -> tuple[Criterion, ...]:
        return tuple(name for name in get_args(Criterion) if getattr(self, name) is True)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that statistics leave out; those that they use are ``MeasuredCell``."""

    config: str
    phase: Phase
    cell_id: str
    rate_per_s: CellRate
    input_tokens: Count
    output_tokens: Count
    usable: bool
    verdict: Verdict
    reasons: tuple[Problem, ...]
    flags: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.config, self.phase, self.cell_id

    @property
    def recorded(self) -> bool:
        """False for a cell without the step recorder, which repeats another's load and is in no figure."""
        return not self.cell_id.endswith("_unrecorded")

    @property
    def shape(self) -> tuple[int, int]:
        return self.input_tokens, self.output_tokens


class MeasuredCell(Cell, frozen=True, kw_only=True):
    """A valid cell whose files could be read.

    Attributes:
        n_waiting: samples behind ``waiting_p50``.
        host: null if no sample has it.
        stopping: only if a rule ended the cell.
        cpu, health: as in ``cell.json``.
    """

    n_window: Count
    n_ok: Count
    n_dropped: Count
    n_failed: Count
    statuses: dict[Status, Count]
    window_s: float
    requested_throughput_per_s: float | None
    effective_throughput_per_s: float
    throughput_ratio: float | None
    waiting_p50: float | None
    n_waiting: Count
    running_p50: float | None
    n_metrics_missed: Count
    host: Host | None
    prefix_cache_hit_share: float | None
    cpu: CpuUse
    health: Health
    step: StepRecords
    stopping: Stopping | msgspec.UnsetType = msgspec.UNSET
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles
    ttft_from_send_ms: Percentiles
    saturation_criteria: SaturationCriteria
    saturated: bool

    def latency(self, name: Latency) -> Percentiles:
        found: Percentiles = getattr(self, name)
        return found

    @property
    def steps(self) -> Steps | None:
        return self.step if isinstance(self.step, Steps) else None

    @property
    def stopped(self) -> Stopping | None:
        return self.stopping or None

    @property
    def device_clock(self) -> ClockHealth | None:
        return self.health.device_clock or None


def cell_of(value: object) -> Cell:
    """Convert one entry of ``cells``; ``usable`` and the steps' ``available`` select the types.

    Raises:
        msgspec.ValidationError: of another form.
    """
    head = msgspec.convert(value, Cell)
    if not head.usable:
        return head
    cell = msgspec.convert(value, MeasuredCell)
    kind = Steps if cell.step.available else NoSteps
    step = msgspec.convert(value, _WithStep).step
    return msgspec.structs.replace(cell, step=msgspec.convert(step, kind))


class _WithStep(msgspec.Struct, frozen=True):
    step: Any
