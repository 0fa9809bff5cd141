"""Results of aiperf: ``profile_export_aiperf.json``, and the single requests of ``profile_export.jsonl``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import shown
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
    read_documents,
)


class _Metric(msgspec.Struct, frozen=True):
    unit: str
    avg: Number | None = None
    p50: Number | None = None
    p90: Number | None = None
    p99: Number | None = None


class _Phase(msgspec.Struct, frozen=True):
    type: str | None = None
    rate: Number | None = None
    concurrency: Count | None = None


class _InputConfig(msgspec.Struct, frozen=True):
    phases: list[_Phase] = []


class _Aiperf(msgspec.Struct, frozen=True):
    request_count: _Metric | None = None
    completed_request_count: _Metric | None = None
    error_request_count: _Metric | None = None
    benchmark_duration: _Metric | None = None
    request_throughput: _Metric | None = None
    output_token_throughput: _Metric | None = None
    time_to_first_token: _Metric | None = None
    inter_token_latency: _Metric | None = None
    inter_chunk_latency: _Metric | None = None
    request_latency: _Metric | None = None
    credit_to_start_latency: _Metric | None = None
    aiperf_version: str | None = None
    was_cancelled: bool = False
    input_config: _InputConfig = _InputConfig()


class _Value(msgspec.Struct, frozen=True):
    value: Number | list[Number]
    unit: str


class _RecordMetadata(msgspec.Struct, frozen=True):
    request_start_ns: Stamp
    benchmark_phase: str | None = None
    was_cancelled: bool = False


class _RecordMetrics(msgspec.Struct, frozen=True):
    time_to_first_token: _Value | None = None
    inter_token_latency: _Value | None = None
    inter_chunk_latency: _Value | None = None
    request_latency: _Value | None = None


class _Record(msgspec.Struct, frozen=True):
    metadata: _RecordMetadata
    metrics: _RecordMetrics
    error: Any = None


_NAMES = {
    "ttft_ms": "time_to_first_token",
    "tpot_ms": "inter_token_latency",
    "itl_ms": "inter_chunk_latency",
    "e2e_ms": "request_latency",
}
_IN_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "sec": 1e3, "s": 1e3}
SUMMARY, RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
_NOTES = (
    "aiperf counts TTFT and E2E from when its worker begins to send a request, not from when the request was due.",
    "Its inter-token latency is that of a whole answer, (last - first token) / (tokens - 1), and stands here as TPOT; its inter-chunk latency stands here as ITL.",
)


def read_aiperf(path: Path, documents: Sequence[Document]) -> tuple[ForeignResult, ...]:
    """``profile_export_aiperf.json``, and with it the single requests of the file beside it, if it has as many."""
    return tuple(_aiperf(path, document.read_as(_Aiperf)) for document in documents)


def _aiperf(path: Path, found: _Aiperf) -> ForeignResult:
    completed = _whole(path, "request_count", found.request_count) or 0
    failed = _whole(path, "error_request_count", found.error_request_count)
    both = _whole(path, "completed_request_count", found.completed_request_count)
    # It does not write a count of no failures.
    if failed is None and both == completed:
        failed = 0
    notes = list(_NOTES)
    if failed:
        notes.append(f"Its percentiles leave out the {failed} requests that failed.")
    late = _in_ms(path, "credit_to_start_latency", found.credit_to_start_latency)
    if late["p50"] is not None:
        notes.append(
            f"A request began p50 {late['p50']:.2f} ms after it was handed to a worker, which is in none of its latencies."
        )
    if found.was_cancelled:
        notes.append("The run was cancelled.")
    duration_s = _scaled(path, "benchmark_duration", found.benchmark_duration, {"sec": 1.0})
    requests_per_s = _scaled(path, "request_throughput", found.request_throughput, {"requests/sec": 1.0})
    tokens_per_s = _scaled(
        path, "output_token_throughput", found.output_token_throughput, {"tokens/sec": 1.0}
    )
    if duration_s and requests_per_s and completed / requests_per_s > 1.01 * duration_s:
        notes.append(
            f"Its throughputs divide by {completed / requests_per_s:.3f} s, the whole phase, and its duration is that from the first "
            "request's start to the last one's end."
        )
    latencies: Latencies = {
        ours: _in_ms(path, theirs, getattr(found, theirs)) for ours, theirs in _NAMES.items()
    }
    requests = None
    beside = path.with_name(RECORDS)
    if path.name == SUMMARY and beside.exists():
        (records,) = read_aiperf_records(beside, read_documents(beside))
        singles = records.requests
        if records.completed == completed and singles is not None and agree(latencies, singles):
            requests = singles
            notes.append(f"Values of single requests are from {RECORDS} beside it.")
        else:
            notes.append(f"{DISAGREE} They are from {RECORDS} beside it.")
    return ForeignResult(
        tool="aiperf",
        version=found.aiperf_version,
        load=_load_text(found.input_config.phases),
        completed=completed,
        failed=failed,
        duration_s=duration_s,
        requests_per_s=requests_per_s,
        output_tokens_per_s=tokens_per_s,
        latencies_ms=latencies,
        requests=requests,
        notes=tuple(notes),
    )


def read_aiperf_records(path: Path, documents: Sequence[Document]) -> tuple[ForeignResult, ...]:
    """``profile_export.jsonl``: single requests and nothing besides."""
    every = [document.read_as(_Record) for document in documents]
    records = [r for r in every if r.metadata.benchmark_phase in (None, "profiling")]
    done = [r for r in records if r.error is None and not r.metadata.was_cancelled]
    done.sort(key=lambda r: r.metadata.request_start_ns)
    failed = len(records) - len(done)
    columns = {
        ours: [
            _values_ms(path, theirs, value) for r in done if (value := getattr(r.metrics, theirs)) is not None
        ]
        for ours, theirs in _NAMES.items()
    }
    one_each = {
        ours: tuple(v for values in columns[ours] for v in values)
        for ours in ("ttft_ms", "tpot_ms", "e2e_ms")
    }
    return (
        ForeignResult(
            tool="aiperf",
            version=None,
            load=None,
            completed=len(done),
            failed=failed,
            duration_s=None,
            requests_per_s=None,
            output_tokens_per_s=None,
            latencies_ms={name: dict.fromkeys(PERCENTILES) for name in _NAMES},
            requests=SingleRequests(**one_each, itl_ms=tuple(v for v in columns["itl_ms"] if v)),
            notes=(
                *_NOTES,
                f"The file has single requests alone; {SUMMARY} has the rest.",
            ),
        ),
    )


def _load_text(phases: Sequence[_Phase]) -> str | None:
    """Of the last phase, behind warm-ups."""
    if not phases:
        return None
    phase = phases[-1]
    at_once = f"at most {phase.concurrency} at once" if phase.concurrency is not None else None
    rate = f"{phase.rate:g} req/s, {phase.type}" if phase.rate is not None else None
    return ", ".join(part for part in (rate, at_once) if part) or phase.type


def _whole(path: Path, name: str, metric: _Metric | None) -> int | None:
    value = _scaled(path, name, metric, {"requests": 1.0})
    return None if value is None else round(value)


def _scaled(path: Path, name: str, metric: _Metric | None, units: Mapping[str, float]) -> float | None:
    if metric is None or metric.avg is None:
        return None
    return metric.avg * _factor(path, name, metric.unit, units)


def _in_ms(path: Path, name: str, metric: _Metric | None) -> dict[str, float | None]:
    if metric is None:
        return dict.fromkeys(PERCENTILES)
    factor = _factor(path, name, metric.unit, _IN_MS)
    found = {"p50": metric.p50, "p90": metric.p90, "p99": metric.p99}
    return {p: None if value is None else value * factor for p, value in found.items()}


def _values_ms(path: Path, name: str, value: _Value) -> tuple[float, ...]:
    factor = _factor(path, name, value.unit, _IN_MS)
    return tuple(v * factor for v in (value.value if isinstance(value.value, list) else [value.value]))


def _factor(path: Path, name: str, unit: str, units: Mapping[str, float]) -> float:
    if unit not in units:
        raise ConfigError(f"{path}: {name} is in {shown(unit)}; known are {', '.join(units)}.")
    return units[unit]
