"""Converts files of other tools to files that workers read.

Prompts become files of ``run.workload.prompts``, traces become session files.

Prompts. The content decides the format; a file whose name ends in ``.gz`` is unpacked. Plain text may not be
named like a table or JSON.
Source: vLLM 0.32.0, vllm/benchmarks/datasets.

=================================================  ===========================================================
``[{"conversations": [{"from": "human", ...`` ...  ShareGPT: the first human turn, and its answer's length
``{"conversations": [...]}``                       the same, one per line
``{"prompt": ..., "output_tokens": 64}``           ours, and the custom data set of ``vllm bench serve``
``{"prompt": ...}``, ``"text"``, ``"messages"``    JSONL without lengths, also in ``"body"`` (OpenAI batches)
anything else                                      plain text, one prompt per line
=================================================  ===========================================================

Traces. Each request becomes a session of one turn. Known are Mooncake's (JSONL: timestamp in ms,
input_length, output_length, hash_ids of blocks of 512 tokens) and Azure's of 2023 and 2024 (CSV:
TIMESTAMP,ContextTokens,GeneratedTokens). Sources: kvcache-ai/Mooncake, FAST25-release/traces;
Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md. A session file with arrival times is a
trace as well.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import MOST_BYTES, open_stream, parse_json, shown, write_bytes
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.sessions import BLOCK_TOKENS, session_of
from connector_tax.base.units import MOST_NS, NS_PER_MS, NS_PER_S, s_to_ns
from connector_tax.run.workload.lengths import MOST_TOKENS, Distribution, Lengths
from connector_tax.run.workload.prompts import prompt_of

Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
JSON_LINES = re.compile(rb"\s*\{")


def json_of(line: bytes) -> Foreign:
    """Parse the JSON object of a line."""
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError("no JSON object, as the first line is one")
    return value


@contextmanager
def at(source: Path, number: int, line: bytes) -> Iterator[None]:
    """Turn an error in a line into a ConfigError with its place and content."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        problem = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        line_text = shown(line[:200].decode(errors="replace"))
        raise ConfigError(
            f"{source}: line {number}: {problem}. Found: {line_text}. Mend the line or take it out."
        ) from error


def read(source: Path, into: Path) -> bytes:
    """Return the content of a file that a person named.

    Raises:
        ConfigError: it cannot be read, or is the output file.
    """
    try:
        with open_stream(source) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{source}: no such file.") from error
    except ArtifactError as error:
        raise ConfigError(str(error)) from error
    if into.exists() and into.samefile(source):
        raise ConfigError(f"{source}: would be written over. Give another name.")
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{source}: has more than {MOST_BYTES} bytes. Give a part of it.")
    return content.removeprefix(b"\xef\xbb\xbf")


def lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, content) of each non-empty line."""
    yield from ((n, line) for n, line in enumerate(content.split(b"\n"), start=1) if line.strip())


# --- Prompts

_JSON_LIST = re.compile(rb"\s*\[\s*[{\]]")
# A tab counts as text.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Lines of such files are no prompts: a table begins with the names of its columns.
_NO_TEXT = frozenset({".csv", ".tsv", ".json", ".jsonl"})
_HUMAN = frozenset({"human", "user"})
_SHARE_GPT_WANTED = (
    'Wanted is ShareGPT, [{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value":'
    ' "..."}]}, ...], or one JSON object per line.'
)
# The entry's place, and its output line, whose output_tokens are None if the file gives no length. None for a
# conversation without a question and its answer.
Asked = tuple[str, Foreign | None]


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
    """Write every prompt of ``source`` in order, as JSONL of our own form.

    Args:
        output_lengths: of answers, replacing the file's; the k-th prompt gets the k-th draw. None: the
            file's.
        seed: of the lengths.
        chars_per_token: ShareGPT: an answer of n characters becomes ``max(1, round(n / chars_per_token))``
            tokens.
        limit: write at most the first this many.

    Returns:
        How many were written.

    Raises:
        ConfigError: the file is missing or empty, a line is no prompt, or nothing gives the answers' lengths.
    """
    length_source = None if output_lengths is None else Lengths(output_lengths, seed, "output")
    lines: list[bytes] = []
    left_out, unsaid = 0, ""
    for entry_name, prompt in _prompts(source, read(source, into), chars_per_token):
        if prompt is None:
            left_out += 1
            continue
        if length_source is not None:
            prompt["output_tokens"] = length_source.of(len(lines))
        if prompt["output_tokens"] is None:
            unsaid = unsaid or entry_name
        lines.append(msgspec.json.encode(prompt))
        if len(lines) == limit:
            break
    if not lines:
        detail = f" of its {left_out} entries has a human's turn and the answer. {_SHARE_GPT_WANTED}"
        raise ConfigError(f"{source}: none{detail}" if left_out else f"{source}: holds no prompt.")
    if unsaid:
        raise ConfigError(
            f"{source}: {unsaid} does not say how long its answer shall be. Give --output-length, such as 128"
            " or lognormal:256,200, or output_tokens in every line."
        )
    if left_out:
        print(
            f"{source}: {left_out} of {left_out + len(lines)} entries are left out: no human's turn (from,"
            " value) has an answer behind it in them.",
            file=sys.stderr,
        )
    write_bytes(into, b"\n".join(lines) + b"\n")
    return len(lines)


def _prompts(source: Path, content: bytes, chars_per_token: float) -> Iterator[Asked]:
    if _JSON_LIST.match(content):
        try:
            talks = msgspec.json.decode(content, type=list[_Talk])
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{source}: a JSON list that cannot be read ({error}). {_SHARE_GPT_WANTED}"
            ) from error
        for k, talk in enumerate(talks):
            yield f"entry {k}", _first_question(talk, chars_per_token)
        return
    in_json = JSON_LINES.match(content)
    if not in_json and Path(source.name.removesuffix(".gz")).suffix.lower() in _NO_TEXT:
        raise ConfigError(
            f"{source}: named {source.name}, and holds no JSON objects. Its lines are not taken for prompts:"
            ' give one JSON object per line, {"prompt": "..."}, or plain text, one prompt a line, in a'
            " .txt file."
        )
    for number, line in lines_of(content):
        with at(source, number, line):
            prompt = _of_object(json_of(line), chars_per_token) if in_json else _of_text(line)
        yield f"line {number}", prompt


def _first_question(talk: _Talk, chars_per_token: float) -> Foreign | None:
    """Return the first human turn with its answer's length; None if either is missing or empty."""
    for question, answer in pairwise(talk.conversations or ()):
        if question.speaker not in _HUMAN:
            continue
        question_text, answer_text = question.value or "", answer.value or ""
        if answer.speaker in _HUMAN or not question_text.strip() or not answer_text.strip():
            return None
        tokens = max(1, round(min(len(answer_text) / chars_per_token, MOST_TOKENS)))
        return {"prompt": question_text, "output_tokens": tokens}
    return None


def _of_object(value: Foreign, chars_per_token: float) -> Foreign | None:
    if "conversations" in value:
        return _first_question(msgspec.convert(value, _Talk), chars_per_token)
    fields = value["body"] if isinstance(value.get("body"), dict) else value
    key = next((k for k in ("prompt", "messages", "text") if k in fields), None)
    if key is None:
        raise ValueError("no prompt: wanted is one of the keys prompt, messages and text")
    tokens = fields.get("output_tokens")
    prompt = {"messages" if key == "messages" else "prompt": fields[key], "output_tokens": tokens}
    prompt_of(prompt if tokens is not None else {**prompt, "output_tokens": 1})
    return prompt


def _of_text(line: bytes) -> Foreign:
    text = line.decode().removesuffix("\r")
    if _CONTROL.search(text):
        raise ValueError(
            "a control character: this is no text. Known are ShareGPT (JSON), JSONL with prompt, messages or"
            " text, and plain text with one prompt a line"
        )
    return {"prompt": text, "output_tokens": None}


# --- Traces

_AZURE_COLUMNS = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
# Names that pandas gives a column of row numbers, when writing and when reading it back.
_INDEX = ("", "Unnamed: 0")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_MS = MOST_NS / NS_PER_MS
_KNOWN_TRACES = (
    'Known are Mooncake (JSONL: {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids":'
    " [46, 47, ...]}) and "
    f"Azure (CSV with the header {','.join(_AZURE_COLUMNS)})."
)
_Seconds = Annotated[float, Meta(ge=0, le=MOST_NS / NS_PER_S)]
# Nanoseconds on a clock with any origin, and a line of a session file.
Arrival = tuple[int, Foreign]


class _Mooncake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request. Fields that ask for more than is sent (session id, delay, text) are refused."""

    timestamp: Annotated[float, Meta(gt=-_MOST_MS, lt=_MOST_MS)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: tuple[Annotated[int, Meta(ge=0)], ...] = ()


class _Azure(msgspec.Struct, frozen=True):
    TIMESTAMP: datetime
    ContextTokens: Tokens
    GeneratedTokens: Tokens


def write_trace(source: Path, into: Path, *, speed: float) -> int:
    """Write a trace as a session file, sorted by time; the first arrival is at 0.

    Args:
        speed: divides the times: 2 is twice as fast.

    Returns:
        The number of arrivals.

    Raises:
        ConfigError: no such file, an unknown trace format, or an invalid line.
    """
    arrivals = sorted(_arrivals(source, read(source, into)), key=itemgetter(0))
    if not arrivals:
        raise ConfigError(f"{source}: holds no request of a trace. {_KNOWN_TRACES}")
    start_ns, last_ns = arrivals[0][0], arrivals[-1][0]
    if (last_ns - start_ns) / speed > MOST_NS:
        raise ConfigError(
            f"--speed {speed:g}: the last request of {source} would be due after a hundred years."
        )
    lines = []
    for at_ns, line in arrivals:
        at_s = (at_ns - start_ns) / NS_PER_S / speed
        when = {"arrival_s": at_s} if "turns" in line else {"timestamp": at_s * 1000}
        lines.append(msgspec.json.encode({**line, **when}) + b"\n")
    write_bytes(into, b"".join(lines))
    return len(arrivals)


def _arrivals(source: Path, content: bytes) -> Iterator[Arrival]:
    parse: Callable[[bytes], Arrival] = _of_json
    if not JSON_LINES.match(content):
        header, _, rest = content.partition(b"\n")
        with at(source, 1, header):
            names = _cells(header)
        if [name for name in names if name not in _INDEX] != _AZURE_COLUMNS:
            header_text = shown(header[:200].decode(errors="replace"))
            raise ConfigError(
                f"{source}: begins with {header_text}, as no trace does that is known. {_KNOWN_TRACES}"
            )
        parse = partial(_azure, names)
        content = b"\n" + rest
    for number, line in lines_of(content):
        with at(source, number, line):
            arrival = parse(line)
        yield arrival


def _of_json(line: bytes) -> Arrival:
    value = json_of(line)
    if "turns" in value:
        if session_of(value).arrival_s is None:
            raise ValueError("no arrival_s, so it is no trace. Give the file as --sessions, with a rate")
        return s_to_ns(msgspec.convert(value["arrival_s"], _Seconds)), value
    request = msgspec.convert(value, _Mooncake)
    tokens, n = request.input_length, len(request.hash_ids)
    if n and not tokens // BLOCK_TOKENS <= n <= -(-tokens // BLOCK_TOKENS):
        raise ValueError(
            f"hash_ids: {n} of them, where {tokens} tokens make {-(-tokens // BLOCK_TOKENS)} blocks of"
            f" {BLOCK_TOKENS}. Traces with blocks of another size are not provided for"
        )
    # The key hash_ids identifies such lines in a session file.
    return round(request.timestamp * NS_PER_MS), {"hash_ids": (), **value}


def _cells(line: bytes) -> list[str]:
    """Split a line of CSV, quoted or not; no cell contains a line end."""
    return [cell.strip() for cell in next(csv.reader([line.decode().strip()]), [])]


def _azure(names: list[str], line: bytes) -> Arrival:
    cells = _cells(line)
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} columns, wanted are {len(names)}")
    row = msgspec.convert(dict(zip(names, cells, strict=True)), _Azure, strict=False)
    # The 2023 times have no zone.
    time = row.TIMESTAMP if row.TIMESTAMP.tzinfo else row.TIMESTAMP.replace(tzinfo=UTC)
    at_ns = (time - _EPOCH) // timedelta(microseconds=1) * 1000
    return at_ns, {"input_length": row.ContextTokens, "output_length": row.GeneratedTokens, "hash_ids": ()}
