"""Computes the numbers of one cell for ``summary.json`` and the tables."""

import math
from collections import Counter
from collections.abc import Sequence

from connector_tax.base.documents.cell import CellSummary
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.percentiles import PERCENTILES, percentile
from connector_tax.base.units import NS_PER_MS


def in_window(requests: Sequence[RequestRecord], window: CellWindow) -> list[RequestRecord]:
    """Return the requests scheduled in the window, whatever their outcome."""
    return [r for r in requests if window.window_start_ns <= r.t_sched_ns < window.t_stop_ns]


def latencies_ms(requests: Sequence[RequestRecord]) -> dict[str, list[float]]:
    """Return TTFT, TPOT and E2E of each request in milliseconds; +infinity if it has none.

    Also TTFT and E2E from the actual send. TPOT leaves out one-token outputs, and answers that were not
    streamed have neither TTFT nor TPOT.
    """
    columns: dict[str, list[float]] = {
        k: [] for k in ("ttft_ms", "tpot_ms", "e2e_ms", "ttft_from_send_ms", "e2e_from_send_ms")
    }
    for r in requests:
        ttft, e2e, tpot = r.ttft_ns, r.e2e_ns, r.tpot_ns
        late_ns = r.t_send_ns - r.t_sched_ns if r.t_send_ns is not None else 0
        if ttft is not None or r.status != "ok":
            columns["ttft_ms"].append(math.inf if ttft is None else ttft / NS_PER_MS)
            columns["ttft_from_send_ms"].append(math.inf if ttft is None else (ttft - late_ns) / NS_PER_MS)
        columns["e2e_ms"].append(math.inf if e2e is None else e2e / NS_PER_MS)
        columns["e2e_from_send_ms"].append(math.inf if e2e is None else (e2e - late_ns) / NS_PER_MS)
        if r.status != "ok":
            columns["tpot_ms"].append(math.inf)
        elif tpot is not None:
            columns["tpot_ms"].append(tpot / NS_PER_MS)
    return columns


def effective_throughput_per_s(requests: Sequence[RequestRecord], window: CellWindow) -> float:
    """Return the completions whose last token lies in the window, per second of window.

    Requests sent during warm-up that finish in the window count, those of the drain do not: otherwise every
    slow but healthy cell would look saturated.
    """
    if window.window_s <= 0:
        return 0.0
    n_done = sum(
        1
        for r in requests
        if r.t_done_ns is not None and window.window_start_ns <= r.t_done_ns < window.t_stop_ns
    )
    return n_done / window.window_s


def summarise_cell(spec: CellSpec, window: CellWindow, requests: Sequence[RequestRecord]) -> CellSummary:
    """Return counts, throughput and percentiles of one cell; the analysis adds intervals."""
    chosen = in_window(requests, window)
    statuses = Counter(r.status for r in chosen)
    # Sessions have a rate, their requests have none.
    rate_per_s = spec.rate_per_s if spec.rate_per_s and spec.sessions is None else None
    throughput = effective_throughput_per_s(requests, window)
    # An overloaded cell's percentiles would only reflect its length.
    percentiles = {
        name: {f"p{q}": None if window.overloaded else percentile(values, q) for q in PERCENTILES}
        for name, values in latencies_ms(chosen).items()
    }
    return CellSummary(
        rate_per_s=spec.rate_per_s,
        input_tokens=spec.input_tokens,
        output_tokens=spec.output_tokens,
        window_s=window.window_s,
        n_scheduled=len(requests),
        n_window=len(chosen),
        n_ok=statuses["ok"],
        statuses=dict(sorted(statuses.items())),
        requested_throughput_per_s=rate_per_s,
        effective_throughput_per_s=throughput,
        throughput_ratio=throughput / rate_per_s if rate_per_s else None,
        **percentiles,
    )
