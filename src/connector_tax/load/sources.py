"""Prompt files and traces of other tools -> the two kinds of files that workers read: prompts (``run.workload.datasets``) and sessions
(``records.sessions``).

What a file is, is told by its content; one whose name ends in ``.gz`` is unpacked. Prompts:

=================================================  ==================================================================
``[{"conversations": [{"from": "human", ...`` ...  ShareGPT: the first thing that a human says, and how long its answer is
``{"conversations": [...]}``                       the same, one a line
``{"prompt": ..., "output_tokens": 64}``           ours, and the custom data set of ``vllm bench serve``
``{"prompt": ...}``, ``"text"``, ``"messages"``    JSONL without lengths, also inside ``"body"`` as in OpenAI's batches
anything else                                      plain text, one prompt a line
=================================================  ==================================================================

Traces: Mooncake's (JSONL: timestamp in ms, input_length, output_length, hash_ids of blocks of 512 tokens) and Azure's of 2023 and
2024 (CSV: TIMESTAMP,ContextTokens,GeneratedTokens). Sources: kvcache-ai/Mooncake, FAST25-release/traces; Azure/AzurePublicDataset,
AzureLLMInferenceDataset2023.md and 2024.md; vLLM 0.32.0, vllm/benchmarks/datasets.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import parse_json, write_bytes
from connector_tax.base.opening import MOST_LINES_BYTES, each_line_of, open_stream, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.sessions import BLOCK_TOKENS, read_sessions
from connector_tax.base.units import MOST_NS, NS_PER_MS, NS_PER_S, is_number
from connector_tax.run.workload.lengths import MOST_TOKENS, Distribution, Lengths

_BOM = b"\xef\xbb\xbf"
# Enough to see what a file is.
_HEAD_BYTES = 4096
_JSON_LIST = re.compile(rb"\s*\[\s*[{\]]")
_JSON_LINES = re.compile(rb"\s*\{")
# A tab is text.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HUMAN = frozenset({"human", "user"})
_OWN_KEYS = ({"prompt", "output_tokens"}, {"messages", "output_tokens"})
_AZURE_COLUMNS = "TIMESTAMP,ContextTokens,GeneratedTokens"
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
class _Asked:
    """One prompt of a file.

    Attributes:
        key: ``prompt`` or ``messages``.
        output_tokens: what the file says of its answer; None where it says nothing.
        own: whether the line is one of our own form.
    """

    place: str
    key: str
    content: str | list[Any]
    output_tokens: int | None
    own: bool = False


class _Said(msgspec.Struct, frozen=True):
    speaker: str | None = msgspec.field(default=None, name="from")
    value: str | None = None


class _Talk(msgspec.Struct, frozen=True):
    conversations: list[_Said] | None = None


def write_prompts(
    source: Path,
    into: Path,
    *,
    output_lengths: Distribution | None,
    seed: int,
    chars_per_token: float = 4.0,
    limit: int | None = None,
) -> int:
    """Every prompt of ``source`` in its order, written as JSONL of our own form; a file of that form is copied byte by byte.

    Args:
        output_lengths: of the answers, in place of what the file says of them; None takes that. The k-th prompt is given the k-th
            length drawn.
        seed: of the lengths.
        chars_per_token: of ShareGPT's answers: one of n characters is asked for with ``max(1, round(n / chars_per_token))`` tokens.
        limit: at most so many, the first ones.

    Returns:
        How many were written.

    Raises:
        ConfigError: no such file, nothing in it, a line that is no prompt, or nothing that says how long answers shall be.
    """
    if not (math.isfinite(chars_per_token) and chars_per_token > 0):
        raise ConfigError(f"characters per token {chars_per_token!r}: a number above 0 is wanted, such as 4.")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit {limit}: at least one prompt is wanted.")
    _refuse_same(source, into)
    prompts = list(islice(_prompts(source, chars_per_token), limit))
    if not prompts:
        raise ConfigError(f"{source}: holds no prompt.")
    if output_lengths is None and limit is None and all(p.own for p in prompts):
        write_bytes(into, _whole(source))
        return len(prompts)
    drawn = None if output_lengths is None else Lengths(output_lengths, seed, "output")
    lines = []
    for k, prompt in enumerate(prompts):
        output_tokens = prompt.output_tokens if drawn is None else drawn.of(k)
        if output_tokens is None:
            raise ConfigError(
                f"{source}: {prompt.place} does not say how long its answer shall be. Give --output-length, such as 128 or "
                "lognormal:256,200, or output_tokens in every line."
            )
        lines.append(msgspec.json.encode({prompt.key: prompt.content, "output_tokens": output_tokens}))
    write_bytes(into, b"\n".join(lines) + b"\n")
    return len(prompts)


def _prompts(source: Path, chars_per_token: float) -> Iterator[_Asked]:
    head = _head(source)
    if _JSON_LIST.match(head):
        return _share_gpt(source, chars_per_token)
    if _JSON_LINES.match(head):
        return _json_lines(source, chars_per_token)
    return _plain_text(source)


def _share_gpt(source: Path, chars_per_token: float) -> Iterator[_Asked]:
    try:
        talks = msgspec.json.decode(_whole(source), type=list[_Talk])
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source}: a JSON list that cannot be read ({error}). {_SHARE_GPT_WANTED}"
        ) from error
    found = [
        asked
        for k, talk in enumerate(talks)
        if (asked := _first_question(f"entry {k}", talk, chars_per_token)) is not None
    ]
    if not found:
        raise ConfigError(
            f"{source}: none of its {len(talks)} entries has a human's turn and the answer. {_SHARE_GPT_WANTED}"
        )
    return iter(found)


_SHARE_GPT_WANTED = (
    'Wanted is ShareGPT, [{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}, ...], or one '
    "JSON object per line."
)


def _first_question(place: str, talk: _Talk, chars_per_token: float) -> _Asked | None:
    """None where the first human turn has no answer behind it, or one of them is empty."""
    for question, answer in pairwise(talk.conversations or ()):
        if question.speaker not in _HUMAN:
            continue
        asked, answered = question.value or "", answer.value or ""
        if answer.speaker in _HUMAN or not asked.strip() or not answered.strip():
            return None
        tokens = max(1, round(min(len(answered) / chars_per_token, MOST_TOKENS)))
        return _Asked(place, "prompt", asked, tokens)
    return None


def _json_lines(source: Path, chars_per_token: float) -> Iterator[_Asked]:
    for number, line in _lines(source):
        place = f"line {number}"
        with _at(source, place):
            value = _json(line)
            if not isinstance(value, dict):
                raise ValueError(f"{shown(value)} is no JSON object, as the first line is one")
            if "conversations" in value:
                talk = msgspec.convert(value, _Talk)
                asked = _first_question(place, talk, chars_per_token)
            else:
                asked = _of_object(place, value)
        if asked is not None:
            yield asked


def _of_object(place: str, value: Foreign) -> _Asked:
    body = value.get("body")
    told = body if isinstance(body, dict) else value
    key = next((k for k in ("prompt", "messages", "text") if k in told), None)
    if key is None:
        keys = shown(", ".join(map(str, told)))
        raise ValueError(f"no prompt: wanted is one of the keys prompt, messages and text, found are {keys}")
    content = told[key]
    if key == "messages":
        fits = isinstance(content, list) and all(isinstance(m, dict) and "role" in m for m in content)
        if not content or not fits:
            raise ValueError(
                "messages: a list of objects with role and content is wanted, and not an empty one"
            )
    else:
        is_ids = isinstance(content, list) and all(type(i) is int and i >= 0 for i in content)
        if not content or not (is_ids or isinstance(content, str)):
            raise ValueError(f"{key}: a text or a list of token ids is wanted, and not an empty one")
    output_tokens = told.get("output_tokens")
    if output_tokens is not None and (
        type(output_tokens) is not int or not 1 <= output_tokens <= MOST_TOKENS
    ):
        raise ValueError(
            f"output_tokens: {shown(output_tokens)} is not a whole number from 1 to {MOST_TOKENS}"
        )
    own = value.keys() in _OWN_KEYS and output_tokens is not None
    return _Asked(place, "messages" if key == "messages" else "prompt", content, output_tokens, own)


def _plain_text(source: Path) -> Iterator[_Asked]:
    for number, line in _lines(source):
        with _at(source, f"line {number}"):
            text = line.decode("utf-8").removesuffix("\r")
            if _CONTROL.search(text):
                raise ValueError(
                    "a control character: this is no text. Known are ShareGPT (JSON), JSONL with prompt, messages or text, and plain "
                    "text with one prompt a line"
                )
        yield _Asked(f"line {number}", "prompt", text, None)


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
    _refuse_same(source, into)
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
    _, first = next(_lines(source), (0, b""))
    if not _JSON_LINES.match(first):
        return False
    with _at(source, "line 1"):
        value = _json(first)
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
    values = [(at, _json(line)) for at, (_, line) in zip(known, _lines(source), strict=True)]
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
    lines = _lines(source)
    _, first = next(lines, (0, b""))
    if _JSON_LINES.match(first):
        return _parsed(source, _lines(source), lambda line: _mooncake(_json(line)))
    if first.strip().lower() == _AZURE_COLUMNS.lower().encode():
        return _parsed(source, lines, _azure)
    found = shown(first[:200].decode("utf-8", errors="replace"))
    raise ConfigError(f"{source}: begins with {found}, as no trace does that is known. {_KNOWN_TRACES}")


def _parsed(
    source: Path, lines: Iterable[tuple[int, bytes]], parse: Callable[[bytes], _Arrival]
) -> Iterator[_Arrival]:
    for number, line in lines:
        with _at(source, f"line {number}"):
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
    input_tokens = _tokens("input_length", value["input_length"])
    output_tokens = _tokens("output_length", value["output_length"])
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


def _azure(line: bytes) -> _Arrival:
    cells = [cell.strip() for cell in line.decode("utf-8").split(",")]
    if len(cells) != 3:
        raise ValueError(f"{len(cells)} columns, wanted are {_AZURE_COLUMNS}")
    at_ns = _azure_time_ns(cells[0])
    lengths = []
    for name, cell in zip(_AZURE_COLUMNS.split(",")[1:], cells[1:], strict=True):
        # No length has more digits than these; longer numbers cost time to parse.
        lengths.append(_tokens(name, int(cell) if is_number(cell) and len(cell) <= 12 else cell))
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


def _tokens(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_TOKENS:
        raise ValueError(
            f"{name}: {shown(value)} is not a whole number from 1 to {MOST_TOKENS}. Mend the line or take it out"
        )
    return value


def _json(line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error}), as which a file is read that begins with {{") from error


@contextmanager
def _at(source: Path, place: str) -> Iterator[None]:
    """What is wrong in a line, with its place in front."""
    try:
        yield
    except (ValueError, KeyError, RecursionError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{source}: {place}: {what}.") from error


@contextmanager
def _reading(source: Path) -> Iterator[Path]:
    """The file that a person named, links on the way to it followed."""
    try:
        yield source.resolve()
    except FileNotFoundError as error:
        raise ConfigError(f"{source}: no such file.") from error
    except ArtifactError as error:
        raise ConfigError(str(error)) from error
    # RuntimeError: links in a circle; ValueError: a name that holds a null byte.
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{source}: cannot be read ({error}).") from error


def _head(source: Path) -> bytes:
    with _reading(source) as path, open_stream(path, MOST_LINES_BYTES) as file:
        return file.read(_HEAD_BYTES).removeprefix(_BOM)


def _whole(source: Path) -> bytes:
    with _reading(source) as path, open_stream(path, MOST_LINES_BYTES) as file:
        content = file.read(MOST_LINES_BYTES + 1)
    if len(content) > MOST_LINES_BYTES:
        raise ConfigError(f"{source}: has more than {MOST_LINES_BYTES} bytes. Give a part of it.")
    return content.removeprefix(_BOM)


def _lines(source: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, content) of each line that is not empty."""
    with _reading(source) as path:
        for number, line in enumerate(each_line_of(path, MOST_LINES_BYTES), start=1):
            content = line.removeprefix(_BOM) if number == 1 else line
            if content.strip():
                yield number, content


def _refuse_same(source: Path, into: Path) -> None:
    with _reading(source) as path:
        if path == into.resolve():
            raise ConfigError(f"{source}: would be written over. Give another name.")
