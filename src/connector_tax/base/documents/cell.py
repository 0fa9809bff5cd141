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
from connector_tax.base.records.launch import LaunchSpec
from connector_tax.base.records.rates import Record

# accuracy.json: what an engine answered to a fixed set of prompts.


class Output(TypedDict):
    """The answer to one prompt: ``token_ids``; ``text`` where the server gives no ids; ``error`` where it
    failed."""

    token_ids: NotRequired[list[int]]
    text: NotRequired[str]
    error: NotRequired[str]


class OutputsFile(Record, frozen=True, kw_only=True):
    """The accuracy pass of one run.

    Attributes:
        spec_hash: of launch and prompts; a pass is used again only if its hash is the plan's.
    """

    REMEDY: ClassVar[str] = "Remove it and start again to have the prompts asked once more."

    schema: Literal[1] = 1
    campaign: str
    connector: str
    spec_hash: str | UnsetType = UNSET
    outputs: list[Output]


# health of cell.json: the client's proof of itself, and that of a virtual GPU's clock.

# More of the device's time than this lost to waking up late, and the device was not the one that the profile
# describes.
MAX_LATE_SHARE = 0.02
# What its fault begins with.
RAN_LATE = "the virtual GPU's clock ran late"


class Lateness(TypedDict):
    p50: Span
    p99: Span
    max: Span


class Slack(TypedDict):
    p10: Span
    p50: Span


class ClockHealth(Record, frozen=True, kw_only=True):
    """A virtual GPU's clock in one window. Over the steps that were launched in it; microseconds, or a share.

    Attributes:
        lateness_us: from when a result could be had, the later of due and asked, until the engine had it.
        late_share: the sum of that over the device's time.
        device_busy_share: the device's time over the window's.
        slack_us: from when the engine began to wait until the step was due: what the host could still have
            spent unnoticed. Below 0 where the device waited for the host.
    """

    steps: Whole
    lateness_us: Lateness
    late_share: Share
    device_busy_share: Share
    slack_us: Slack

    @property
    def fault(self) -> str | None:
        """Why the cell is not one of this device; None where the clock kept the time."""
        if self.late_share <= MAX_LATE_SHARE:
            return None
        return (
            f"{RAN_LATE}: results came {self.late_share:.1%} of the device's time after they were due (p50"
            f" {self.lateness_us['p50']:.0f} us, p99 {self.lateness_us['p99']:.0f} us), {MAX_LATE_SHARE:.0%}"
            " is allowed; something else takes the cores, there are too few, or another thread of the engine"
            " core keeps Python's interpreter lock"
        )


class SessionHealth(Record, frozen=True, kw_only=True):
    """Were the turns of conversations sent when they should have been?

    Attributes:
        early: turns sent before what they wait for was over: it has to be 0.
        late: turns sent more than 5 s after they were ready.
        delay_us: percentiles of the delay of dependent turns behind their being ready.
    """

    sessions: int
    sessions_with_a_failure: int
    turns: int
    dependent_turns: int
    early: int
    late: int
    delay_us: dict[str, float]


class Health(Record, frozen=True, kw_only=True):
    """Figures about the client, units in the names; ``run/loadgen/health.py`` says how each comes about.

    A cell of an earlier version lacks some of them, and a rehearsed one most.

    Attributes:
        virtual: the cell was rehearsed.
        bottleneck: why the client was the bottleneck; the cell is invalid then.
        device_clock: of a virtual GPU, whether its clock kept the time.
        stand_ins: what stood in for parts of the device that the connector asks for.
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
    """One moment by both clocks, from which a reader gets wall time back."""

    monotonic_ns: TimeNs
    utc_ns: TimeNs


class Cache(Record, frozen=True, kw_only=True):
    """What lay in the prefix cache when a cell of Phase D began.

    Attributes:
        wanted_tokens: the level that was asked for.
        primed_tokens, prompts, longest_prompt, primed_s: what was sent to reach it; all prompts but the last
            are of the longest.
        failed: why priming ended early; None where it did not.
        computed_tokens: by the engine since its launch; None where it does not count them.
        counters: the engine's, as they were when the cell began.
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
        iterations: by the engine's own count; None where it has none.
    """

    decoding: int
    with_tokens: int
    of_workers: int = 0
    iterations: float | None = None


Percentiles = dict[str, float | None]


class CellSummary(Record, frozen=True, kw_only=True):
    """Counts, throughput and percentiles of one cell; part of ``summary.json`` as well.

    Attributes:
        n_window: requests scheduled in the window, of ``n_scheduled`` in all; ``n_ok`` and ``statuses`` are
            of those.
        requested_throughput_per_s: None where requests have no rate.
        ttft_ms, tpot_ms, e2e_ms: percentiles from the intended send, None where they are unavailable;
            ``from_send``: from the actual.
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
        thread: as the kernel names it.
        share: of one core.
    """

    process: str
    thread: str
    share: float


class IdleUse(Record, frozen=True, kw_only=True):
    """What the engine takes with no request in sight.

    Attributes:
        idle_share: by process, of one core.
    """

    idle_share: dict[str, float] | UnsetType = UNSET
    spinning: tuple[Spinning, ...] | UnsetType = UNSET


class CpuUse(Record, frozen=True, kw_only=True):
    """What the engine's processes took of the host; ``idle_share`` and ``spinning`` are those of ``IdleUse``.

    Attributes:
        loaded_s: CPU seconds by process while the cell ran, ``elapsed_s`` of wall time.
        others_share: of all cores' time, what neither engine nor client took; None where that is not known.
        rss_mib: resident memory by process, behind the cell.
    """

    loaded_s: dict[str, float] | UnsetType = UNSET
    others_share: float | UnsetType | None = UNSET
    elapsed_s: float | UnsetType = UNSET
    idle_share: dict[str, float] | UnsetType = UNSET
    spinning: tuple[Spinning, ...] | UnsetType = UNSET
    rss_mib: dict[str, float] | UnsetType = UNSET


class About(Record, frozen=True, kw_only=True):
    """What each cell of a launch says of plan, engine and code.

    Attributes:
        launch: None or ``UNSET`` in cells of before launches were described.
        attempt: which launch of this run it was, from 1.
        spec_hash: of launch and load; a cell is used again only if its hash is the plan's.
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
        """As it was launched; None for plain, and where the cell does not say."""
        found = self.launch.kv_transfer_config if self.launch else None
        return None if found is UNSET else found


class RunConfig(About, frozen=True, kw_only=True):
    """``config.json`` of a run: what its launch was made for."""

    REMEDY: ClassVar[str] = "Start again to have the launch write it."

    cells: tuple[CellSpec, ...] = ()

    def to_json(self) -> Any:
        return {**msgspec.to_builtins(self), "cells": [spec.to_json() for spec in self.cells]}


class CellDocument(About, frozen=True, kw_only=True):
    """``cell.json`` of a finished cell.

    Attributes:
        health, cpu: as far as the version that wrote it knew.
        reasons: why it is invalid; none where it is valid.
        prefix_cache_hits_delta, external_prefix_cache_hits_delta: tokens; None where the engine does not
            export the counter.
        counters_delta: by how much each counter that the connector moves rose, from before the cell to after
            its drain; those that could not be read are missing. ``UNSET`` without a connector, and in cells
            of before anybody looked.
        steps: None where no step records were wanted.
        files: name -> what lies beside the document.
        left_out_streams: of a published campaign, files that it had and has not any more.
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
        """Whether it had step records that were left out when the campaign was published; a cell that never
        had any lacks them all the same."""
        return any(name.startswith("engine_step") for name in self.left_out_streams or ())

    def to_json(self) -> Any:
        """Without the parameters that this load does not have, as ``spec_hash`` is made of them."""
        value = msgspec.to_builtins(self)
        return {"schema": self.schema, **value, "spec": self.spec.to_json(), "window": self.window.to_json()}


def cell_of(value: Any, where: str) -> CellDocument:
    """``cell.json``, parsed, of whoever wrote it.

    Raises:
        ArtifactError: of an unknown version or another form, a limit in the engine's settings is no number,
            or loaded with a parameter that this version does not know.
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
