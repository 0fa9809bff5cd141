"""The load generator's self-check in every cell.

A client that sends late or cannot keep up measures itself. These figures show how far it did; ``bottleneck``
names a client that was the bottleneck, and the cell is then invalid.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from connector_tax.base.documents.cell import Health, SessionHealth
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import WHOLE_FROM_TOKENS, RequestRecord
from connector_tax.base.records.sessions import Session, read_sessions
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.units import s_to_ns
from connector_tax.run.loadgen.descriptors import Placement
from connector_tax.run.loadgen.issuer import NO_SOCKET, histogram
from connector_tax.run.loadgen.messages import SessionResult
from connector_tax.run.workload.arrivals import OPEN_LOOP

# Were the turns of conversations sent on time, neither before their dependencies nor late?

# The traffic specification's limit: a dependent turn sent more than 5 s after it was ready is a violation.
LATE_S = 5.0


def session_health(requests: Sequence[RequestRecord], sessions: tuple[Session, ...]) -> SessionHealth:
    """Return counts, and the delay of dependent turns after they were ready, in microseconds.

    ``early`` counts turns sent before their dependencies had ended and ``wait_s`` was over: it must be 0.
    """
    placed = {(r.session, r.turn): r for r in requests if r.session is not None and r.turn is not None}
    delays_ns = np.array(list(_delays_ns(placed, sessions)), dtype=np.float64)
    failed = {r.session for r in placed.values() if r.status != "ok"}
    return SessionHealth(
        sessions=len({number for number, _ in placed}),
        sessions_with_a_failure=len(failed),
        turns=len(placed),
        dependent_turns=int(delays_ns.size),
        early=int((delays_ns < 0).sum()),
        late=int((delays_ns > s_to_ns(LATE_S)).sum()),
        delay_us=(
            {f"p{q}": float(np.percentile(delays_ns, q)) / 1e3 for q in (50, 99)} if delays_ns.size else {}
        ),
    )


def _delays_ns(placed: dict[tuple[int, int], RequestRecord], sessions: tuple[Session, ...]) -> Iterator[int]:
    for (number, turn_index), record in placed.items():
        turn = sessions[number % len(sessions)].turns[turn_index]
        ends_ns = [placed[number, parent].t_end_ns for parent in turn.after if (number, parent) in placed]
        known_ends_ns = [end_ns for end_ns in ends_ns if end_ns is not None]
        if turn.after and record.t_send_ns is not None and len(known_ends_ns) == len(turn.after):
            yield record.t_send_ns - max(known_ends_ns) - s_to_ns(turn.wait_s)


# Largest relative differences of latencies from the intended and the actual send before a cell is flagged.
LIMIT_P50 = 0.01
LIMIT_P99 = 0.05
# Beyond these the client was the bottleneck. The traffic specification allows a rate error of 15 %, but
# falling behind by 0.5 % of the time already adds seconds to a long cell's queue.
MAX_RATE_ERROR = 0.005
MAX_WORKER_CPU_SHARE = 0.95
MAX_DIFFERENCE_P50 = 0.15
# Share of answers (of ``WHOLE_FROM_TOKENS`` or more) whose first and last token came at one instant; they
# have no TPOT, and their TTFT is that of the end.
MAX_WHOLE_SHARE = 0.1
STALL_US = 10_000
# A worker's stall delays everything due or arriving meanwhile; one this long affects the percentiles.
MOST_AWAY_MS = 250.0
# Limit for all stalls together, as a share of the window; at least MOST_AWAY_MS.
MOST_AWAY_SHARE = 0.02
# A request sent earlier than this was too early; the clocks of two cores differ by less.
EARLY_NS = 1_000_000
# Fewer requests show no trend.
MIN_FOR_RATE = 20


def health(spec: CellSpec, result: SessionResult, placement: Placement | None = None) -> Health:
    """Return figures about the client for ``cell.json``; units are in the names.

    ``client_limited``: TTFT or E2E from the intended send differs from that from the actual send by more than
    1 % at p50 or 5 % at p99. ``client_stalled``: a worker was stalled for more than 10 ms at once, which
    delays sends and stamps alike.
    """
    late_us = np.array(
        [(r.t_send_ns - r.t_sched_ns) / 1e3 for r in result.requests if r.t_send_ns is not None], dtype=float
    )
    window_requests = in_window(result.requests, result.window)
    difference = _send_to_schedule(result)
    # A closed loop has no rate: its requests are due when others end.
    rate_error = dispatch_rate_error(window_requests) if spec.arrival in OPEN_LOOP else None
    sent_early = sum(
        r.t_send_ns is not None and r.t_send_ns < r.t_sched_ns - EARLY_NS for r in result.requests
    )
    whole_share = whole_answer_share(window_requests)
    unsent = sum(r.error is not None and r.error.startswith(NO_SOCKET) for r in result.requests)
    sessions = None
    if spec.sessions is not None:
        sessions = session_health(result.requests, read_sessions(Path(spec.sessions)))
    bottleneck = [
        *result.deaths,
        *_off_rate(rate_error),
        *_too_early(sent_early),
        *_out_of_cpu(result.worker_cpu_share),
        *_out_of_sockets(unsent),
        *_not_streamed(whole_share),
        *_away(result),
    ]
    if spec.arrival != "offline":
        # An offline batch is due at T0 as a whole, and no client sends it at once.
        bottleneck += [*_late(difference), *(() if sessions is None else _late_turns(sessions))]
    return Health(
        dispatch_lateness_us={
            **({f"p{q}": float(np.percentile(late_us, q)) for q in (50, 90, 99)} if late_us.size else {}),
            "max": float(late_us.max()) if late_us.size else None,
        },
        dispatch_rate_error=rate_error,
        sent_early=sent_early,
        send_to_schedule_difference=difference,
        client_limited=any(
            value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
            for name, value in difference.items()
        ),
        whole_answer_share=whole_share,
        workers=spec.workers or 1,
        worker_cpu_share=tuple(result.worker_cpu_share),
        client_cpu_s=result.client_cpu_s,
        worker_rss_mib=tuple(result.worker_rss_mib),
        loop_stalls=histogram(result.stall_counts),
        loop_stall_max_us=result.stall_max_us,
        client_stalled=result.stall_max_us > STALL_US,
        max_inflight=max(
            (r.inflight_at_send + 1 for r in result.requests if r.t_send_ns is not None), default=0
        ),
        resends=sum(r.resends for r in result.requests),
        statuses=dict(sorted(Counter(r.status for r in result.requests).items())),
        requests_without_socket=unsent,
        aborted=result.aborted,
        given_up=result.given_up,
        cores_shared=placement.warning if placement is not None else None,
        sessions=UNSET if sessions is None else sessions,
        bottleneck=tuple(bottleneck),
    )


def dispatch_rate_error(requests: list[RequestRecord]) -> float | None:
    """Return the share of the rate by which the client fell behind its schedule; None for few requests.

    The median lateness of the second half minus that of the first, over the time between them: a client that
    cannot keep up falls behind steadily, while a single stall leaves the medians unchanged.
    """
    sent = [(r.t_sched_ns, r.t_send_ns - r.t_sched_ns) for r in requests if r.t_send_ns is not None]
    if len(sent) < MIN_FOR_RATE:
        return None
    table: NDArray[np.float64] = np.array(sent, dtype=np.float64)
    first, second = np.array_split(table, 2)
    elapsed_ns = np.median(second[:, 0]) - np.median(first[:, 0])
    if elapsed_ns <= 0:
        return None
    return float((np.median(second[:, 1]) - np.median(first[:, 1])) / elapsed_ns)


def whole_answer_share(requests: list[RequestRecord]) -> float | None:
    """Return the share of long answers whose tokens all came at one instant; None without long answers."""
    came_whole = [
        r.t_first_token_ns == r.t_last_token_ns
        for r in requests
        if r.status == "ok" and (r.completion_tokens or 0) >= WHOLE_FROM_TOKENS
    ]
    return sum(came_whole) / len(came_whole) if came_whole else None


def _off_rate(error: float | None) -> Iterator[str]:
    if error is not None and abs(error) > MAX_RATE_ERROR:
        deviation, direction = (
            ("fell behind", "slower") if error > 0 else ("caught up with what it was late by", "faster")
        )
        yield (
            f"client {deviation}: it sent {abs(error):.1%} {direction} than scheduled,"
            f" {MAX_RATE_ERROR:.1%} is allowed"
        )


def _too_early(sent_early: int) -> Iterator[str]:
    if sent_early:
        yield f"client sent too fast: {sent_early} requests went out before they were due"


def _out_of_cpu(worker_cpu_share: Sequence[float]) -> Iterator[str]:
    share = max(worker_cpu_share, default=0.0)
    if share > MAX_WORKER_CPU_SHARE:
        yield f"client out of CPU: a worker used {share:.0%} of a core; raise cell.workers"


def _out_of_sockets(unsent: int) -> Iterator[str]:
    if unsent:
        yield (
            f"client out of sockets: {unsent} requests were not sent for want of file descriptors or ports; "
            "raise the hard limit of open files, or cell.workers"
        )


def _not_streamed(whole_share: float | None) -> Iterator[str]:
    if whole_share is not None and whole_share > MAX_WHOLE_SHARE:
        yield (
            f"not streamed: {whole_share:.0%} of the answers came whole, all tokens at one instant, so TTFT"
            " and TPOT are none; server or client waited for a core, or something between them gathers events"
        )


def _away(result: SessionResult) -> Iterator[str]:
    window = result.window
    inside_ms = [
        [(min(until, window.t_stop_ns) - max(since, window.window_start_ns)) / 1e6 for since, until in away]
        for away in result.away_ns
    ]
    longest_ms = max((ms for away in inside_ms for ms in away), default=0.0)
    in_all_ms = max((sum(ms for ms in away if ms > 0) for away in inside_ms), default=0.0)
    most_in_all_ms = max(MOST_AWAY_MS, MOST_AWAY_SHARE * (window.t_stop_ns - window.window_start_ns) / 1e6)
    if longest_ms > MOST_AWAY_MS or in_all_ms > most_in_all_ms:
        yield (
            f"client away: a worker stood still for {longest_ms:.0f} ms of the window at once and"
            f" {in_all_ms:.0f} ms in all, stopped or without a core; {MOST_AWAY_MS:.0f} and"
            f" {most_in_all_ms:.0f} ms are allowed"
        )


def _late(difference: Mapping[str, float | None]) -> Iterator[str]:
    for name in ("ttft_p50", "e2e_p50"):
        value = difference[name]
        if value is not None and value > MAX_DIFFERENCE_P50:
            yield f"client late: its own lateness is {value:.0%} of the {name.replace('_', ' ')}"


def _late_turns(sessions: SessionHealth) -> Iterator[str]:
    if sessions.early:
        yield f"client early: {sessions.early} turns were sent before what they wait for was over"
    if sessions.late:
        yield f"client late: {sessions.late} turns were sent over {LATE_S:g} s after they were ready"


def _send_to_schedule(result: SessionResult) -> dict[str, float | None]:
    """Return the relative difference of each latency from the intended send against the actual send."""
    latencies = latencies_ms(in_window(result.requests, result.window))
    differences: dict[str, float | None] = {}
    for name in ("ttft", "e2e"):
        for q in (50, 99):
            scheduled = percentile(latencies[f"{name}_ms"], q)
            sent = percentile(latencies[f"{name}_from_send_ms"], q)
            comparable = scheduled is not None and sent is not None and sent > 0
            differences[f"{name}_p{q}"] = (scheduled - sent) / sent if comparable else None  # type: ignore[operator]
    return differences
