"""``summary.json`` of ``connector-tax load``: what each cell found, with intervals."""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from connector_tax.base.documents.cell import Health
from connector_tax.base.records.cell import CellSpec, CellWindow

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


class RequestLimit(msgspec.Struct, frozen=True):
    """A request is good if its latency is at most this; ``metric`` is one of ttft, tpot, e2e."""

    metric: str
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric} <= {self.limit_ms:g} ms"


class Level(msgspec.Struct, frozen=True):
    """A number with the ends of its 95 % interval.

    Attributes:
        point: None where it is unavailable.
        low, high: None where an end is not known.
        n: observations behind it: requests, of ITL the gaps between their reads.
        reason: why there is no number, or no interval.
    """

    point: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str | None = None


class Goodput(msgspec.Struct, frozen=True):
    """Requests that met every limit.

    Attributes:
        per_s: good completions per second, counted as ``throughput`` is.
        share: of the requests scheduled in the window.
    """

    limits: tuple[RequestLimit, ...]
    per_s: float
    share: Level


class Throughput(msgspec.Struct, frozen=True):
    """What was completed, per second.

    Attributes:
        over_s: what it was divided by. Of a cell that ends by time the window, in which completions are
            counted whenever they were sent; of a fixed number of requests the time from the window's start
            until the last one had ended, well or not, or until the cell was cut.
    """

    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    over_s: float


class Demand(msgspec.Struct, frozen=True):
    """What an open loop asked of the server in its window, and what it got; not what its nominal rate would
    have been.

    It is counted from when the server is as full as it gets: where the warm-up was shorter than an answer
    takes, that is later than the window's start, at most in its middle. Of a ramp all of the window counts.

    Attributes:
        unit: what arrives by the schedule: ``requests`` or ``sessions``.
        arrived: so many of them did.
        due: requests that came due; of sessions the later turns as well.
        done: requests that completed in the window, whenever they were due.
        in_flight: requests under way when counting began, and at the window's end.
        over_s: the time in between.
        fills_s: for so long after T0 the number in flight grew, where that was beyond the window's middle:
            what was left over then may only be on its way. Unset elsewhere.
    """

    unit: str
    arrived: int
    due: int
    done: int
    in_flight: tuple[int, int]
    over_s: float
    fills_s: float | UnsetType = UNSET

    @property
    def due_per_s(self) -> float:
        return self.due / self.over_s if self.over_s else 0.0

    @property
    def done_per_s(self) -> float:
        return self.done / self.over_s if self.over_s else 0.0


class Cut(msgspec.Struct, frozen=True):
    """A fixed number of requests of which not all were sent.

    Attributes:
        sent, planned: requests; turns of sessions.
        why: which limit ended the cell.
    """

    sent: int
    planned: int
    why: str


class LoadCell(msgspec.Struct, frozen=True):
    """One cell.

    Attributes:
        requests: counts of the window: scheduled, and how they ended.
        n_scheduled: requests of the whole cell: of a fixed number all that were planned, otherwise those that
            came due until it stopped.
        rate_per_s: what was asked for; None for loads that have no rate.
        latencies: TTFT, TPOT, ITL and E2E in milliseconds, each by percentile (``p90``), over the requests
            scheduled in the window.
        prompt_tokens_mean, output_tokens_mean: of the completed ones, as the server counted them.
        prefix_cache: what the server's own counters say of it; None where it tells nothing.
        not_believed: why the client was the bottleneck, or the cell is not what it was planned to be.
        demand: of an open loop; None for others.
        cut: of a fixed number that was not sent in whole; None for others.
        first_failure: how the first request failed that did; None where none did.
        remarks: what else is to be known of the cell, in words.
        failed: share of the window's requests that did not end well; unset in files of earlier versions.
    """

    cell_id: str
    spec: CellSpec
    requests: dict[str, int]
    n_scheduled: int
    rate_per_s: float | None
    throughput: Throughput
    latencies: dict[str, dict[str, Level]]
    goodput: Goodput | None
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None
    prefix_cache: dict[str, float | None] | None
    flags: tuple[str, ...]
    not_believed: tuple[str, ...]
    health: Health
    window: CellWindow
    demand: Demand | None = None
    cut: Cut | None = None
    first_failure: str | None = None
    remarks: tuple[str, ...] = ()
    failed: Level | UnsetType = UNSET


class Judged(msgspec.Struct, frozen=True):
    """One rate.

    Attributes:
        holds: every limit, by the numbers themselves, and the rate was served.
        sure: no interval of a number reaches across its limit; of so many requests chance alone would not
            turn the answer round.
        why: what failed, or came close.
        capped: it failed while the client dropped arrivals at its own cap, with which a server that takes
            long fails as well; unset elsewhere.
    """

    rate_per_s: float
    holds: bool
    sure: bool
    why: tuple[str, ...]
    capped: bool | UnsetType = UNSET


class Found(msgspec.Struct, frozen=True):
    """What a search came to.

    Attributes:
        highest_per_s: the highest rate measured that holds; None where the lowest one failed.
        fails_per_s: the lowest rate measured that fails; None where the highest one held.
        monotonic: True: no rate is measured above one that failed.
        stopped: why the search ended before it was as precise as asked; None where it was not.
        unit: of the rates.
    """

    highest_per_s: float | None
    fails_per_s: float | None
    monotonic: bool
    judged: tuple[Judged, ...]
    stopped: str | None = None
    unit: str = "requests/s"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """``summary.json``.

    Attributes:
        search: what ``--find-rate`` came to; None without.
    """

    REMEDY: ClassVar[str] = "Load the server again, or use the version that wrote it."

    schema: Literal[1] = 1
    version: str
    started_utc: str
    base_url: str
    model: str
    api: str
    nonce: int
    workers: int
    cells: tuple[LoadCell, ...]
    search: Found | None = None

    def to_json(self) -> Any:
        """Without the parameters that a cell's load pattern does not have."""
        value = msgspec.to_builtins(self)
        for cell, row in zip(self.cells, value["cells"], strict=True):
            row |= {"spec": cell.spec.to_json(), "window": cell.window.to_json()}
        return value
