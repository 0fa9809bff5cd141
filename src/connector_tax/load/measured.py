"""Requests of a cell of ``connector-tax load`` -> its numbers, with intervals, and what is to be known beside
them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import Estimate, block_length, estimate_percentiles
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.gaps import gap_percentiles, read_gaps_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.units import s_to_ns
from connector_tax.load.demand import NEVER_NS, cut_of, demand_of, done_in, ended_ns, planned_of, unserved
from connector_tax.load.slo import percentile_name
from connector_tax.read.figures.words import label, reason_text
from connector_tax.run.loadgen.cell import CellOutcome
from connector_tax.run.loadgen.health import LIMIT_P50, LIMIT_P99
from connector_tax.run.loadgen.prefix_hits import said_of

CONFIDENCE = 0.95
DRAWS = 2000
# Of the text of a failure so much is shown.
MOST_CHARS = 200
# Remarks that are flags of a cell; ``remarks_of`` says when.
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
# Why a percentile has no interval.
ONE_BATCH = "requests of one offline batch wait for one another: the batch is one observation"
CHANGES = "the rate changes while the cell lasts: its requests are of no one load"
RISES = "the concurrency rises while the window lasts: its requests are of no one load"
# Why a latency has no number.
OVERLOADED = "the cell was overloaded: a percentile would say how long it was"
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
    remarks = remarks_of(spec, outcome, cut, demand=demand, hits=hits, hit=hit)
    # Of a fixed number ``not_all_sent`` stands for the other.
    own = [f for f in window.flags if planned is None or f != "min_completed_not_reached"]
    done, over_s = _completed(spec, requests, window)
    per_s = over_s or math.inf
    output = sum(r.completion_tokens or 0 for r in done)
    why = _why_no_interval(spec, window)
    goodput = None
    if limits:
        share = _share([is_good(r, limits) for r in chosen], why)
        goodput = Goodput(limits, sum(is_good(r, limits) for r in done) / per_s, share)
    return LoadCell(
        cell_id=spec.cell_id,
        spec=spec,
        requests={"window": len(chosen), **dict(sorted(Counter(r.status for r in chosen).items()))},
        n_scheduled=len(requests) if planned is None else planned,
        rate_per_s=spec.rate_per_s if spec.rate_per_s and spec.sessions is None else None,
        throughput=Throughput(
            requests_per_s=len(done) / per_s,
            output_tokens_per_s=output / per_s,
            total_tokens_per_s=(output + sum(r.prompt_tokens or 0 for r in done)) / per_s,
            over_s=over_s,
        ),
        latencies=_latencies(spec, outcome, percentiles, why),
        goodput=goodput,
        prompt_tokens_mean=_mean([r.prompt_tokens for r in ok]),
        output_tokens_mean=_mean([r.completion_tokens for r in ok]),
        prefix_cache=None if hits is None else dict(hits),
        flags=(*own, *(code for code in remarks if code in FLAGS)),
        not_believed=not_believed(spec, outcome),
        health=outcome.health,
        window=window,
        demand=demand,
        cut=cut,
        first_failure=first_failure(requests),
        remarks=tuple(remarks.values()),
        failed=_share([r.status != "ok" for r in chosen], why),
    )


def _completed(
    spec: CellSpec, requests: Sequence[RequestRecord], window: CellWindow
) -> tuple[list[RequestRecord], float]:
    """Return what counts as completed, and the seconds by which it is divided."""
    if spec.num_requests is None:
        return done_in(requests, window), window.window_s
    chosen = in_window(requests, window)
    ends = [end for end in map(ended_ns, chosen) if end < NEVER_NS]
    if not window.min_completed_reached:
        ends.append(window.t_stop_ns)
    over_ns = max([0, *(end - window.window_start_ns for end in ends)])
    return [r for r in chosen if r.status == "ok"], over_ns / 1e9


def _latencies(
    spec: CellSpec, outcome: CellOutcome, percentiles: tuple[float, ...], why: str | None
) -> dict[str, dict[str, Level]]:
    def none(reason: str) -> dict[str, Level]:
        return {percentile_name(q): Level(None, reason=reason) for q in percentiles}

    if outcome.window.overloaded:
        return dict.fromkeys(LATENCIES, none(OVERLOADED))
    chosen = in_window(outcome.requests, outcome.window)
    found = latencies_ms(chosen)
    columns = {name: np.asarray(found[name], dtype=np.float64) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
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
        # One that failed has no latency of any kind, but in one piece nothing had one in the first place.
        name: {percentile_name(q): _level(estimates[name][q], columns.get(name), q, why) for q in percentiles}
        if spec.asked.stream or name == "e2e_ms"
        else none(IN_ONE_PIECE)
        for name in LATENCIES
    }


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
    """With no interval where one would say more than is known, and with a number also of observations too few
    for one."""
    low, high = estimate.interval(CONFIDENCE)
    point = estimate.point
    if point is None and values is not None and values.size:
        point = percentile(values, q)
        if point is None:
            return Level(
                None,
                n=estimate.n,
                reason=f"{percentile_name(q)} falls on requests that failed or did not finish",
            )
    if why is not None and point is not None:
        return Level(point, None, None, estimate.n, why)
    # An interval is made wider for what few blocks do not tell, and may reach below what a latency can be.
    low = None if low is None else max(low, 0.0)
    return Level(point, low, high, estimate.n, reason_text(estimate.quantity(CONFIDENCE).reason) or None)


def is_good(request: RequestRecord, limits: tuple[RequestLimit, ...]) -> bool:
    """Whether it completed and met every limit; a latency that it does not have, as TPOT of one token, is not
    met."""
    if request.status != "ok":
        return False
    found = latencies_ms([request])
    return all(max(found[f"{limit.metric}_ms"], default=math.inf) <= limit.limit_ms for limit in limits)


def _share(those: Sequence[bool], why: str | None) -> Level:
    """Wilson's interval for as many independent requests as there are blocks of those that queue behind each
    other."""
    n, values = len(those), np.array(those, dtype=np.float64)
    if not n:
        return Level(None, reason="no request was scheduled in the window")
    share = float(values.mean())
    if why is not None:
        return Level(share, None, None, n, why)
    effective = n / block_length([values]) if np.ptp(values) > 0 else float(n)
    z2 = 1.959964**2
    centre = (share * effective + z2 / 2) / (effective + z2)
    half = math.sqrt(z2 * (share * (1 - share) * effective + z2 / 4)) / (effective + z2)
    return Level(share, max(centre - half, 0.0), min(centre + half, 1.0), n)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


# --- In words


def worded(*rows: tuple[Any, ...]) -> dict[str, str]:
    """Return the codes that hold and their words: each row is whether it does, the code, and what its words
    name."""
    return {code: label("load", code).format(*named) for holds, code, *named in rows if holds}


def not_believed(spec: CellSpec, outcome: CellOutcome) -> tuple[str, ...]:
    """Why the numbers are the client's or nobody's."""
    session, requests = outcome.session, outcome.requests
    some_ok = any(r.status == "ok" for r in requests)
    words = worded(
        (session.aborted, "aborted", session.aborted),
        # A server that does not keep up is what was measured, and has its flag.
        (session.given_up and not outcome.window.overloaded, "given_up", session.given_up),
        (not some_ok, "none_ok", first_failure(requests) or "-"),
        (some_ok and not in_window(requests, outcome.window), "none_counted", len(requests), spec.warmup_s),
    )
    return (*words.values(), *(outcome.health.bottleneck or ()))


def first_failure(requests: Sequence[RequestRecord]) -> str | None:
    """As a status and the text of its error; of what the client itself dropped none."""
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
    """Return codes and their words for table and page; those of ``FLAGS`` are flags of the cell.

    Args:
        hit: whether the server's prefix cache had some of the prompts, and should not have had; None where
            nobody knows.
    """
    requests, health, session = outcome.requests, outcome.health, outcome.session
    n, dropped = len(requests), sum(r.status == "dropped" for r in requests)
    overloaded, failure = outcome.window.overloaded, first_failure(requests)
    # An overloaded cell has its flag, and no percentile.
    served = None if overloaded else unserved(spec, demand)
    late = [
        f"{value:.1%} of {name.replace('_', ' ').upper().replace('P', 'p')}"
        for name, value in (health.send_to_schedule_difference or {}).items()
        if value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
    ]
    # All of an offline batch is due at T0, and no client sends it at once.
    is_late = health.client_limited and spec.arrival != "offline"
    return worded(
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
