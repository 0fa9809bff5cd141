"""The load generator's proof of itself, in every cell.

A client that sends late, or that cannot keep up, measures itself. These figures say how far it did; where the
client was the bottleneck, ``bottleneck`` says so in words and the cell is invalid.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.run.loadgen.issuer import NO_SOCKET
from connector_tax.run.loadgen.placement import Placement
from connector_tax.run.loadgen.result import SessionResult
from connector_tax.run.loadgen.session_health import LATE_S, session_health
from connector_tax.run.loadgen.stalls import histogram
from connector_tax.run.workload.arrivals import OPEN_LOOP

# TTFT from the intended and from the actual send may differ by this much before the cell is marked.
LIMIT_P50 = 0.01
LIMIT_P99 = 0.05
# Beyond these the client was the bottleneck. The traffic specification allows a rate error of 15 %; a client
# that falls behind by half a per cent of all time already adds seconds to a long cell's queue.
MAX_RATE_ERROR = 0.005
MAX_WORKER_CPU_SHARE = 0.95
MAX_DIFFERENCE_P50 = 0.15
# Answers whose first and last token came at one instant, of those long enough that no engine makes them in one step: none of
# them has a TPOT, and a TTFT only of its end.
MAX_WHOLE_SHARE = 0.1
WHOLE_FROM_TOKENS = 8
STALL_US = 10_000
# Before its time by more than that a request was sent too early; clocks of two cores differ by less.
EARLY_NS = 1_000_000
# Fewer requests tell nothing about a trend.
MIN_FOR_RATE = 20


def health(spec: CellSpec, result: SessionResult, placement: Placement | None = None) -> dict[str, Any]:
    """Figures about the client for ``cell.json``; units are in the names.

    ``client_limited`` is True where TTFT and E2E from the intended send differ from those from the
    actual send by more than 1 % at p50 or 5 % at p99; ``client_stalled`` where a worker was away for
    more than 10 ms at once, which delays sends and stamps alike.
    """
    late_us = np.array(
        [(r.t_send_ns - r.t_sched_ns) / 1e3 for r in result.requests if r.t_send_ns is not None], dtype=float
    )
    difference = _send_to_schedule(result)
    figures = {
        "dispatch_lateness_us": {
            **({f"p{q}": float(np.percentile(late_us, q)) for q in (50, 90, 99)} if late_us.size else {}),
            "max": float(late_us.max()) if late_us.size else None,
        },
        # A closed loop has no rate: its requests are due when others end.
        "dispatch_rate_error": dispatch_rate_error(in_window(result.requests, result.window))
        if spec.arrival in OPEN_LOOP
        else None,
        "sent_early": sum(
            r.t_send_ns is not None and r.t_send_ns < r.t_sched_ns - EARLY_NS for r in result.requests
        ),
        "send_to_schedule_difference": difference,
        "client_limited": any(
            value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
            for name, value in difference.items()
        ),
        "whole_answer_share": whole_answer_share(in_window(result.requests, result.window)),
        "workers": spec.workers or 1,
        "worker_cpu_share": result.worker_cpu_share,
        "client_cpu_s": sum(result.worker_cpu_s) + result.coordinator_cpu_s,
        "worker_rss_mib": result.worker_rss_mib,
        "loop_stalls": histogram(result.stall_counts),
        "loop_stall_max_us": result.stall_max_us,
        "client_stalled": result.stall_max_us > STALL_US,
        "max_inflight": max(
            (r.inflight_at_send + 1 for r in result.requests if r.t_send_ns is not None), default=0
        ),
        "resends": sum(r.resends for r in result.requests),
        "statuses": dict(sorted(Counter(r.status for r in result.requests).items())),
        "requests_without_socket": sum(
            r.error is not None and r.error.startswith(NO_SOCKET) for r in result.requests
        ),
        "aborted": result.aborted,
        "given_up": result.given_up,
        "cores_shared": placement.warning if placement is not None else None,
    }
    if spec.sessions is not None:
        figures["sessions"] = session_health(result.requests, read_sessions(Path(spec.sessions)))
    # All of an offline batch is due at T0, and no client sends it at once.
    late = [] if spec.arrival == "offline" else _late(figures)
    return {**figures, "bottleneck": [*result.deaths, *_bottleneck(figures), *late]}


def dispatch_rate_error(requests: list[RequestRecord]) -> float | None:
    """How much slower the client sent than its schedule said, as a share of the rate; None for too few.

    Lateness of the second half less that of the first (medians), over the time between them: a client that cannot
    keep up falls behind more and more, while one stall, however long, leaves the medians where they are.
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
    """Of answers of ``WHOLE_FROM_TOKENS`` tokens or more, those whose tokens all came at one instant; None without any."""
    whole = [
        r.t_first_token_ns == r.t_last_token_ns
        for r in requests
        if r.status == "ok" and (r.completion_tokens or 0) >= WHOLE_FROM_TOKENS
    ]
    return sum(whole) / len(whole) if whole else None


def _bottleneck(figures: dict[str, Any]) -> list[str]:
    reasons = []
    error = figures["dispatch_rate_error"]
    if error is not None and abs(error) > MAX_RATE_ERROR:
        what, how = (
            ("fell behind", "slower") if error > 0 else ("caught up with what it was late by", "faster")
        )
        reasons.append(
            f"client {what}: it sent {abs(error):.1%} {how} than scheduled, {MAX_RATE_ERROR:.1%} is allowed"
        )
    if figures["sent_early"]:
        reasons.append(
            f"client sent too fast: {figures['sent_early']} requests went out before they were due"
        )
    share = max(figures["worker_cpu_share"], default=0.0)
    if share > MAX_WORKER_CPU_SHARE:
        reasons.append(f"client out of CPU: a worker used {share:.0%} of a core; raise cell.workers")
    unsent = figures["requests_without_socket"]
    if unsent:
        reasons.append(
            f"client out of sockets: {unsent} requests were not sent for want of file descriptors or ports; "
            "raise the hard limit of open files, or cell.workers"
        )
    whole = figures["whole_answer_share"]
    if whole is not None and whole > MAX_WHOLE_SHARE:
        reasons.append(
            f"not streamed: {whole:.0%} of the answers came whole, all tokens at one instant, so TTFT and TPOT are none; "
            "server or client waited for a core, or something between them gathers events"
        )
    return reasons


def _late(figures: dict[str, Any]) -> list[str]:
    reasons = []
    for name in ("ttft_p50", "e2e_p50"):
        value = figures["send_to_schedule_difference"][name]
        if value is not None and value > MAX_DIFFERENCE_P50:
            reasons.append(f"client late: its own lateness is {value:.0%} of the {name.replace('_', ' ')}")
    turns = figures.get("sessions", {})
    if turns.get("early"):
        reasons.append(f"client early: {turns['early']} turns were sent before what they wait for was over")
    if turns.get("late"):
        reasons.append(
            f"client late: {turns['late']} turns were sent over {LATE_S:g} s after they were ready"
        )
    return reasons


def _send_to_schedule(result: SessionResult) -> dict[str, float | None]:
    """Relative difference of a latency counted from the schedule against the same from the send."""
    latencies = latencies_ms(in_window(result.requests, result.window))
    out: dict[str, float | None] = {}
    for name in ("ttft", "e2e"):
        for q in (50, 99):
            scheduled = percentile(latencies[f"{name}_ms"], q)
            sent = percentile(latencies[f"{name}_from_send_ms"], q)
            known = scheduled is not None and sent is not None and sent > 0
            out[f"{name}_p{q}"] = (scheduled - sent) / sent if known else None  # type: ignore[operator]
    return out
