"""Traces of other tools -> session files (``records.sessions``), a session of one turn per request.

Mooncake's (JSONL: timestamp in ms, input_length, output_length, hash_ids of blocks of 512 tokens) and Azure's of 2023 and
2024 (CSV: TIMESTAMP,ContextTokens,GeneratedTokens). Sources: kvcache-ai/Mooncake, FAST25-release/traces; Azure/AzurePublicDataset,
AzureLLMInferenceDataset2023.md and 2024.md.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_bytes
from connector_tax.base.opening import shown
from connector_tax.base.records.sessions import BLOCK_TOKENS, read_sessions
from connector_tax.base.units import MOST_NS, NS_PER_MS, NS_PER_S, is_number
from connector_tax.load.source_files import JSON_LINES, at, json_of, lines_of, refuse_same, tokens_of

_AZURE_COLUMNS = "TIMESTAMP,ContextTokens,GeneratedTokens"
# What pandas calls a column of row numbers, when it writes one and when it reads one back.
_INDEX = ("", "Unnamed: 0")
_AZURE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_MS = MOST_NS / NS_PER_MS
_KNOWN_TRACES = (
    'Known are Mooncake (JSONL: {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}) and '
    f"Azure (CSV with the header {_AZURE_COLUMNS})."
)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """One request of a trace; its clock begins anywhere."""

    at_ns: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


def write_trace(source: Path, into: Path, *, speed: float) -> int:
    """A trace as a session file, a session of one turn per request; the first arrives at 0, the others after it in order of time.

    Args:
        speed: what its times are divided by: 2 is twice as fast.

    Returns:
        How many requests it has.

    Raises:
        ConfigError: no such file, no trace that is known, a line that is none of its requests, or an impossible speed.
    """
    if not (math.isfinite(speed) and speed > 0):
        raise ConfigError(f"speed {speed!r}: a number above 0 is wanted; 2 is twice as fast as the trace.")
    refuse_same(source, into)
    if _is_sessions(source):
        return _write_sessions(source, into, speed)
    arrivals = sorted(_arrivals(source), key=lambda arrival: arrival.at_ns)
    if not arrivals:
        raise ConfigError(f"{source}: holds no request of a trace. {_KNOWN_TRACES}")
    start_ns = arrivals[0].at_ns
    last_s = (arrivals[-1].at_ns - start_ns) / NS_PER_S / speed
    if not last_s <= MOST_NS / NS_PER_S:
        raise ConfigError(f"speed {speed!r}: the last request of {source} would be due after {last_s:g} s.")
    lines = (_session(a, (a.at_ns - start_ns) / NS_PER_S / speed) for a in arrivals)
    write_bytes(into, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return len(arrivals)


def _is_sessions(source: Path) -> bool:
    _, first = next(lines_of(source), (0, b""))
    if not JSON_LINES.match(first):
        return False
    with at(source, "line 1"):
        value = json_of(first)
    return isinstance(value, dict) and "turns" in value


def _write_sessions(source: Path, into: Path, speed: float) -> int:
    """A session file whose sessions have times of their own, in order of these, the first at 0."""
    arrivals = [session.arrival_s for session in read_sessions(source)]
    known = [a for a in arrivals if a is not None]
    if len(known) < len(arrivals):
        raise ConfigError(
            f"{source}: {len(arrivals) - len(known)} of {len(arrivals)} sessions have no arrival_s, so it is no trace. Give it as "
            "--sessions, with a rate."
        )
    values = [(at, json_of(line)) for at, (_, line) in zip(known, lines_of(source), strict=True)]
    lines = [
        msgspec.json.encode({**value, "arrival_s": (at - min(known)) / speed})
        for at, value in sorted(values, key=lambda pair: pair[0])
    ]
    write_bytes(into, b"\n".join(lines) + b"\n")
    return len(lines)


class _Turn(msgspec.Struct, frozen=True):
    new_tokens: int
    output_tokens: int


class _Session(msgspec.Struct, frozen=True):
    turns: tuple[_Turn, ...]
    arrival_s: float


class _Mooncake(msgspec.Struct, frozen=True):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def _session(arrival: _Arrival, arrival_s: float) -> _Session | _Mooncake:
    """A line of a session file. Shared blocks are said in Mooncake's own words, which such a file may hold."""
    if arrival.blocks:
        return _Mooncake(arrival_s * 1000, arrival.input_tokens, arrival.output_tokens, arrival.blocks)
    return _Session((_Turn(arrival.input_tokens, arrival.output_tokens),), arrival_s)


def _arrivals(source: Path) -> Iterator[_Arrival]:
    lines = lines_of(source)
    _, first = next(lines, (0, b""))
    if JSON_LINES.match(first):
        return _parsed(source, lines_of(source), lambda line: _mooncake(json_of(line)))
    try:
        header = _cells(first)
    except ValueError:
        header = []
    skipped = int(bool(header) and header[0] in _INDEX)
    if ",".join(header[skipped:]).lower() == _AZURE_COLUMNS.lower():
        return _parsed(source, lines, lambda line: _azure(line, skipped))
    found = shown(first[:200].decode("utf-8", errors="replace"))
    raise ConfigError(f"{source}: begins with {found}, as no trace does that is known. {_KNOWN_TRACES}")


def _parsed(
    source: Path, lines: Iterable[tuple[int, bytes]], parse: Callable[[bytes], _Arrival]
) -> Iterator[_Arrival]:
    for number, line in lines:
        with at(source, f"line {number}"):
            arrival = parse(line)
        yield arrival


def _mooncake(value: Any) -> _Arrival:
    known = {"timestamp", "input_length", "output_length", "hash_ids"}
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is no JSON object")
    if unknown := value.keys() - known:
        # A session's id, a delay or a text would say more of the request than is sent.
        raise ValueError(f"unknown key {shown(min(unknown))}. Allowed: {', '.join(sorted(known))}")
    timestamp_ms = value["timestamp"]
    if type(timestamp_ms) not in (int, float) or not abs(timestamp_ms) < _MOST_MS:
        raise ValueError(f"timestamp: {shown(timestamp_ms)} is no number of milliseconds")
    input_tokens = tokens_of("input_length", value["input_length"])
    output_tokens = tokens_of("output_length", value["output_length"])
    blocks = value.get("hash_ids", [])
    if not isinstance(blocks, list) or not all(type(b) is int and b >= 0 for b in blocks):
        raise ValueError(f"hash_ids: {shown(blocks)} is no list of whole numbers of 0 or more")
    whole = input_tokens // BLOCK_TOKENS
    wanted = -(-input_tokens // BLOCK_TOKENS)
    if blocks and not whole <= len(blocks) <= wanted:
        raise ValueError(
            f"hash_ids: {len(blocks)} of them, where {input_tokens} tokens make {wanted} blocks of {BLOCK_TOKENS}. Traces with blocks of "
            "another size are not provided for"
        )
    return _Arrival(round(timestamp_ms * NS_PER_MS), input_tokens, output_tokens, tuple(blocks))


def _cells(line: bytes) -> list[str]:
    """Of a line of CSV, quoted or not; none holds a line's end."""
    try:
        return [cell.strip() for cell in next(csv.reader([line.decode("utf-8").strip()]), [])]
    except csv.Error as error:
        raise ValueError(f"no CSV ({error})") from error


def _azure(line: bytes, skipped: int) -> _Arrival:
    cells = _cells(line)[skipped:]
    if len(cells) != 3:
        raise ValueError(f"{len(cells)} columns, wanted are {_AZURE_COLUMNS}")
    at_ns = _azure_time_ns(cells[0])
    lengths = []
    for name, cell in zip(_AZURE_COLUMNS.split(",")[1:], cells[1:], strict=True):
        # No length has more digits than these; longer numbers cost time to parse.
        lengths.append(tokens_of(name, int(cell) if is_number(cell) and len(cell) <= 12 else cell))
    return _Arrival(at_ns, lengths[0], lengths[1])


def _azure_time_ns(text: str) -> int:
    """Since 1970, exactly: 2023's have seven digits behind the point, 2024's six or none and a zone. Without a zone it is UTC."""
    match = _AZURE_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"TIMESTAMP: {shown(text)} is no time such as 2023-11-16 18:17:03.9799600")
    day, time, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time}{zone or '+00:00'}")
    except ValueError as error:
        raise ValueError(f"TIMESTAMP: {shown(text)}: {error}") from error
    return (moment - _EPOCH) // timedelta(seconds=1) * NS_PER_S + int((fraction or "0").ljust(9, "0"))
