"""The load generator's proof of itself, in every cell.

A client that sends late, or that cannot keep up, measures itself. These figures say how far it did.
"""

from collections import Counter
from typing import Any

import numpy as np

from connector_tax.loadgen.session import SessionResult
from connector_tax.records.cell import CellSpec
from connector_tax.summary.cell import in_window, latencies_ms
from connector_tax.summary.percentiles import percentile

# TTFT from the intended and from the actual send may differ by this much before the cell is marked.
LIMIT_P50 = 0.01
LIMIT_P99 = 0.05


def health(spec: CellSpec, result: SessionResult) -> dict[str, Any]:
    """Figures about the client for ``cell.json``; units are in the names.

    ``client_limited`` is True where TTFT and E2E from the intended send differ from those from the
    actual send by more than 1 % at p50 or 5 % at p99.
    """
    late_us = np.array(
        [(r.t_send_ns - r.t_sched_ns) / 1e3 for r in result.requests if r.t_send_ns is not None], dtype=float
    )
    window = result.window
    span_s = (window.t_stop_ns - window.t0_ns) / 1e9
    difference = _send_to_schedule(result)
    # Arrival 0 is due at T0, so a span holds one arrival more than its gaps.
    expected = span_s * spec.rate_per_s
    return {
        "dispatch_lateness_us": {
            **({f"p{q}": float(np.percentile(late_us, q)) for q in (50, 90, 99)} if late_us.size else {}),
            "max": float(late_us.max()) if late_us.size else None,
        },
        "dispatch_rate_error": (len(result.requests) - expected) / expected
        if spec.arrival == "fixed"
        else None,
        "send_to_schedule_difference": difference,
        "client_limited": any(
            value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
            for name, value in difference.items()
        ),
        "client_cpu_share": result.client_cpu_s / result.wall_s if result.wall_s > 0 else None,
        "loop_stalls": result.stalls.histogram(),
        "loop_stall_max_us": result.stalls.max_us,
        "max_inflight": result.max_inflight,
        "statuses": dict(sorted(Counter(r.status for r in result.requests).items())),
        "aborted": result.aborted,
    }


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
