"""``summary.json`` of ``connector-tax load``: the results of each cell, with intervals."""

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
    """A number with its 95 % interval.

    Attributes:
        point: None if unavailable.
        low, high: None if unknown.
        n: observations: requests, for ITL the gaps between reads.
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
    """Completions per second.

    Attributes:
        over_s: the divisor. For a cell that ends by time, the window, in which completions count whenever
            they were sent. For a fixed number of requests, the time from the window's start until the last
            one had ended, well or not, or until the cell was cut.
    """

    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    over_s: float


class Demand(msgspec.Struct, frozen=True):
    """The load that an open loop offered in its window, and what was served; not its nominal rate.

    Counting starts when the server is as full as it gets: if the warm-up was shorter than an answer takes,
    after the window's start, but at most in its middle. For a ramp the whole window counts.

    Attributes:
        unit: what the schedule counts: ``requests`` or ``sessions``.
        arrived: arrivals of that unit.
        due: requests that came due, including later turns of sessions.
        done: requests that completed in the window, whenever they were due.
        in_flight: requests in flight when counting began, and at the window's end.
        over_s: the time in between.
        fills_s: time after T0 in which the number in flight grew, if that ends after the window's middle:
            requests left over then may only be on their way. Unset elsewhere.
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
        why: the limit that ended the cell.
    """

    sent: int
    planned: int
    why: str


class LoadCell(msgspec.Struct, frozen=True):
    """One cell.

    Attributes:
        requests: counts in the window: scheduled, and by outcome.
        n_scheduled: requests of the whole cell: all planned ones of a fixed number, else those that came due
            until it stopped.
        rate_per_s: the requested rate; None for loads without one.
        latencies: TTFT, TPOT, ITL and E2E in milliseconds, each by percentile (``p90``), over the requests
            scheduled in the window.
        prompt_tokens_mean, output_tokens_mean: of the completed ones, by the server's count.
        prefix_cache: from the server's own counters; None without any.
        not_believed: why the client was the bottleneck, or the cell is not as planned.
        demand: for an open loop; None for others.
        cut: if a fixed number was not sent in full; None for others.
        first_failure: how the first failed request failed; None without one.
        remarks: further remarks, in words.
        failed: share of the window's requests that failed; unset in files of earlier versions.
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
    """The verdict on one rate.

    Attributes:
        holds: the numbers meet every limit, and the rate was served.
        sure: no interval reaches across its limit, so chance alone would not reverse the verdict.
        why: what failed, or came close.
        capped: it failed while the client dropped arrivals at its own cap, with which a slow server fails as
            well; unset elsewhere.
    """

    rate_per_s: float
    holds: bool
    sure: bool
    why: tuple[str, ...]
    capped: bool | UnsetType = UNSET


class Found(msgspec.Struct, frozen=True):
    """The result of a search.

    Attributes:
        highest_per_s: the highest measured rate that holds; None if the lowest one failed.
        fails_per_s: the lowest measured rate that fails; None if the highest one held.
        monotonic: True: no rate is measured above one that failed.
        stopped: why the search ended before the wanted precision; None if it reached it.
        unit: of the rates.
    """

    highest_per_s: float | None
    fails_per_s: float | None
    monotonic: bool
    judged: tuple[Judged, ...]
    stopped: str | None = None
    unit: str = "requests/s"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``summary.json``.

    Attributes:
        search: the result of ``--find-rate``; None without it.
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
        """Omit the parameters that a cell's load pattern lacks."""
        value = msgspec.to_builtins(self)
        for cell, row in zip(self.cells, value["cells"], strict=True):
            row |= {"spec": cell.spec.to_json(), "window": cell.window.to_json()}
        return value
