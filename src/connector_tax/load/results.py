"""What a cell of ``connector-tax load`` found, with intervals; the document that ``summary.json`` holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import Estimate, block_length, estimate_percentiles
from connector_tax.base.statistics.cell import effective_throughput_per_s, in_window, latencies_ms
from connector_tax.base.statistics.gaps import gap_percentiles
from connector_tax.base.statistics.resampling import Floats
from connector_tax.load.slo import RequestLimit
from connector_tax.run.loadgen.cell import CellOutcome

SCHEMA = 1
CONFIDENCE = 0.95
DRAWS = 2000
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
# Why a percentile has no interval.
ONE_BATCH = "requests of one offline batch wait for one another: the batch is one observation"
CHANGES = "the rate changes while the cell lasts: its requests are of no one load"


class Level(msgspec.Struct, frozen=True):
    """A number with the ends of its 95 % interval.

    Attributes:
        point: None where it is unavailable.
        low, high: None where an end is not known.
        n: observations behind it: requests, of ITL the gaps between their tokens.
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
        over_s: what it was divided by. Of a cell that ends by time the window, in which completions are counted whenever they
            were sent; of a fixed number of requests the time from the window's start to the last answer.
    """

    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    over_s: float


class LoadCell(msgspec.Struct, frozen=True):
    """One cell.

    Attributes:
        requests: counts of the window: scheduled, and how they ended.
        rate_per_s: what was asked for; None for loads that have no rate.
        latencies: TTFT, TPOT, ITL and E2E in milliseconds, each by percentile (``p90``), over the requests scheduled in the window.
        prompt_tokens_mean, output_tokens_mean: of the completed ones, as the server counted them.
        prefix_cache: what the server's own counters say of it; None where it tells nothing.
        not_believed: why the client was the bottleneck, or the cell is not what it was planned to be.
    """

    cell_id: str
    spec: dict[str, Any]
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
    health: dict[str, Any]
    window: dict[str, Any]


class Judged(msgspec.Struct, frozen=True):
    """One rate.

    Attributes:
        holds: every limit, by the numbers themselves, and the rate was served.
        sure: no interval of a number reaches across its limit; of so many requests chance alone would not turn the answer round.
        why: what failed, or came close.
    """

    rate_per_s: float
    holds: bool
    sure: bool
    why: tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    """What a search came to.

    Attributes:
        highest_per_s: the highest rate measured that holds, with none below it that fails; None where the lowest one failed.
        fails_per_s: the lowest rate measured that fails; None where the highest one held.
        monotonic: False where a rate held above one that failed: such a border is no more than a guess.
        stopped: why the search ended before it was as precise as asked; None where it was not.
    """

    highest_per_s: float | None
    fails_per_s: float | None
    monotonic: bool
    judged: tuple[Judged, ...]
    stopped: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """``summary.json``.

    Attributes:
        search: what ``--find-rate`` came to; None without.
    """

    schema: int
    version: str
    started_utc: str
    base_url: str
    model: str
    api: str
    nonce: int
    workers: int
    cells: tuple[LoadCell, ...]
    search: Found | None = None


def result_of(
    spec: CellSpec,
    outcome: CellOutcome,
    *,
    percentiles: tuple[float, ...],
    limits: tuple[RequestLimit, ...],
    hits: Mapping[str, float | None] | None,
) -> LoadCell:
    """
    Args:
        percentiles: which ones of each latency.
        limits: of a good request; empty for none.
        hits: ``prefix_hits.hits_between`` of the cell.
    """
    chosen = in_window(outcome.requests, outcome.window)
    ok = [r for r in chosen if r.status == "ok"]
    hit = hits is not None and bool(hits["hit_tokens"] or hits["store_hit_tokens"]) and spec.sessions is None
    finite = spec.num_requests is not None
    return LoadCell(
        cell_id=spec.cell_id,
        spec=spec.to_json(),
        requests={"window": len(chosen), **dict(sorted(Counter(r.status for r in chosen).items()))},
        n_scheduled=len(outcome.requests),
        rate_per_s=spec.rate_per_s if spec.rate_per_s and spec.sessions is None else None,
        throughput=_throughput(outcome.requests, outcome.window, finite=finite),
        latencies=_latencies(spec, outcome, percentiles),
        goodput=_goodput(spec, outcome, limits) if limits else None,
        prompt_tokens_mean=_mean([r.prompt_tokens for r in ok]),
        output_tokens_mean=_mean([r.completion_tokens for r in ok]),
        prefix_cache=None if hits is None else dict(hits),
        flags=(*outcome.window.flags, *(("prefix_cache_hits",) if hit else ())),
        not_believed=_not_believed(outcome),
        health=outcome.health,
        window=outcome.window.to_json(),
    )


def _not_believed(outcome: CellOutcome) -> tuple[str, ...]:
    aborted, given_up = outcome.health["aborted"], outcome.health["given_up"]
    nothing = not any(r.status == "ok" for r in outcome.requests)
    first = next((r for r in outcome.requests if r.status != "ok"), None)
    why = f": the first failed as {first.status} ({(first.error or '')[:200]})" if first is not None else ""
    return (
        *([f"ended early: {aborted}"] if aborted else []),
        *([f"given up: {given_up}"] if given_up else []),
        *([f"no request succeeded{why}"] if nothing else []),
        *outcome.health["bottleneck"],
    )


def _throughput(requests: Sequence[RequestRecord], window: CellWindow, *, finite: bool) -> Throughput:
    if finite:
        done = [r for r in in_window(requests, window) if r.status == "ok"]
        ends = [r.t_last_token_ns for r in done if r.t_last_token_ns is not None]
        over_s = (max(ends) - window.window_start_ns) / 1e9 if ends else 0.0
    else:
        done = [
            r
            for r in requests
            if r.status == "ok"
            and r.t_last_token_ns is not None
            and window.window_start_ns <= r.t_last_token_ns < window.t_stop_ns
        ]
        over_s = window.window_s
    output = sum(r.completion_tokens or 0 for r in done)
    total = output + sum(r.prompt_tokens or 0 for r in done)
    per_s = len(done) / over_s if over_s > 0 else 0.0
    assert finite or per_s == effective_throughput_per_s(requests, window)
    return Throughput(
        requests_per_s=per_s,
        output_tokens_per_s=output / over_s if over_s > 0 else 0.0,
        total_tokens_per_s=total / over_s if over_s > 0 else 0.0,
        over_s=over_s,
    )


def _latencies(
    spec: CellSpec, outcome: CellOutcome, percentiles: tuple[float, ...]
) -> dict[str, dict[str, Level]]:
    chosen = in_window(outcome.requests, outcome.window)
    found = latencies_ms(chosen)
    columns = {name: np.asarray(found[name], dtype=np.float64) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
    length = block_length([c for c in columns.values() if c.size == len(chosen)]) if chosen else 1
    rng = stream(spec.seed, "load", spec.cell_id)
    if outcome.window.overloaded:
        why: str | None = "the cell was overloaded: a percentile would say how long it was"
        return {name: {f"p{q:g}": Level(None, reason=why) for q in percentiles} for name in LATENCIES}
    why = ONE_BATCH if spec.arrival == "offline" else CHANGES if spec.ramp_from_per_s is not None else None
    estimates = {
        name: estimate_percentiles(values, percentiles, DRAWS, rng, length=length, confidence=CONFIDENCE)
        for name, values in columns.items()
    }
    tokens = [outcome.session.token_ns.get(r.seq) for r in chosen if r.status == "ok"]
    gaps = [np.diff(np.asarray(t, dtype=np.float64)) / 1e6 for t in tokens if t is not None and len(t) > 1]
    estimates["itl_ms"] = gap_percentiles(gaps, percentiles, DRAWS, rng, length=length, confidence=CONFIDENCE)
    return {
        name: {f"p{q:g}": _level(estimates[name][q], columns.get(name), q, why) for q in percentiles}
        for name in LATENCIES
    }


def _level(estimate: Estimate, values: Floats | None, q: float, why: str | None) -> Level:
    """With no interval where one would say more than is known, and with a number also of observations too few for one."""
    low, high = estimate.interval(CONFIDENCE)
    point = estimate.point
    if point is None and values is not None and values.size and np.isfinite(values).all():
        point = float(np.percentile(values, q))
    if why is not None and point is not None:
        return Level(point, None, None, estimate.n, why)
    return Level(point, low, high, estimate.n, estimate.why_open(CONFIDENCE))


def _goodput(spec: CellSpec, outcome: CellOutcome, limits: tuple[RequestLimit, ...]) -> Goodput:
    good = [r for r in outcome.requests if is_good(r, limits)]
    finite = spec.num_requests is not None
    per_s = _throughput(good, outcome.window, finite=finite)
    whole = _throughput(outcome.requests, outcome.window, finite=finite)
    count = per_s.requests_per_s * per_s.over_s
    chosen = in_window(outcome.requests, outcome.window)
    values = np.array([is_good(r, limits) for r in chosen], dtype=np.float64)
    return Goodput(limits, count / whole.over_s if whole.over_s > 0 else 0.0, _share(values, spec))


def is_good(request: RequestRecord, limits: tuple[RequestLimit, ...]) -> bool:
    """Whether it completed and met every limit; a latency that it does not have, as TPOT of one token, is met."""
    if request.status != "ok":
        return False
    found = latencies_ms([request])
    return all(value <= limit.limit_ms for limit in limits for value in found[f"{limit.metric}_ms"])


def _share(values: Floats, spec: CellSpec) -> Level:
    """Wilson's interval for as many independent requests as there are blocks of those that queue behind each other."""
    n = values.size
    if not n:
        return Level(None, reason="no request was scheduled in the window")
    share = float(values.mean())
    if spec.arrival == "offline" or spec.ramp_from_per_s is not None:
        return Level(share, None, None, n, ONE_BATCH if spec.arrival == "offline" else CHANGES)
    effective = n / block_length([values]) if np.ptp(values) > 0 else float(n)
    z2 = 1.959964**2
    centre = (share + z2 / (2 * effective)) / (1 + z2 / effective)
    half = np.sqrt(z2 * (share * (1 - share) / effective + z2 / (4 * effective**2))) / (1 + z2 / effective)
    return Level(share, float(max(centre - half, 0.0)), float(min(centre + half, 1.0)), n)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
