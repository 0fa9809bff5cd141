"""``cell.json``, and ``config.json`` of the launch that measured it."""

from typing import Any, ClassVar, Literal, NotRequired, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from connector_tax.base.documents.identity import CodeVersion, EngineIdentity, check_limits
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import document_of
from connector_tax.base.records.bounds import (
    Attempt,
    Counter,
    Length,
    LengthOr0,
    RateOr0,
    Share,
    Span,
    TimeNs,
    Tokens,
    Whole,
    WholeTokens,
)
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.connector import LaunchSpec
from connector_tax.base.records.rates import Record

# accuracy.json: an engine's answers to a fixed set of prompts.


class Output(TypedDict):
    """The answer to one prompt: ``token_ids``; ``text`` if the server gives no ids; ``error`` on failure."""

    token_ids: NotRequired[list[int]]
    text: NotRequired[str]
    error: NotRequired[str]


class OutputsFile(Record, frozen=True, kw_only=True):
    """The accuracy pass of one run.

    Attributes:
        spec_hash: of launch and prompts; a pass is reused only if this is the plan's hash.
    """

    REMEDY: ClassVar[str] = "Remove it and start again to have the prompts asked once more."

    schema: Literal[1] = 1
    campaign: str
    connector: str
    spec_hash: str | UnsetType = UNSET
    outputs: list[Output]


# health in cell.json: checks of the client and of a virtual GPU's clock.

# Above this lost share of the device's time, by late wake-ups, the device was not the one in the profile.
MAX_LATE_SHARE = 0.02
# Beginning of the clock's fault.
RAN_LATE = "the virtual GPU's clock ran late"


class Lateness(TypedDict):
    p50: Span
    p99: Span
    max: Span


class Slack(TypedDict):
    p10: Span
    p50: Span


class ClockHealth(Record, frozen=True, kw_only=True):
    """A virtual GPU's clock over the steps launched in one window; microseconds, or shares.

    Attributes:
        lateness_us: from when a result was available, the later of due and requested, until the engine had
            it.
        late_share: the sum of the lateness over the device's time.
        device_busy_share: the device's time over the window's.
        slack_us: from the engine's wait until the step was due: host time that would have gone unnoticed.
            Negative if the device waited for the host.
    """

    steps: Whole
    lateness_us: Lateness
    late_share: Share
    device_busy_share: Share
    slack_us: Slack

    @property
    def fault(self) -> str | None:
        """Return why the cell is invalid for this device; None if the clock kept the time."""
        if self.late_share <= MAX_LATE_SHARE:
            return None
        return (
            f"{RAN_LATE}: results came {self.late_share:.1%} of the device's time after they were due (p50"
            f" {self.lateness_us['p50']:.0f} us, p99 {self.lateness_us['p99']:.0f} us), {MAX_LATE_SHARE:.0%}"
            " is allowed; something else takes the cores, there are too few, or another thread of the engine"
            " core keeps Python's interpreter lock"
        )


class SessionHealth(Record, frozen=True, kw_only=True):
    """The punctuality of turns in conversations.

    Attributes:
        early: turns sent before those they wait for had ended; must be 0.
        late: turns sent more than 5 s after they were ready.
        delay_us: percentiles of the delay of dependent turns from ready to sent.
    """

    sessions: int
    sessions_with_a_failure: int
    turns: int
    dependent_turns: int
    early: int
    late: int
    delay_us: dict[str, float]


class Health(Record, frozen=True, kw_only=True):
    """Figures about the client, with units in their names; ``run/loadgen/health.py`` defines them.

    Cells of earlier versions lack some of them, and rehearsed cells most.

    Attributes:
        virtual: the cell was rehearsed.
        bottleneck: why the client was the bottleneck; the cell is then invalid.
        device_clock: of a virtual GPU, whether its clock kept the time.
        stand_ins: replacements for parts of the device that the connector requires.
    """

    virtual: bool | UnsetType = UNSET
    dispatch_lateness_us: dict[str, float | None] | UnsetType = UNSET
    dispatch_rate_error: float | UnsetType | None = UNSET
    sent_early: int | UnsetType = UNSET
    send_to_schedule_difference: dict[str, float | None] | UnsetType = UNSET
    client_limited: bool | UnsetType = UNSET
    whole_answer_share: float | UnsetType | None = UNSET
    workers: int | UnsetType = UNSET
    worker_cpu_share: tuple[float, ...] | UnsetType = UNSET
    client_cpu_s: float | UnsetType = UNSET
    worker_rss_mib: tuple[float, ...] | UnsetType = UNSET
    loop_stalls: dict[str, int] | UnsetType = UNSET
    loop_stall_max_us: float | UnsetType = UNSET
    client_stalled: bool | UnsetType = UNSET
    max_inflight: int | UnsetType = UNSET
    resends: int | UnsetType = UNSET
    statuses: dict[str, int] | UnsetType = UNSET
    requests_without_socket: int | UnsetType = UNSET
    aborted: str | UnsetType | None = UNSET
    given_up: str | UnsetType | None = UNSET
    cores_shared: str | UnsetType | None = UNSET
    sessions: SessionHealth | UnsetType = UNSET
    bottleneck: tuple[str, ...] | UnsetType = UNSET
    device_clock: ClockHealth | UnsetType = UNSET
    stand_ins: tuple[str, ...] | UnsetType = UNSET


VerdictWord = Literal["valid", "invalid"]


class FileEntry(Record, frozen=True, kw_only=True):
    """A file beside the document."""

    bytes: int | UnsetType = UNSET
    sha256: str


class ClockPair(Record, frozen=True, kw_only=True):
    """One moment by both clocks, which gives a reader wall time."""

    monotonic_ns: TimeNs
    utc_ns: TimeNs


class Cache(Record, frozen=True, kw_only=True):
    """The prefix cache at the start of a cell of Phase D.

    Attributes:
        wanted_tokens: the wanted level.
        primed_tokens, prompts, longest_prompt, primed_s: prompts sent to reach it; all but the last have the
            greatest length.
        failed: why priming ended early; None if it did not.
        computed_tokens: by the engine since its launch; None if it does not count them.
        counters: the engine's, at the start of the cell.
    """

    wanted_tokens: float | UnsetType = UNSET
    primed_tokens: WholeTokens | UnsetType | None = UNSET
    prompts: WholeTokens | UnsetType | None = UNSET
    longest_prompt: WholeTokens | UnsetType | None = UNSET
    primed_s: float | UnsetType = UNSET
    failed: str | UnsetType | None = UNSET
    computed_tokens: Tokens | UnsetType | None = UNSET
    block_size: Length | UnsetType | None = UNSET
    kv_blocks: Tokens | UnsetType | None = UNSET
    counters: dict[str, Counter] | UnsetType | None = UNSET


class StepTotals(Record, frozen=True, kw_only=True):
    """Recorded steps of the cell; see ``base/steptime/share.py``.

    Attributes:
        iterations: by the engine's own count; None without one.
    """

    decoding: int
    with_tokens: int
    of_workers: int = 0
    iterations: float | None = None


Percentiles = dict[str, float | None]


class CellSummary(Record, frozen=True, kw_only=True):
    """Counts, throughput and percentiles of one cell; also part of ``summary.json``.

    Attributes:
        n_window: requests scheduled in the window, of ``n_scheduled`` in all; ``n_ok`` and ``statuses`` count
            these.
        requested_throughput_per_s: None if requests have no rate.
        ttft_ms, tpot_ms, e2e_ms: percentiles from the intended send, None if unavailable; ``from_send``: from
            the actual send.
    """

    rate_per_s: RateOr0
    input_tokens: LengthOr0
    output_tokens: LengthOr0
    window_s: float
    n_scheduled: int
    n_window: int
    n_ok: int
    statuses: dict[str, int]
    requested_throughput_per_s: float | None
    effective_throughput_per_s: float
    throughput_ratio: float | None
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles
    ttft_from_send_ms: Percentiles | UnsetType = UNSET
    e2e_from_send_ms: Percentiles | UnsetType = UNSET


class SummaryFile(Record, frozen=True, kw_only=True):
    """``summary.json`` of a run: its cells by id."""

    REMEDY: ClassVar[str] = "Start again to have it written from the cells."

    cells: dict[str, CellSummary]


class Spinning(Record, frozen=True, kw_only=True):
    """A thread that takes much of a core while the engine is idle.

    Attributes:
        thread: the kernel's name for it.
        share: of one core.
    """

    process: str
    thread: str
    share: float


class IdleUse(Record, frozen=True, kw_only=True):
    """The engine's CPU use without requests.

    Attributes:
        idle_share: by process, of one core.
    """

    idle_share: dict[str, float] | UnsetType = UNSET
    spinning: tuple[Spinning, ...] | UnsetType = UNSET


class CpuUse(Record, frozen=True, kw_only=True):
    """The engine's use of the host; ``idle_share`` and ``spinning`` as in ``IdleUse``.

    Attributes:
        loaded_s: CPU seconds by process during the cell, over ``elapsed_s`` of wall time.
        others_share: of all cores' time, the part of neither engine nor client; None if unknown.
        rss_mib: resident memory by process, after the cell.
    """

    loaded_s: dict[str, float] | UnsetType = UNSET
    others_share: float | UnsetType | None = UNSET
    elapsed_s: float | UnsetType = UNSET
    idle_share: dict[str, float] | UnsetType = UNSET
    spinning: tuple[Spinning, ...] | UnsetType = UNSET
    rss_mib: dict[str, float] | UnsetType = UNSET


class About(Record, frozen=True, kw_only=True):
    """Plan, engine and code of a launch, in each of its cells.

    Attributes:
        launch: None or ``UNSET`` in cells from before launches were described.
        attempt: number of the launch in this run, from 1.
        spec_hash: of launch and load; a cell is reused only if this is the plan's hash.
    """

    campaign: str
    connector: str
    phase: str
    launch: LaunchSpec | UnsetType | None = UNSET
    engine: EngineIdentity
    code: CodeVersion
    attempt: Attempt | UnsetType | None = UNSET
    spec_hash: str | UnsetType = UNSET

    @property
    def kv_transfer_config(self) -> object:
        """The launched config; None for plain, and if the cell does not say."""
        found = self.launch.kv_transfer_config if self.launch else None
        return None if found is UNSET else found


class RunConfig(About, frozen=True, kw_only=True):
    """``config.json`` of a run: the purpose of its launch."""

    REMEDY: ClassVar[str] = "Start again to have the launch write it."

    cells: tuple[CellSpec, ...] = ()

    def to_json(self) -> Any:
        return {**msgspec.to_builtins(self), "cells": [spec.to_json() for spec in self.cells]}


class CellDocument(About, frozen=True, kw_only=True):
    """``cell.json`` of a finished cell.

    Attributes:
        health, cpu: as far as the writing version knew.
        reasons: why it is invalid; none if it is valid.
        prefix_cache_hits_delta, external_prefix_cache_hits_delta: tokens; None if the engine does not export
            the counter.
        counters_delta: increase of each counter that the connector moves, from before the cell to after its
            drain; unreadable ones are missing. ``UNSET`` without a connector, and in cells from before these
            were read.
        steps: None if no step records were wanted.
        files: name -> a file beside the document.
        left_out_streams: files that a published campaign no longer has.
    """

    REMEDY: ClassVar[str] = "Remove the cell to measure it again."

    schema: Literal[1] = 1
    cell_id: str
    spec: CellSpec
    window: CellWindow
    clock: ClockPair
    health: Health
    verdict: VerdictWord
    reasons: tuple[str, ...]
    flags: tuple[str, ...]
    cache: Cache | UnsetType | None = UNSET
    prefix_cache_hits_delta: Counter | UnsetType | None = UNSET
    external_prefix_cache_hits_delta: Counter | UnsetType | None = UNSET
    counters_delta: dict[str, Counter] | UnsetType = UNSET
    steps: StepTotals | UnsetType | None = UNSET
    cpu: CpuUse
    summary: CellSummary | UnsetType = UNSET
    files: dict[str, FileEntry] = msgspec.field(default_factory=dict)
    left_out_streams: tuple[str, ...] | UnsetType | None = UNSET

    @property
    def steps_left_out(self) -> bool:
        """True if publishing removed its step records; a cell that never had any does not count."""
        return any(name.startswith("engine_step") for name in self.left_out_streams or ())

    def to_json(self) -> Any:
        """Omit the parameters that this load lacks, as ``spec_hash`` does."""
        value = msgspec.to_builtins(self)
        return {"schema": self.schema, **value, "spec": self.spec.to_json(), "window": self.window.to_json()}


def cell_of(value: Any, where: str) -> CellDocument:
    """Convert a parsed ``cell.json``, whoever wrote it.

    Raises:
        ArtifactError: of an unknown version or another form, a limit in the engine's settings is no number,
            or its load has a parameter that this version does not know.
    """
    found = document_of(value, CellDocument, where)
    if "files" not in value:
        raise ArtifactError(f"{where}: Object missing required field `files`. {CellDocument.REMEDY}")
    check_limits(found.engine.settings or {}, f"{where}: engine.settings", CellDocument.REMEDY)
    if strange := sorted(value["spec"].keys() - set(CellSpec.__slots__)):
        raise ArtifactError(
            f"{where}: spec.{strange[0]}: this version knows no such parameter of a load. Use the version"
            " that wrote it."
        )
    return found
