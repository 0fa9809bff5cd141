"""Renders requests: (cell, arrival index) -> the bytes of one HTTP request.

Prompts are lists of token ids, so their length is exact without a tokenizer. Ids are drawn anew for each
request: no two prompts share a first block, so prefix caching never hits. Chat endpoints take no token ids;
their prompts are random words, as many as give the wanted number of tokens at this server.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import parse_lines
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import BLOCK_TOKENS, Session, Turn
from connector_tax.base.records.target import ENDPOINTS, Api, RequestForm, Target
from connector_tax.run.workload.lengths import Lengths, parse_lengths

# Number of different ids per cell: their texts fit a core's L1 cache, all 100,000 would not.
VOCABULARY = 4096
# A padded number and its comma: one machine word, so that joining is a table look-up. JSON allows the blanks.
WORD_BYTES = 8
# Tokens drawn at once for shorter prompts; takes about 30 us.
SHEET_TOKENS = 2048

Ids = NDArray[np.int64]


class TokenSource:
    """Seeded token ids in ``low <= id < high`` with random access, and their decimal text.

    A cell uses ``VOCABULARY`` ids of the range. Philox is a function of (key, counter), so every item of
    every stream is drawn independently; the bias of scaling 16 random bits is below 2 %.
    """

    def __init__(self, seed: int, low: int, high: int) -> None:
        n = min(VOCABULARY, high - low)
        self._n = np.uint32(n)
        self._ids = np.random.default_rng(seed).choice(high - low, n, replace=False).astype(np.int64) + low
        self._words = _words(high)[self._ids]
        self._every_word = _words(high)
        self._philox = np.random.Philox(key=seed)
        self._state = self._philox.state
        # Mark the buffer as used up, so that a new counter takes effect with the first draw.
        self._state["buffer_pos"] = 4
        self._counter = self._state["state"]["counter"]

    def ids(self, stream: int, item: int, count: int) -> Ids:
        return self._ids[self._draw(stream, item, count)]

    def drawn_text(self, stream: int, item: int, count: int) -> bytes:
        """Return ``text(ids(...))`` in a fraction of the time."""
        return self._words[self._draw(stream, item, count)].tobytes()

    def text(self, ids: Ids) -> bytes:
        """Return decimal numbers, each padded and followed by a comma; ids may exceed the range."""
        if ids.size and ids.min() >= 0 and ids.max() < self._every_word.size:
            return self._every_word[ids].tobytes()
        return b"".join(b"%d," % i for i in ids)

    def _draw(self, stream: int, item: int, count: int) -> NDArray[np.uint32]:
        self._counter[1:4] = 0, item, stream
        self._philox.state = self._state
        rows = self._philox.random_raw((count + 3) // 4).view(np.uint16)[:count].astype(np.uint32)
        rows *= self._n
        rows >>= np.uint32(16)
        return rows


class Wire:
    """The common parts of a cell's requests.

    Args:
        options: further members of every body.
    """

    def __init__(self, spec: CellSpec, target: Target, options: Foreign | None = None) -> None:
        form = spec.asked
        body: Foreign = {"model": target.model, "temperature": 0}
        if not form.honor_eos:
            body["ignore_eos"] = True
        body["stream"] = form.stream
        if form.stream:
            body["stream_options"] = {"include_usage": True}
        body |= {**(options or {}), **form.body}
        accepted = "text/event-stream" if form.stream else "application/json"
        headers = "".join(f"{name}: {value}\r\n" for name, value in target.headers)
        self._head = (
            f"POST {target.prefix}{ENDPOINTS[form.api]} HTTP/1.1\r\nHost: {target.authority}\r\n{headers}"
            f"Content-Type: application/json\r\nAccept: {accepted}\r\nX-Request-Id: {spec.prompt_seed:x}-"
        ).encode()
        self._options = json.dumps(body, separators=(",", ":")).encode()[:-1]
        self._prompt_key = b"messages" if form.api == "chat" else b"prompt"
        self._honor_eos = form.honor_eos

    def wanted(self, output_tokens: int) -> int | None:
        """Return the required number of output tokens; None if the model may end the answer."""
        return None if self._honor_eos else output_tokens

    def request(self, seq: int, prompt: bytes, output_tokens: int) -> bytes:
        """Return head and body; ``prompt`` is JSON, for a chat endpoint the list of messages."""
        body_start = b'%b,"max_tokens":%d,"%b":' % (self._options, output_tokens, self._prompt_key)
        length = len(body_start) + len(prompt) + 1
        return b"%b%d\r\nContent-Length: %d\r\n\r\n%b%b}" % (self._head, seq, length, body_start, prompt)


class Prompts(Protocol):
    """Synthetic prompts of any length, as JSON."""

    def prompt(self, seq: int, tokens: int) -> bytes: ...


class IdPrompts:
    """Prompts of token ids.

    Short ones of equal length are drawn several at a time, since seeking in the generator costs as much
    as drawing a thousand ids.

    Args:
        alike: the common length; None if lengths differ.
    """

    def __init__(self, spec: CellSpec, alike: int | None) -> None:
        self._source = TokenSource(spec.prompt_seed, spec.token_id_low, spec.token_id_high)
        self._rows = 1 if alike is None else max(1, SHEET_TOKENS // alike)
        self._sheet_index, self._sheet = -1, b""

    def ids(self, seq: int, tokens: int) -> Ids:
        """Return the prompt of arrival ``seq``; shape (tokens,)."""
        sheet, row = divmod(seq, self._rows)
        return self._source.ids(0, sheet, self._rows * tokens)[row * tokens : (row + 1) * tokens]

    def prompt(self, seq: int, tokens: int) -> bytes:
        sheet, row = divmod(seq, self._rows)
        if sheet != self._sheet_index:
            self._sheet_index = sheet
            self._sheet = self._source.drawn_text(0, sheet, self._rows * tokens)
        start = row * tokens * WORD_BYTES
        return b"[%b]" % self._sheet[start : start + tokens * WORD_BYTES - 1]


class WordPrompts:
    """Prompts of random words; tokens per word and the template's tokens were measured beforehand."""

    def __init__(self, spec: CellSpec) -> None:
        form = spec.asked
        self._seed = spec.prompt_seed
        self._tokens_per_word, self._template = form.tokens_per_word, form.template_tokens
        self._before, self._after = (
            (b'[{"role":"user","content":"', b'"}]') if form.api == "chat" else (b'"', b'"')
        )

    def prompt(self, seq: int, tokens: int) -> bytes:
        n_words = max(1, round((tokens - self._template) / self._tokens_per_word))
        return b"%b%b%b" % (self._before, words(self._seed, seq, n_words), self._after)


def prompts_of(spec: CellSpec) -> Prompts:
    if takes_ids(spec.asked):
        return IdPrompts(spec, spec.input_tokens if spec.input_lengths is None else None)
    return WordPrompts(spec)


def takes_ids(form: RequestForm) -> bool:
    return form.api == "completions" and not form.words


class _Independent:
    """Defaults of independent requests for ``run.loadgen.generator.Workload``."""

    def place(self, seq: int) -> tuple[int, int] | None:
        return None

    def needs_ids(self, seq: int) -> bool:
        return False

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...


class RequestRenderer(_Independent):
    """Renders the requests of one cell: independent and synthetic."""

    def __init__(self, spec: CellSpec, target: Target) -> None:
        self._shape = (spec.input_tokens, spec.output_tokens)
        self._drawn = tuple(
            None if text is None else Lengths(parse_lengths(text), spec.seed, name)
            for name, text in (("input", spec.input_lengths), ("output", spec.output_lengths))
        )
        self._prompts = prompts_of(spec)
        self._exact = takes_ids(spec.asked)
        self._wire = Wire(spec, target)

    def render(self, seq: int) -> bytes:
        """Return head and body of arrival ``seq``, always the same bytes for the same cell and index."""
        input_tokens, output_tokens = self._asked(seq)
        return self._wire.request(seq, self._prompts.prompt(seq, input_tokens), output_tokens)

    def _asked(self, seq: int) -> tuple[int, int]:
        drawn_in, drawn_out = self._drawn
        n_in, n_out = self._shape
        return n_in if drawn_in is None else drawn_in.of(seq), (
            n_out if drawn_out is None else drawn_out.of(seq)
        )

    def lengths(self, seq: int) -> tuple[int | None, int | None]:
        input_tokens, output_tokens = self._asked(seq)
        return input_tokens if self._exact else None, self._wire.wanted(output_tokens)


def words(seed: int, item: int, n: int) -> bytes:
    """Return ``n`` random English words separated by blanks, each one token in most vocabularies."""
    rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, item, 0, 0]))
    return _WORDS[rng.integers(0, _WORDS.size, n)].tobytes()[:-1]


_WORDS = np.frombuffer(
    b"able also area away baby back ball bank base bear beat been best bill bird blue boat body book born"
    b" both call came card care case city cold come cook cool cost dark data date days dead deal deep desk"
    b" door down draw drop each east easy edge even ever face fact fall farm fast feel feet felt fill film"
    b" find fine fire fish five food foot form four free full game gave girl give glad goal goes gold gone"
    b" good gray grew grow hair half hall hand hang hard have head hear heat held help here high hill hold"
    b" home hope hour huge idea inch into iron item join jump just keep kept kind king knew know lack lady"
    b" lake land last late lead left less life like line list live long look loss lost love made mail main"
    b" make many mark mean meet mile milk mind mine miss moon more most move much must name near neck need"
    b" news next nice nine none nose note once only open over page pain pair park part pass past path plan"
    b" play poor post pull push race rain rate read real rest rice rich ride ring rise road rock role room"
    b" root rule safe said sale salt same sand save seat seed seek seem self sell send ship shop show side"
    b" sign sing site size skin ",
    dtype="S5",
)


@cache
def _words(high: int) -> NDArray[np.uint64]:
    """Return a table whose row i is ``i`` and a comma as ``WORD_BYTES`` bytes, padded on the left."""
    if high > 10 ** (WORD_BYTES - 1):
        raise ValueError(f"token ids up to {high}: more than {WORD_BYTES - 1} digits are not provided for")
    texts = [b"%*d," % (WORD_BYTES - 1, i) for i in range(high)]
    return np.frombuffer(b"".join(texts), dtype=np.uint64)


# Conversations: (session, turn, earlier answers) -> the bytes of one HTTP request.

# Streams of the token source: a session's own tokens, and blocks shared by sessions.
OWN, SHARED = 1, 2
MAX_TURNS = 4096


class ConversationRenderer:
    """Renders the turns of one worker's sessions and keeps the text of running ones.

    Args:
        turn_of: sample -> (session number, turn), from the scheduler.
        session_of: session number -> its graph.
    """

    def __init__(
        self,
        spec: CellSpec,
        target: Target,
        *,
        turn_of: Callable[[int], tuple[int, int]],
        session_of: Callable[[int], Session],
    ) -> None:
        self._turn_of = turn_of
        self._session_of = session_of
        self._source = TokenSource(spec.prompt_seed, spec.token_id_low, spec.token_id_high)
        self._wire = Wire(spec, target)
        self._wire_with_ids = Wire(spec, target, options={"return_token_ids": True})
        # (session number, turn) -> its own tokens and its answer.
        self._said: dict[tuple[int, int], Ids] = {}
        self._prompts: dict[int, Ids] = {}

    def lengths(self, seq: int) -> tuple[int | None, int | None]:
        return self._prompts[seq].size, self._wire.wanted(self._turn(seq).output_tokens)

    def place(self, seq: int) -> tuple[int, int] | None:
        return self._turn_of(seq)

    def render(self, seq: int) -> bytes:
        """Return head and body of sample ``seq``, whose history must have been answered."""
        session_number, turn_index = self._turn_of(seq)
        turn = self._turn(seq)
        history = [
            self._said[session_number, earlier_turn]
            for earlier_turn in self._session_of(session_number).said_before(turn_index)
        ]
        prompt = np.concatenate([*history, *self._new_ids(session_number, turn_index, turn)])
        self._prompts[seq] = prompt
        wire = self._wire_with_ids if self.needs_ids(seq) else self._wire
        return wire.request(seq, b"[%b]" % self._source.text(prompt)[:-1], turn.output_tokens)

    def needs_ids(self, seq: int) -> bool:
        session_number, turn_index = self._turn_of(seq)
        return any(
            turn_index in turn.history for turn in self._session_of(session_number).turns[turn_index + 1 :]
        )

    def answered(self, seq: int, output_ids: list[int]) -> None:
        """Keep a complete turn's text if later turns need it."""
        if self.needs_ids(seq):
            new_ids = self._prompts[seq][-self._turn(seq).new_tokens :]
            self._said[self._turn_of(seq)] = np.concatenate([new_ids, output_ids]).astype(np.int64)

    def ended(self, seq: int) -> None:
        """Drop a sample's prompt: it ended, or will never be sent."""
        self._prompts.pop(seq, None)

    def forget(self, number: int) -> None:
        for k in range(len(self._session_of(number).turns)):
            self._said.pop((number, k), None)

    def _turn(self, seq: int) -> Turn:
        session_number, turn_index = self._turn_of(seq)
        return self._session_of(session_number).turns[turn_index]

    def _new_ids(self, session_number: int, turn_index: int, turn: Turn) -> list[Ids]:
        shared = [self._source.ids(SHARED, block, BLOCK_TOKENS) for block in turn.blocks]
        own_tokens = turn.new_tokens - BLOCK_TOKENS * len(turn.blocks)
        return [*shared, self._source.ids(OWN, session_number * MAX_TURNS + turn_index, own_tokens)]


# A file of prompts -> the bytes of one HTTP request per arrival: arrival k sends prompt k, cyclically.


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of the file.

    Attributes:
        content: text, token ids, or messages.
        tokens: of the prompt; None for text and messages, whose length only the server knows.
    """

    content: str | list[int] | list[Foreign]
    tokens: int | None
    output_tokens: int

    def json(self, api: Api) -> bytes:
        if api == "chat" and isinstance(self.content, str):
            return msgspec.json.encode([{"role": "user", "content": self.content}])
        return msgspec.json.encode(self.content)

    @property
    def is_messages(self) -> bool:
        return self.tokens is None and not isinstance(self.content, str)


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return every prompt of a file, in order.

    Raises:
        ConfigError: the file is unreadable or a line is no prompt; names the line and the problem.
    """
    return parse_lines(path, prompt_of, "one prompt, a JSON object with prompt and output_tokens,")


def check_prompts(path: Path, prompts: tuple[Prompt, ...], api: Api) -> None:
    """Check that the endpoint takes all prompts.

    Raises:
        ConfigError: one has a form that it does not take.
    """
    for number, prompt in enumerate(prompts, start=1):
        if api == "chat" and prompt.tokens is not None:
            raise ConfigError(
                f"{path}: prompt {number} is token ids, which no chat endpoint takes. Give text or messages."
            )
        if api == "completions" and prompt.is_messages:
            raise ConfigError(
                f"{path}: prompt {number} is the messages of a chat. Send them with --api chat."
            )


def prompt_of(line: Any) -> Prompt:
    allowed = ({"prompt", "output_tokens"}, {"messages", "output_tokens"})
    if not isinstance(line, dict) or line.keys() not in allowed:
        raise ValueError(
            'give {"prompt": ..., "output_tokens": ...}, or "messages" for "prompt", and nothing else'
        )
    output_tokens = line["output_tokens"]
    if type(output_tokens) is not int or output_tokens < 1:
        raise ValueError(f"output_tokens: {output_tokens!r} is not a whole number above 0")
    if "messages" in line:
        messages = line["messages"]
        are_messages = isinstance(messages, list) and all(
            isinstance(message, dict) and "role" in message for message in messages
        )
        if not messages or not are_messages:
            raise ValueError(
                "messages: a list of objects with role and content is wanted, and not an empty one"
            )
        return Prompt(messages, None, output_tokens)
    prompt = line["prompt"]
    is_ids = isinstance(prompt, list) and all(type(i) is int and i >= 0 for i in prompt)
    if not prompt or not (is_ids or isinstance(prompt, str)):
        raise ValueError("prompt: a text or a list of token ids is wanted, and not an empty one")
    return Prompt(prompt, len(prompt) if is_ids else None, output_tokens)


class DatasetRenderer(_Independent):
    """Renders the requests of a cell whose prompts come from a file."""

    def __init__(self, spec: CellSpec, target: Target, prompts: tuple[Prompt, ...]) -> None:
        self._prompts = prompts
        self._api = spec.asked.api
        self._wire = Wire(spec, target)

    def render(self, seq: int) -> bytes:
        prompt = self._of(seq)
        return self._wire.request(seq, prompt.json(self._api), prompt.output_tokens)

    def lengths(self, seq: int) -> tuple[int | None, int | None]:
        prompt = self._of(seq)
        return prompt.tokens, self._wire.wanted(prompt.output_tokens)

    def _of(self, seq: int) -> Prompt:
        return self._prompts[seq % len(self._prompts)]
