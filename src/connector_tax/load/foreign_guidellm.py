"""Results of guidellm, ``--output kind=json``: one for each load that a run tried."""

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
    known,
    milliseconds,
)


class _Summary(msgspec.Struct, frozen=True):
    count: Count
    mean: Number | None = None
    percentiles: dict[str, Number | None] = {}


class _ByStatus(msgspec.Struct, frozen=True):
    successful: _Summary | None = None


class _Totals(msgspec.Struct, frozen=True):
    successful: Count
    errored: Count
    incomplete: Count


class _Metrics(msgspec.Struct, frozen=True):
    request_totals: _Totals
    requests_per_second: _ByStatus
    output_tokens_per_second: _ByStatus
    request_latency: _ByStatus
    time_to_first_token_ms: _ByStatus
    inter_token_latency_ms: _ByStatus


class _Request(msgspec.Struct, frozen=True):
    request_start_time: Stamp | None = None
    # In seconds.
    request_latency: Number | None = None
    time_to_first_token_ms: Number | None = None
    inter_token_latency_ms: Number | None = None


class _Requests(msgspec.Struct, frozen=True):
    successful: list[_Request] | None = None


class _Strategy(msgspec.Struct, frozen=True):
    type_: str | None = None
    rate: Number | None = None
    streams: Count | None = None


class _Config(msgspec.Struct, frozen=True):
    strategy: _Strategy = _Strategy()


class _Benchmark(msgspec.Struct, frozen=True):
    metrics: _Metrics
    duration: Number
    config: _Config = _Config()
    requests: _Requests = _Requests()
    warmup_duration: Number | None = None
    cooldown_duration: Number | None = None


class _Metadata(msgspec.Struct, frozen=True):
    guidellm_version: str | None = None


class _Guidellm(msgspec.Struct, frozen=True):
    metadata: _Metadata
    benchmarks: list[_Benchmark]


def read_guidellm(path: Path, documents: Sequence[Document]) -> tuple[ForeignResult, ...]:
    """One of each load."""
    results: list[ForeignResult] = []
    for document in documents:
        found = document.read_as(_Guidellm)
        if not found.benchmarks:
            raise ConfigError(f"{document.place}: a result of guidellm without a benchmark in it.")
        results += (_benchmark(found.metadata.guidellm_version, benchmark) for benchmark in found.benchmarks)
    return tuple(results)


def _benchmark(version: str | None, found: _Benchmark) -> ForeignResult:
    metrics, totals = found.metrics, found.metrics.request_totals
    notes = [
        "guidellm counts TTFT and E2E from when its backend begins to send a request, not from when the request was due.",
        "Its inter-token latency is that of a whole answer, (last - first token) / (tokens - 1), and stands here as TPOT; its percentiles count an answer once for each of its gaps. It has no ITL.",
        "Its own time per output token, which includes the first token's, is not TPOT and is left out.",
        "Its percentiles are values that were seen, none lies between two of them.",
    ]
    if totals.errored:
        notes.append(f"Its percentiles leave out the {totals.errored} requests that failed.")
    if totals.incomplete:
        notes.append(f"{totals.incomplete} requests were cut off at its end and are counted nowhere.")
    if found.warmup_duration or found.cooldown_duration:
        notes.append("Its numbers are of the time between warm-up and cool-down.")
    singles = sorted(found.requests.successful or (), key=lambda r: r.request_start_time or 0.0)
    sample = len(singles) != totals.successful
    latencies: Latencies = {
        "ttft_ms": _percentiles(metrics.time_to_first_token_ms),
        "tpot_ms": _percentiles(metrics.inter_token_latency_ms),
        "itl_ms": dict.fromkeys(PERCENTILES),
        "e2e_ms": _percentiles(metrics.request_latency, scale=1000.0),
    }
    requests = SingleRequests(
        ttft_ms=known(r.time_to_first_token_ms for r in singles),
        e2e_ms=milliseconds(known(r.request_latency for r in singles)),
    )
    if not agree(latencies, requests, sample=sample):
        notes.append(DISAGREE)
        singles = []
    elif singles and sample:
        notes.append(f"Single requests are a sample of {len(singles)}.")
    return ForeignResult(
        tool="guidellm",
        version=version,
        load=_strategy_text(found.config.strategy),
        completed=totals.successful,
        failed=totals.errored,
        duration_s=found.duration,
        requests_per_s=_mean(metrics.requests_per_second),
        output_tokens_per_s=_mean(metrics.output_tokens_per_second),
        latencies_ms=latencies,
        requests=requests if singles else None,
        notes=tuple(notes),
    )


def _strategy_text(strategy: _Strategy) -> str | None:
    if strategy.rate is not None:
        return f"{strategy.rate:g} req/s, {strategy.type_}"
    if strategy.streams is not None:
        return f"{strategy.streams} at once"
    return strategy.type_


def _mean(metric: _ByStatus) -> float | None:
    return metric.successful.mean if metric.successful is not None else None


def _percentiles(metric: _ByStatus, scale: float = 1.0) -> dict[str, float | None]:
    """Of no value at all it writes 0, and of answers that were not streamed it has 0 for each."""
    found = metric.successful.percentiles if metric.successful is not None else {}
    return {p: value * scale if (value := found.get(p)) else None for p in PERCENTILES}
