"""``health`` of ``cell.json``: the client's proof of itself, and that of a virtual GPU's clock."""

from typing import TypedDict

from msgspec import UNSET, UnsetType

from connector_tax.base.records.bounds import Share, Span, Whole
from connector_tax.base.records.record import Record

# More of the device's time than this lost to waking up late, and the device was not the one that the profile describes.
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
        slack_us: from when the engine began to wait until the step was due: what the host could still have spent unnoticed. Below 0
            where the device waited for the host.
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
            f"{RAN_LATE}: results came {self.late_share:.1%} of the device's time after they were due "
            f"(p50 {self.lateness_us['p50']:.0f} us, p99 {self.lateness_us['p99']:.0f} us), {MAX_LATE_SHARE:.0%} is allowed; "
            "something else takes the cores, there are too few, or another thread of the engine core keeps Python's interpreter lock"
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
