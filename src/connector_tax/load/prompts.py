"""Prompt files of other tools -> the prompts that workers read (``run.workload.datasets``).

What a file is, is told by its content; one whose name ends in ``.gz`` is unpacked. Plain text has no name of a table or of JSON.

=================================================  ==================================================================
``[{"conversations": [{"from": "human", ...`` ...  ShareGPT: the first thing that a human says, and how long its answer is
``{"conversations": [...]}``                       the same, one a line
``{"prompt": ..., "output_tokens": 64}``           ours, and the custom data set of ``vllm bench serve``
``{"prompt": ...}``, ``"text"``, ``"messages"``    JSONL without lengths, also inside ``"body"`` as in OpenAI's batches
anything else                                      plain text, one prompt a line
=================================================  ==================================================================

Source: vLLM 0.32.0, vllm/benchmarks/datasets.
"""

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_bytes
from connector_tax.base.opening import shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.load.source_files import JSON_LINES, at, head_of, json_of, lines_of, refuse_same, whole
from connector_tax.run.workload.lengths import MOST_TOKENS, Distribution, Lengths

_JSON_LIST = re.compile(rb"\s*\[\s*[{\]]")
# A tab is text.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# A line of such a file is no prompt: the first one of a table has the names of its columns.
_NO_TEXT = frozenset({".csv", ".tsv", ".json", ".jsonl"})
_HUMAN = frozenset({"human", "user"})
_OWN_KEYS = ({"prompt", "output_tokens"}, {"messages", "output_tokens"})


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
    refuse_same(source, into)
    prompts: list[_Asked] = []
    left_out = 0
    for asked in _prompts(source, chars_per_token):
        if asked is None:
            left_out += 1
        else:
            prompts.append(asked)
            if len(prompts) == limit:
                break
    if not prompts:
        of = f" of its {left_out} entries has a human's turn and the answer. {_SHARE_GPT_WANTED}"
        raise ConfigError(f"{source}: none{of}" if left_out else f"{source}: holds no prompt.")
    if left_out:
        print(
            f"{source}: {left_out} of {left_out + len(prompts)} entries are left out: no human's turn (from, value) has an answer "
            "behind it in them.",
            file=sys.stderr,
        )
    if output_lengths is None and limit is None and all(p.own for p in prompts):
        write_bytes(into, whole(source))
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


def _prompts(source: Path, chars_per_token: float) -> Iterator[_Asked | None]:
    """None for each conversation without a question and its answer."""
    head = head_of(source)
    if _JSON_LIST.match(head):
        return _share_gpt(source, chars_per_token)
    if JSON_LINES.match(head):
        return _json_lines(source, chars_per_token)
    if Path(source.name.removesuffix(".gz")).suffix.lower() in _NO_TEXT:
        raise ConfigError(
            f"{source}: named {source.name}, and holds no JSON objects. Its lines are not taken for prompts: give one JSON object per line, "
            '{"prompt": "..."}, or plain text, one prompt a line, in a .txt file.'
        )
    return _plain_text(source)


def _share_gpt(source: Path, chars_per_token: float) -> Iterator[_Asked | None]:
    try:
        talks = msgspec.json.decode(whole(source), type=list[_Talk])
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source}: a JSON list that cannot be read ({error}). {_SHARE_GPT_WANTED}"
        ) from error
    for k, talk in enumerate(talks):
        yield _first_question(f"entry {k}", talk, chars_per_token)


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


def _json_lines(source: Path, chars_per_token: float) -> Iterator[_Asked | None]:
    for number, line in lines_of(source):
        place = f"line {number}"
        with at(source, place):
            value = json_of(line)
            if not isinstance(value, dict):
                raise ValueError(f"{shown(value)} is no JSON object, as the first line is one")
            if "conversations" in value:
                talk = msgspec.convert(value, _Talk)
                asked = _first_question(place, talk, chars_per_token)
            else:
                asked = _of_object(place, value)
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
    for number, line in lines_of(source):
        with at(source, f"line {number}"):
            text = line.decode("utf-8").removesuffix("\r")
            if _CONTROL.search(text):
                raise ValueError(
                    "a control character: this is no text. Known are ShareGPT (JSON), JSONL with prompt, messages or text, and plain "
                    "text with one prompt a line"
                )
        yield _Asked(f"line {number}", "prompt", text, None)
