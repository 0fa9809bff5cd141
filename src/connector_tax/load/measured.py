"""Computes a cell's result from the requests of ``connector-tax load``: numbers with intervals, the demand of
its schedule, and remarks.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from connector_tax.base.documents.load import (
    LATENCIES,
    Cut,
    Demand,
    Goodput,
    Level,
    LoadCell,
    RequestLimit,
    Throughput,
)
from connector_tax.base.files import printable
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import Estimate, block_length, estimate_percentiles
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.gaps import gap_percentiles, read_gaps_ms
from connector_tax.base.statistics.overload import MIN_THROUGHPUT_RATIO
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.units import MOST_NS, s_to_ns
from connector_tax.load.plan import percentile_name
from connector_tax.read.figures.words import label, reason_text
from connector_tax.run.loadgen.cell import CellOutcome, said_of
from connector_tax.run.loadgen.health import LIMIT_P50, LIMIT_P99
from connector_tax.run.workload.arrivals import OPEN_LOOP

CONFIDENCE = 0.95
DRAWS = 2000
# Longest part of a failure's text that is shown.
MOST_CHARS = 200
# Remarks that are also flags of the cell; ``remarks_of`` says when they apply.
FLAGS = frozenset(
    (
        "not_all_sent",
        "client_limited",
        "client_stalled",
        "resends",
        "prefix_cache_hits",
        "prefix_cache_unchecked",
    )
)
# Reasons for a percentile without an interval.
ONE_BATCH = "requests of one offline batch wait for one another: the batch is one observation"
CHANGES = "the rate changes while the cell lasts: its requests are of no one load"
RISES = "the concurrency rises while the window lasts: its requests are of no one load"
# Reasons for a latency without a number.
OVERLOADED = "the cell was overloaded: a percentile would say how long it was"
IN_ONE_PIECE = "answers in one piece have none"
# The end of a request that never ended.
NEVER_NS = MOST_NS
# Four values all exceed four others by chance in one of 70 cases.
FEWEST_OF_A_THIRD = 4
# When something came due, and when it ended.
Span = tuple[int, int]


def result_of(
    spec: CellSpec,
    outcome: CellOutcome,
    *,
    percentiles: tuple[float, ...],
    limits: tuple[RequestLimit, ...],
    hits: Mapping[str, float | None] | None,
) -> LoadCell:
    """Return a cell's result.

    Args:
        percentiles: those reported for each latency.
        limits: of a good request; empty: no goodput.
        hits: ``prefix_hits.hits_between`` of the cell.
    """
    window, requests = outcome.window, outcome.requests
    chosen = in_window(requests, window)
    ok = [r for r in chosen if r.status == "ok"]
    planned, cut, demand = planned_of(spec), cut_of(spec, outcome), demand_of(spec, outcome)
    hit = None if hits is None else bool(hits["hit_tokens"] or hits["store_hit_tokens"])
    hit = False if spec.sessions is not None else hit
    remarks = remarks_of(spec, outcome, cut, demand=demand, hits=hits, hit=hit)
    # For a fixed number of requests ``not_all_sent`` replaces this flag.
    window_flags = [f for f in window.flags if planned is None or f != "min_completed_not_reached"]
    if spec.num_requests is None:
        done, span_s = done_in(requests, window), window.window_s
    else:
        ends = [end for end in map(ended_ns, chosen) if end < NEVER_NS]
        ends += [window.t_stop_ns] * (not window.min_completed_reached)
        done, span_s = ok, (max([window.window_start_ns, *ends]) - window.window_start_ns) / 1e9
    per_s = span_s or math.inf
    output, prompts = (
        sum(getattr(r, f"{kind}_tokens") or 0 for r in done) for kind in ("completion", "prompt")
    )
    no_interval_reason = _why_no_interval(spec, window)
    goodput = None
    if limits:
        share = _share([is_good(r, limits) for r in chosen], no_interval_reason)
        goodput = Goodput(limits, sum(is_good(r, limits) for r in done) / per_s, share)
    return LoadCell(
        cell_id=spec.cell_id,
        spec=spec,
        requests={"window": len(chosen), **dict(sorted(Counter(r.status for r in chosen).items()))},
        n_scheduled=len(requests) if planned is None else planned,
        rate_per_s=spec.rate_per_s if spec.rate_per_s and spec.sessions is None else None,
        throughput=Throughput(len(done) / per_s, output / per_s, (output + prompts) / per_s, span_s),
        latencies=_latencies(spec, outcome, percentiles, no_interval_reason),
        goodput=goodput,
        prompt_tokens_mean=_mean([r.prompt_tokens for r in ok]),
        output_tokens_mean=_mean([r.completion_tokens for r in ok]),
        prefix_cache=None if hits is None else dict(hits),
        flags=(*window_flags, *(code for code in remarks if code in FLAGS)),
        not_believed=not_believed(spec, outcome),
        health=outcome.health,
        window=window,
        demand=demand,
        cut=cut,
        first_failure=first_failure(requests),
        remarks=tuple(remarks.values()),
        failed=_share([r.status != "ok" for r in chosen], no_interval_reason),
    )


def _latencies(
    spec: CellSpec, outcome: CellOutcome, percentiles: tuple[float, ...], no_interval_reason: str | None
) -> dict[str, dict[str, Level]]:
    def without_numbers(reason: str) -> dict[str, Level]:
        return {percentile_name(q): Level(None, reason=reason) for q in percentiles}

    if outcome.window.overloaded:
        return dict.fromkeys(LATENCIES, without_numbers(OVERLOADED))
    chosen = in_window(outcome.requests, outcome.window)
    all_latencies = latencies_ms(chosen)
    columns = {
        name: np.asarray(all_latencies[name], dtype=np.float64) for name in ("ttft_ms", "tpot_ms", "e2e_ms")
    }
    length = block_length([c for c in columns.values() if c.size == len(chosen)]) if chosen else 1
    rng = stream(spec.seed, "load", spec.cell_id)
    estimates = {
        name: estimate_percentiles(values, percentiles, DRAWS, rng, length=length, confidence=CONFIDENCE)
        for name, values in columns.items()
    }
    tokens = [outcome.session.token_ns.get(r.seq) for r in chosen if r.status == "ok"]
    gaps = [read_gaps_ms(t) for t in tokens if t is not None]
    estimates["itl_ms"] = gap_percentiles(gaps, percentiles, DRAWS, rng, length=length, confidence=CONFIDENCE)
    return {
        # Failed requests have no latency; without streaming no request has one but E2E.
        name: {
            percentile_name(q): _level(estimates[name][q], columns.get(name), q, no_interval_reason)
            for q in percentiles
        }
        if spec.asked.stream or name == "e2e_ms"
        else without_numbers(IN_ONE_PIECE)
        for name in LATENCIES
    }


def _why_no_interval(spec: CellSpec, window: CellWindow) -> str | None:
    if spec.arrival == "offline":
        return ONE_BATCH
    if spec.ramp_from_per_s is not None:
        return CHANGES
    full_ns = window.t0_ns + s_to_ns(spec.ramp_up_s or 0.0)
    return RISES if spec.arrival == "concurrency" and window.window_start_ns < full_ns else None


def _level(estimate: Estimate, values: Floats | None, q: float, no_interval_reason: str | None) -> Level:
    """Return the level, without an interval if ``why`` rules one out.

    Too few observations for an interval still give a number.
    """
    low, high = estimate.interval(CONFIDENCE)
    point, n = estimate.point, estimate.n
    if point is None and values is not None and values.size:
        point = percentile(values, q)
        if point is None:
            no_interval_reason = f"{percentile_name(q)} falls on requests that failed or did not finish"
            return Level(None, n=n, reason=no_interval_reason)
    if no_interval_reason is not None and point is not None:
        return Level(point, n=n, reason=no_interval_reason)
    # The correction for few blocks may widen the interval below what a latency can be.
    low = None if low is None else max(low, 0.0)
    return Level(point, low, high, n, reason_text(estimate.quantity(CONFIDENCE).reason) or None)


def is_good(request: RequestRecord, limits: tuple[RequestLimit, ...]) -> bool:
    """Return whether the request completed and met every limit; a missing latency fails its limit."""
    latencies = latencies_ms([request])
    return request.status == "ok" and all(
        max(latencies[f"{limit.metric}_ms"], default=math.inf) <= limit.limit_ms for limit in limits
    )


def _share(outcomes: Sequence[bool], no_interval_reason: str | None) -> Level:
    """Return the share with Wilson's interval, whose sample size is the number of independent blocks."""
    n, values = len(outcomes), np.array(outcomes, dtype=np.float64)
    if not n:
        return Level(None, reason="no request was scheduled in the window")
    share = float(values.mean())
    if no_interval_reason is not None:
        return Level(share, n=n, reason=no_interval_reason)
    effective = n / block_length([values]) if np.ptp(values) > 0 else float(n)
    z2 = 1.959964**2
    centre = (share * effective + z2 / 2) / (effective + z2)
    half_width = math.sqrt(z2 * (share * (1 - share) * effective + z2 / 4)) / (effective + z2)
    return Level(share, max(centre - half_width, 0.0), min(centre + half_width, 1.0), n)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


# --- Demand, and what was served


def demand_of(spec: CellSpec, outcome: CellOutcome) -> Demand | None:
    """Return what came due and what was done; None for loads without a rate."""
    if spec.arrival not in OPEN_LOOP:
        return None
    requests, ramp = outcome.requests, spec.ramp_from_per_s is not None
    spans = _spans(spec, requests, outcome.window.t_stop_ns)
    window = outcome.window if ramp else _when_full(spans, outcome.window)
    start_ns, stop_ns = window.window_start_ns, window.t_stop_ns

    def in_flight(at_ns: int) -> int:
        return sum(r.status != "dropped" and r.t_sched_ns < at_ns <= ended_ns(r) for r in requests)

    return Demand(
        unit="requests" if spec.sessions is None else "sessions",
        arrived=sum(start_ns <= at_ns < stop_ns for at_ns, _ in spans),
        due=len(in_window(requests, window)),
        done=len(done_in(requests, window)),
        in_flight=(in_flight(start_ns), in_flight(stop_ns)),
        over_s=window.window_s,
        fills_s=UNSET if ramp else _fills_s(spans, outcome.window),
    )


def done_in(requests: Sequence[RequestRecord], window: CellWindow) -> list[RequestRecord]:
    """Return requests that completed in the window, whenever they were due."""
    start_ns, stop_ns = window.window_start_ns, window.t_stop_ns
    return [r for r in requests if r.t_done_ns is not None and start_ns <= r.t_done_ns < stop_ns]


def _spans(spec: CellSpec, requests: list[RequestRecord], stop_ns: int) -> list[Span]:
    """Return the span of each arrival: a request, or a session with all its turns so far.

    A request that failed during the cell was in flight until then; one that the cell's end cut off would have
    gone on.
    """
    if spec.sessions is None:
        return [
            (r.t_sched_ns, end_ns if r.status == "ok" or end_ns < stop_ns else NEVER_NS)
            for r, end_ns in zip(requests, map(ended_ns, requests), strict=True)
        ]
    turns: dict[int | None, list[RequestRecord]] = {}
    for r in requests:
        turns.setdefault(r.session, []).append(r)
    return sorted(
        (
            min(r.t_sched_ns for r in turn_records),
            max((r.t_done_ns for r in turn_records if r.t_done_ns is not None), default=NEVER_NS),
        )
        for turn_records in turns.values()
    )


def ended_ns(request: RequestRecord) -> int:
    """Return when a request completed or failed."""
    end_ns = request.t_end_ns if request.t_done_ns is None else request.t_done_ns
    return NEVER_NS if end_ns is None else end_ns


def _fills_s(spans: list[Span], window: CellWindow) -> float | UnsetType:
    """Return the longest duration of the first quarter's arrivals, if it reaches past the window's middle.

    Unset otherwise, and if answers get longer one after another: then a queue delays them, not their length.
    """
    lengths_ns = _lengths_ns(spans, window.t0_ns + (window.t_stop_ns - window.t0_ns) // 4)
    longest_ns = max(lengths_ns, default=0)
    over_early = window.t0_ns + longest_ns <= _middle_ns(window)
    return UNSET if over_early or _gets_longer(lengths_ns) else longest_ns / 1e9


def _middle_ns(window: CellWindow) -> int:
    return (window.window_start_ns + window.t_stop_ns) // 2


def _lengths_ns(spans: list[Span], before_ns: int) -> list[int]:
    """Return durations of arrivals that were due before ``before_ns`` and ended."""
    return [over_ns - due_ns for due_ns, over_ns in spans if over_ns < NEVER_NS and due_ns < before_ns]


def _gets_longer(e2e_ns: list[int]) -> bool:
    """Return whether durations grow as they do behind a queue of several slots.

    Nearly every answer of the last third must take longer than each of the first, and the median half as long
    again. Concurrent long answers share the server's load in any order.
    """
    third = len(e2e_ns) // 3
    if third < FEWEST_OF_A_THIRD:
        return False
    first, last = sorted(e2e_ns[:third]), e2e_ns[-third:]
    n_longer = sum(bisect_left(first, later) for later in last)
    return n_longer >= 0.95 * third**2 and median(last) > 1.5 * median(first)


def _when_full(spans: list[Span], window: CellWindow) -> CellWindow:
    """Return the window from when as many requests end as begin.

    That is T0 plus the longest answer, or session, that began before the window's middle. Until then the
    number in flight grows even if the server keeps up, and would count as left over.
    """
    middle_ns = _middle_ns(window)
    full_ns = min(window.t0_ns + max(_lengths_ns(spans, middle_ns), default=0), middle_ns)
    return replace(window, window_start_ns=max(window.window_start_ns, full_ns))


def planned_of(spec: CellSpec) -> int | None:
    """Return the planned number of requests, all turns of sessions; None for a cell that ends by time."""
    n = spec.num_requests
    if n is None or spec.sessions is None:
        return n
    sessions = read_sessions(Path(spec.sessions))
    if sessions[0].arrival_s is not None and spec.arrival in OPEN_LOOP:
        n = min(n, len(sessions))
    rounds, rest = divmod(n, len(sessions))
    turns = [len(session.turns) for session in sessions]
    return rounds * sum(turns) + sum(turns[:rest])


def cut_of(spec: CellSpec, outcome: CellOutcome) -> Cut | None:
    """Return what was sent of a fixed number; None if all was sent, and for other cells."""
    planned, session, window = planned_of(spec), outcome.session, outcome.window
    sent = sum(
        r.status != "dropped" and not (r.status == "aborted" and r.t_send_ns is None)
        for r in outcome.requests
    )
    if planned is None or window.min_completed_reached or sent >= planned:
        return None
    in_time = window.t_stop_ns - window.t0_ns < s_to_ns(spec.max_cell_s)
    died = session.deaths[0] if session.deaths and in_time else None
    limit = f"a cell lasts {spec.max_cell_s:g} s at most (--max-seconds)"
    return Cut(sent=sent, planned=planned, why=session.aborted or session.given_up or died or limit)


def scatter_of(spec: CellSpec) -> float:
    """Return variance over mean of arrival counts: 1 for Poisson, more for bursts."""
    return {"fixed": 0.0, "gamma": 1 / (spec.gamma_shape or 1.0)}.get(spec.arrival, 1.0)


def falls_short(demand: Demand, failed: float = 0.0, *, scatter: float = 0.0) -> tuple[bool, bool]:
    """Return whether fewer requests completed than came due, and whether the difference is significant.

    The backlog is compared with the arrivals: in sessions a waiting turn keeps later turns from coming due,
    so turns understate how far the server falls behind. One more request in flight at the end than at the
    start is no overload. Chance moves the numbers in flight by about their square root.

    Args:
        failed: requests of the backlog that may be there because they failed, not because the server falls
            behind.
        scatter: ``scatter_of`` the cell: chance also moves how many come due, by about the square root of
            this times their number.
    """
    variance = max(sum(demand.in_flight), demand.arrived * scatter)
    shortfall = demand.due - demand.done
    allowed = max((1 - MIN_THROUGHPUT_RATIO) * demand.arrived, 1.0)
    return shortfall > allowed, shortfall - failed - 2 * math.sqrt(variance) > allowed


def saturated(cell: LoadCell) -> bool:
    """Return whether the server did not keep up with the cell's rate, as far as the cell tells."""
    demand = cell.demand
    falls = demand is not None and not demand.fills_s and falls_short(demand, scatter=scatter_of(cell.spec))
    return "overloaded" in cell.flags or bool(falls and falls[0])


def served_text(demand: Demand, rate_per_s: float) -> str:
    """Describe what was served of what came due in the window, which may differ from the rate."""
    return label("load", f"served_{demand.unit}").format(demand, rate_per_s)


def unserved(spec: CellSpec, demand: Demand | None) -> str | None:
    """Describe what an open loop's server serves that does not keep up, so that its queue grows.

    None if it keeps up or may do so, and if the cell cannot tell: with long answers, a ramp or sessions the
    number in flight grows without a queue. A request that failed in the window or was dropped waits in no
    queue; one that failed after the window's end did.
    """
    rises = spec.ramp_from_per_s is not None or spec.sessions is not None
    if demand is None or not spec.rate_per_s or demand.fills_s or rises:
        return None
    at_start, at_end = demand.in_flight
    failed = demand.due - (at_end - at_start) - demand.done
    falls_behind = falls_short(demand, max(failed, 0), scatter=scatter_of(spec))[1]
    return served_text(demand, spec.rate_per_s) if falls_behind else None


# --- Texts


def format_labels(*rows: tuple[Any, ...]) -> dict[str, str]:
    """Return code -> text of the rows (applies, code, values of the text) that apply."""
    return {code: label("load", code).format(*fields) for holds, code, *fields in rows if holds}


def not_believed(spec: CellSpec, outcome: CellOutcome) -> tuple[str, ...]:
    """Return why the numbers are invalid, or the client's rather than the server's."""
    session, requests = outcome.session, outcome.requests
    some_ok = any(r.status == "ok" for r in requests)
    texts = format_labels(
        (session.aborted, "aborted", session.aborted),
        # A server that does not keep up is the measured result, and has its own flag.
        (session.given_up and not outcome.window.overloaded, "given_up", session.given_up),
        (not some_ok, "none_ok", first_failure(requests) or "-"),
        (some_ok and not in_window(requests, outcome.window), "none_counted", len(requests), spec.warmup_s),
    )
    return (*texts.values(), *(outcome.health.bottleneck or ()))


def first_failure(requests: Sequence[RequestRecord]) -> str | None:
    """Return status and error text of the first failure; drops by the client do not count."""
    failed = next((r for r in requests if r.status not in ("ok", "dropped")), None)
    return None if failed is None else f"{failed.status} ({printable(failed.error or '', MOST_CHARS)})"


def remarks_of(
    spec: CellSpec,
    outcome: CellOutcome,
    cut: Cut | None,
    *,
    demand: Demand | None = None,
    hits: Mapping[str, float | None] | None = None,
    hit: bool | None = False,
) -> dict[str, str]:
    """Return remark codes and texts for table and page; those in ``FLAGS`` are flags of the cell.

    Args:
        hit: whether the server's prefix cache unexpectedly held some prompts; None if unknown.
    """
    requests, health, session = outcome.requests, outcome.health, outcome.session
    n, dropped = len(requests), sum(r.status == "dropped" for r in requests)
    overloaded, failure = outcome.window.overloaded, first_failure(requests)
    # An overloaded cell has its own flag, and no percentile.
    served = None if overloaded else unserved(spec, demand)
    late = [
        f"{value:.1%} of {name.replace('_', ' ').upper().replace('P', 'p')}"
        for name, value in (health.send_to_schedule_difference or {}).items()
        if value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
    ]
    # All requests of an offline batch are due at T0, and no client sends them at once.
    is_late = health.client_limited and spec.arrival != "offline"
    return format_labels(
        (overloaded and session.given_up, "given_up", session.given_up),
        (dropped, "dropped", dropped, n, spec.inflight_cap),
        (cut, "not_all_sent", cut),
        (is_late, "client_limited", ", ".join(late), LIMIT_P50, LIMIT_P99),
        (health.client_stalled, "client_stalled", session.stall_max_us / 1e3),
        (health.resends, "resends", sum(r.resends > 0 for r in requests), n, health.resends),
        (failure and any(r.status == "ok" for r in requests), "first_failure", failure),
        (served, "unserved", served),
        (hit, "prefix_cache_hits", said_of(hits)),
        (hit is None, "prefix_cache_unchecked"),
    )
