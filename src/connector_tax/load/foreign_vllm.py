"""Results of ``vllm bench serve --save-result``, with or without ``--save-detailed``."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.load.foreign_result import (
    DISAGREE,
    PERCENTILES,
    Count,
    Document,
    ForeignResult,
    Latencies,
    Number,
    SingleRequests,
    Stamp,
    agree,
    milliseconds,
)

NAMES = {"ttft_ms": "ttft", "tpot_ms": "tpot", "itl_ms": "itl", "e2e_ms": "e2el"}


class _Vllm(msgspec.Struct, frozen=True):
    completed: Count
    duration: Number
    request_throughput: Number
    failed: Count | None = None
    output_throughput: Number | None = None
    request_rate: float | str | None = None
    max_concurrency: Count | None = None
    # In seconds, of every request; those that failed have 0.
    start_times: list[Stamp] | None = None
    ttfts: list[Number] | None = None
    latencies: list[Number] | None = None
    queue_times: list[Number] | None = None
    itls: list[list[Number]] | None = None
    output_lens: list[Count] | None = None
    errors: list[str] | None = None


def read_vllm(path: Path, documents: Sequence[Document]) -> tuple[ForeignResult, ...]:
    """One of each document: ``--append-result`` writes several."""
    return tuple(_result(document) for document in documents)


def _result(document: Document) -> ForeignResult:
    found = document.read_as(_Vllm)
    latencies: Latencies = {}
    for ours, theirs in NAMES.items():
        names = {p: f"{p}_{theirs}_ms" for p in PERCENTILES}
        if names["p50"] not in document.members:
            names["p50"] = f"median_{theirs}_ms"
        # Of no value at all it writes 0: nothing completed, or the answers were not streamed.
        latencies[ours] = {p: document.number(name) or None for p, name in names.items()}
    requests = _requests(document, found)
    if requests is not None and not agree(latencies, requests):
        requests = None
    load = None if found.request_rate is None else f"{found.request_rate} req/s"
    notes = [
        "vllm bench serve counts TTFT and E2E from when it begins to send a request, not from when the request was due.",
        "Its ITL is the gap between two events of the stream: tokens that share an event have no gap, and events that come at once one of nearly 0.",
        "Its throughputs divide by the time until the last answer.",
    ]
    if found.failed:
        notes.append(f"Its percentiles leave out the {found.failed} requests that failed.")
    if found.max_concurrency is not None:
        load = f"{load}, at most {found.max_concurrency} at once" if load else None
        waits = f", here up to {1000 * max(found.queue_times):.1f} ms" if found.queue_times else ""
        notes.append(
            f"Its TTFT and E2E leave out how long a request waits while --max-concurrency are in flight{waits}."
        )
    if requests is None and (found.ttfts is not None or found.latencies):
        notes.append(DISAGREE)
    return ForeignResult(
        tool="vllm bench serve",
        version=None,
        load=load,
        completed=found.completed,
        failed=found.failed,
        duration_s=found.duration,
        requests_per_s=found.request_throughput,
        output_tokens_per_s=found.output_throughput,
        latencies_ms=latencies,
        requests=requests,
        notes=tuple(notes),
    )


def _requests(document: Document, found: _Vllm) -> SingleRequests | None:
    """None without them, and where it is not plain which ones completed. Without ``--save-detailed`` there is E2E alone."""
    if found.ttfts is None:
        e2e_s = [latency for latency in found.latencies or () if latency > 0]
        return SingleRequests(e2e_ms=milliseconds(e2e_s)) if e2e_s and len(e2e_s) == found.completed else None
    ttfts, n = found.ttfts, len(found.ttfts)
    itls, lengths = found.itls or [[]] * n, found.output_lens or [0] * n
    # Earlier versions have no latencies, and compute them so.
    latencies = found.latencies or [ttft + sum(gaps) for ttft, gaps in zip(ttfts, itls, strict=False)]
    starts, errors = found.start_times or [0.0] * n, found.errors or [""] * n
    for name, column in (
        ("itls", itls),
        ("output_lens", lengths),
        ("latencies", latencies),
        ("start_times", starts),
        ("errors", errors),
    ):
        if len(column) != n:
            raise ConfigError(f"{document.place}: {name} has {len(column)} values, ttfts has {n}.")
    done = [k for k in range(n) if not errors[k] and latencies[k] > 0]
    if len(done) != found.completed:
        return None
    if any(ttfts[k] > 1.01 * latencies[k] for k in done):
        return None
    done.sort(key=lambda k: starts[k])
    return SingleRequests(
        ttft_ms=milliseconds(ttfts[k] for k in done if ttfts[k] > 0),
        tpot_ms=milliseconds(
            (latencies[k] - ttfts[k]) / (lengths[k] - 1) for k in done if lengths[k] > 1 and ttfts[k] > 0
        ),
        e2e_ms=milliseconds(latencies[k] for k in done),
        itl_ms=tuple(milliseconds(itls[k]) for k in done if itls[k]),
    )
