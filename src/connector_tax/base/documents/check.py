"""``connector-tax check --json``: what a check measured and what it says of it."""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from connector_tax.base.documents.health import Slack
from connector_tax.base.documents.identity import Versions
from connector_tax.base.records.bounds import Fact, Foreign
from connector_tax.base.records.gpu import HostCosts, StepCosts


class Estimated(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number with its interval.

    Attributes:
        point: None where it is unavailable; ``reason`` then says why.
        low, high: None where an end is not known.
        n: observations behind it.
        reason: absent where number and interval are known.
    """

    point: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None = None


class Connector(msgspec.Struct, frozen=True):
    """What was checked; ``notes`` are what was changed of it for a host without a GPU."""

    id: str
    label: str
    kv_transfer_config: Foreign
    notes: tuple[str, ...]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The virtual GPU, as the engine's identity has it; empty where no cell was measured."""

    profile: str | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    schema: int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    compute_capability: tuple[int, int] | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    kv_cache_bytes: int | UnsetType = UNSET
    host_link_bytes_per_s: int | UnsetType = UNSET
    step: StepCosts | UnsetType = UNSET
    host: HostCosts | UnsetType = UNSET


class Load(msgspec.Struct, frozen=True):
    """What was sent.

    Attributes:
        lowered_for_the_host: the rates are less than the shares of the device that were asked for, since the host holds no more.
        blocks: of launches.
    """

    rates_per_s: tuple[float, ...]
    lowered_for_the_host: bool
    input_tokens: int
    output_tokens: int
    blocks: int


class Died(msgspec.Struct, frozen=True):
    """An engine that died in a cell of the check, whatever became of the cell; ``cause`` is the root cause."""

    config: str
    phase: str
    cell_id: str
    cause: str


class Answered(msgspec.Struct, frozen=True):
    """Requests of the connector's cells."""

    answered: int
    sent: int


class Switched(msgspec.Struct, frozen=True):
    """One engine setting that is not plain's.

    Attributes:
        plain, own: its values, which are vLLM's.
        reasons: lines of the connector's log about it that plain's log does not have; none where vLLM does not say why.
    """

    setting: str
    plain: Any
    own: Any
    reasons: tuple[str, ...]


class Milliseconds(msgspec.Struct, frozen=True):
    """A latency of each launch; None where it is unavailable."""

    plain: float | None
    plain_again: float | None
    connector: float | None


class TaxRow(msgspec.Struct, frozen=True):
    """One latency at one load; ``check/load_tax.py`` says what the shares and ratios are of.

    Attributes:
        tax: connector / plain - 1.
        plain_against_itself: plain again / plain - 1.
        clock_late: by how much longer the latency may be beside the connector since the virtual GPU's clock ran later.
    """

    rate_per_s: float
    metric: str
    ms: Milliseconds
    tax: Estimated
    plain_against_itself: Estimated
    host_work: float | None
    host_share: float
    host_whole: float
    clock_late: float


class BlockTax(msgspec.Struct, frozen=True):
    """A tax over blocks of launches, as in ``repeats`` of ``aggregate.json``; ``floor`` is what plain differs from itself by."""

    rate_per_s: float
    metric: str
    blocks: int
    point: float
    low: float
    high: float
    floor: float


class Judged(msgspec.Struct, frozen=True):
    """One tax that decides.

    Attributes:
        rates_per_s: the loads that it is over; one where it is over blocks of launches.
        low, high: of an interval that holds what launches differ by, as far as the check knows it; None where it is open.
        kind: ``of one launch``, or over how many blocks.
    """

    mode: str
    rates_per_s: tuple[float, ...]
    metric: str
    point: float
    low: float | None
    high: float | None
    kind: str

    @property
    def told_apart(self) -> bool:
        return self.low is not None and self.low > 0


class ProcessUse(msgspec.Struct, frozen=True):
    """One process of an engine at the middle load: cores, cores while nobody asks, resident memory; None where it is not known."""

    cores: float | None
    idle_cores: float | None
    mib: float | None


class HookCostRow(msgspec.Struct, frozen=True):
    """One hook in the cell of the middle load.

    Attributes:
        us_per_call, cpu_us_per_step: None where it was never called, or where no step measured CPU time.
    """

    hook: str
    us_per_step: Estimated
    p99_us: float
    calls_per_step: float
    us_per_call: float | None
    cpu_us_per_step: float | None


class Mode(msgspec.Struct, frozen=True):
    """One way of scheduling.

    Attributes:
        failure: why the connector was not measured; None where it was.
        cells_lost: cells that do not count, with the reasons; ``cells_late`` count although their clock ran late.
        stand_ins: what takes the place of parts of the device that the connector asks for.
        noise_floor, noise_floor_over_loads: by latency, what plain differs from itself by; None where that is not known.
        judged: taxes that decide.
        processes: configuration -> process.
        spinning: threads that do not sleep while nobody asks.
        slack_us: configuration -> load -> percentiles of the time that the host has left in a step.
    """

    serves: bool
    failure: str | None
    deaths: tuple[Died, ...]
    requests: Answered
    cells_lost: tuple[str, ...]
    cells_late: tuple[str, ...]
    stand_ins: tuple[str, ...]
    engine_settings: tuple[Switched, ...]
    taxes: tuple[TaxRow, ...]
    taxes_over_blocks: tuple[BlockTax, ...]
    noise_floor: dict[str, float | None]
    noise_floor_over_loads: dict[str, float | None]
    judged: tuple[Judged, ...]
    processes: dict[str, dict[str, ProcessUse]]
    spinning: tuple[str, ...]
    slack_us: dict[str, dict[str, Slack]]
    hooks: tuple[HookCostRow, ...]


class HookGrowthRow(msgspec.Struct, frozen=True):
    """How one hook grows: microseconds of a step for each further one.

    Attributes:
        n: steps.
        range: from the least to the most of each load over the steps.
    """

    hook: str
    n: int
    range: dict[str, float]
    per_running_request: Estimated
    per_cached_block: Estimated
    per_1000_prefix_blocks: Estimated
    per_new_block: Estimated
    per_new_request: Estimated
    per_layer: Estimated


class Growth(msgspec.Struct, frozen=True):
    """``lost`` are the cells that it lacks, with the reasons."""

    hooks: tuple[HookGrowthRow, ...]
    lost: tuple[str, ...]


class HookTimesRow(msgspec.Struct, frozen=True):
    """Microseconds of a step; ``wait_us`` is wall less CPU."""

    wall_us: Estimated
    cpu_us: Estimated
    wait_us: Estimated


class MeasuredRow(msgspec.Struct, frozen=True):
    """One cell of one engine in the experiments.

    Attributes:
        missing: why it says nothing; None where it does.
        threads: those that were rearranged.
        slack_us: median; None where there is no clock, as ``clock_late_share``.
    """

    missing: str | None
    threads: tuple[str, ...]
    latency: dict[str, Estimated]
    slack_us: float | None
    clock_late_share: float | None
    hooks: dict[str, HookTimesRow]


class Conclusion(msgspec.Struct, frozen=True):
    """
    Attributes:
        subject: a hook, or the name of a tax.
        before: what it is with nothing changed, a sentence.
        change: what was changed, a key of ``check.conclusions.CAUSES``.
        words: what became of it, one or more sentences.
    """

    subject: str
    before: str
    change: str
    outcome: str
    words: str


class Experiments(msgspec.Struct, frozen=True):
    """What ``--confirm`` measured, by change; ``words`` are the conclusions in sentences."""

    mode: str
    rate_per_s: float
    noise_floor: dict[str, float | None]
    taxes: dict[str, dict[str, Estimated]]
    plain: dict[str, MeasuredRow]
    connector: dict[str, MeasuredRow]
    conclusions: tuple[Conclusion, ...]
    words: tuple[str, ...]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The whole.

    Attributes:
        fail_above: as a ratio; None: no tax is too large.
        deciding: the latencies that the verdict goes by.
        engine: versions by package.
        modes: by way of scheduling.
        growth, experiments: None where they were not asked for.
    """

    REMEDY: ClassVar[str] = "Check the connector again."

    schema: Literal[1] = 1
    verdict: str
    exit_code: int
    fail_above: float | None
    deciding: tuple[str, ...]
    confidence: float
    elapsed_s: float
    connector: Connector
    model: str
    device: Device
    engine: Versions
    host: dict[str, Fact]
    load: Load
    modes: dict[str, Mode]
    growth: Growth | None
    experiments: Experiments | None
