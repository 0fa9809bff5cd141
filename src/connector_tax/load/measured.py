"""Requests of a cell of ``connector-tax load`` -> its numbers, with intervals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from connector_tax.base.documents.load import LATENCIES, Goodput, Level, LoadCell, RequestLimit, Throughput
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import FAILED, Estimate, block_length, estimate_percentiles
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.gaps import gap_percentiles, read_gaps_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.units import s_to_ns
from connector_tax.load.demand import cut_of, demand_of, planned_of, unserved
from connector_tax.load.remarks import first_failure, flags_of, not_believed, remarks_of
from connector_tax.load.slo import percentile_name
from connector_tax.run.loadgen.cell import CellOutcome

CONFIDENCE = 0.95
DRAWS = 2000
# Why a percentile has no interval.
ONE_BATCH = "requests of one offline batch wait for one another: the batch is one observation"
CHANGES = "the rate changes while the cell lasts: its requests are of no one load"
RISES = "the concurrency rises while the window lasts: its requests are of no one load"
# Why a latency has no number.
IN_ONE_PIECE = "answers in one piece have none"


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
    window, requests = outcome.window, outcome.requests
    chosen = in_window(requests, window)
    ok = [r for r in chosen if r.status == "ok"]
    hit: bool | None = False
    if spec.sessions is None:
        hit = None if hits is None else bool(hits["hit_tokens"] or hits["store_hit_tokens"])
    planned, cut, demand = planned_of(spec), cut_of(spec, outcome), demand_of(spec, outcome)
    counted = _completions(spec, requests, window)
    # An overloaded cell has its flag, and no percentile.
    queued = None if window.overloaded else unserved(spec, demand)
    return LoadCell(
        cell_id=spec.cell_id,
        spec=spec,
        requests={"window": len(chosen), **dict(sorted(Counter(r.status for r in chosen).items()))},
        n_scheduled=len(requests) if planned is None else planned,
        rate_per_s=spec.rate_per_s if spec.rate_per_s and spec.sessions is None else None,
        throughput=_throughput(counted),
        latencies=_latencies(spec, outcome, percentiles),
        goodput=_goodput(spec, chosen, counted, window, limits) if limits else None,
        prompt_tokens_mean=_mean([r.prompt_tokens for r in ok]),
        output_tokens_mean=_mean([r.completion_tokens for r in ok]),
        prefix_cache=None if hits is None else dict(hits),
        flags=flags_of(spec, outcome, cut=cut, hit=hit),
        not_believed=not_believed(spec, outcome),
        health=outcome.health,
        window=window,
        demand=demand,
        cut=cut,
        first_failure=first_failure(requests),
        remarks=(*remarks_of(spec, outcome, cut), *([queued] if queued else [])),
        failed=_share(
            np.array([r.status != "ok" for r in chosen], dtype=np.float64),
            _why_no_interval(spec, window),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Completions:
    """What counts as completed, and the seconds by which it is divided."""

    done: list[RequestRecord]
    over_s: float

    def per_s(self, amount: float) -> float:
        return amount / self.over_s if self.over_s > 0 else 0.0


def _completions(spec: CellSpec, requests: Sequence[RequestRecord], window: CellWindow) -> _Completions:
    if spec.num_requests is not None:
        chosen = in_window(requests, window)
        ends = [r.t_done_ns if r.status == "ok" else r.t_end_ns for r in chosen]
        known = [end for end in ends if end is not None]
        if not window.min_completed_reached:
            known.append(window.t_stop_ns)
        over_s = max((max(known, default=0) - window.window_start_ns) / 1e9, 0.0)
        return _Completions([r for r in chosen if r.status == "ok"], over_s)
    done = [
        r
        for r in requests
        if r.t_done_ns is not None and window.window_start_ns <= r.t_done_ns < window.t_stop_ns
    ]
    return _Completions(done, window.window_s)


def _throughput(counted: _Completions) -> Throughput:
    output = sum(r.completion_tokens or 0 for r in counted.done)
    return Throughput(
        requests_per_s=counted.per_s(len(counted.done)),
        output_tokens_per_s=counted.per_s(output),
        total_tokens_per_s=counted.per_s(output + sum(r.prompt_tokens or 0 for r in counted.done)),
        over_s=counted.over_s,
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
        return {
            name: {percentile_name(q): Level(None, reason=why) for q in percentiles} for name in LATENCIES
        }
    why = _why_no_interval(spec, outcome.window)
    estimates = {
        name: estimate_percentiles(values, percentiles, DRAWS, rng, length=length, confidence=CONFIDENCE)
        for name, values in columns.items()
    }
    tokens = [outcome.session.token_ns.get(r.seq) for r in chosen if r.status == "ok"]
    gaps = [read_gaps_ms(t) for t in tokens if t is not None]
    estimates["itl_ms"] = gap_percentiles(gaps, percentiles, DRAWS, rng, length=length, confidence=CONFIDENCE)
    levels = {
        name: {percentile_name(q): _level(estimates[name][q], columns.get(name), q, why) for q in percentiles}
        for name in LATENCIES
    }
    if spec.asked.stream:
        return levels
    none = {percentile_name(q): Level(None, reason=IN_ONE_PIECE) for q in percentiles}
    # One that failed has no latency of any kind, but here nothing had one in the first place.
    return {name: levels[name] if name == "e2e_ms" else none for name in LATENCIES}


def _why_no_interval(spec: CellSpec, window: CellWindow) -> str | None:
    if spec.arrival == "offline":
        return ONE_BATCH
    if spec.ramp_from_per_s is not None:
        return CHANGES
    rises = spec.arrival == "concurrency" and window.window_start_ns < window.t0_ns + s_to_ns(
        spec.ramp_up_s or 0.0
    )
    return RISES if rises else None


def _level(estimate: Estimate, values: Floats | None, q: float, why: str | None) -> Level:
    """With no interval where one would say more than is known, and with a number also of observations too few for one."""
    low, high = estimate.interval(CONFIDENCE)
    point = estimate.point
    if point is None and values is not None and values.size:
        point = percentile(values, q)
        if point is None:
            return Level(None, n=estimate.n, reason=f"{percentile_name(q)} falls on {FAILED}")
    if why is not None and point is not None:
        return Level(point, None, None, estimate.n, why)
    # An interval is made wider for what few blocks do not tell, and may reach below what a latency can be.
    low = None if low is None else max(low, 0.0)
    return Level(point, low, high, estimate.n, estimate.why_open(CONFIDENCE))


def _goodput(
    spec: CellSpec,
    chosen: Sequence[RequestRecord],
    counted: _Completions,
    window: CellWindow,
    limits: tuple[RequestLimit, ...],
) -> Goodput:
    values = np.array([is_good(r, limits) for r in chosen], dtype=np.float64)
    good = sum(is_good(r, limits) for r in counted.done)
    return Goodput(limits, counted.per_s(good), _share(values, _why_no_interval(spec, window)))


def is_good(request: RequestRecord, limits: tuple[RequestLimit, ...]) -> bool:
    """Whether it completed and met every limit; a latency that it does not have, as TPOT of one token, is not met."""
    if request.status != "ok":
        return False
    found = latencies_ms([request])
    return all(
        values[0] <= limit.limit_ms if (values := found[f"{limit.metric}_ms"]) else False for limit in limits
    )


def _share(values: Floats, why: str | None) -> Level:
    """Wilson's interval for as many independent requests as there are blocks of those that queue behind each other."""
    n = values.size
    if not n:
        return Level(None, reason="no request was scheduled in the window")
    share = float(values.mean())
    if why is not None:
        return Level(share, None, None, n, why)
    effective = n / block_length([values]) if np.ptp(values) > 0 else float(n)
    z2 = 1.959964**2
    centre = (share + z2 / (2 * effective)) / (1 + z2 / effective)
    half = np.sqrt(z2 * (share * (1 - share) / effective + z2 / (4 * effective**2))) / (1 + z2 / effective)
    return Level(share, float(max(centre - half, 0.0)), float(min(centre + half, 1.0)), n)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
