"""Bytes of one streamed completion -> times of its tokens, its usage, and whether it is over.

Every event is decoded by itself, once its last byte has come. So what an answer is found to be depends on its
bytes alone, however reads group them; only the times depend on reads. The time of an event is that of the
read in which its last byte came.

An event with ``choices`` is a token only as far as the server's ``usage`` confirms it, see
``EventScanner.token_times``.
"""

import json
from array import array
from typing import Any, ClassVar, TypeGuard

import msgspec

from connector_tax.base.records.request import Status
from connector_tax.base.secrets import excerpt

# No server puts more between the ends of two tokens, and a stream without an end must not fill memory.
MOST_BYTES_A_TOKEN = 1 << 24
# A larger count is nonsense, and no 64-bit record may hold it.
MOST_TOKENS = MOST_TOKEN_ID = 2**31
# Reasons with which a model ends an answer; some servers write "" where it goes on. Any other reason is the
# server's own failure. A tuple: a reason may be any JSON value, also one that cannot be hashed.
ENDS = ("", "stop", "length", "tool_calls", "function_call", "content_filter")
# So much of what a server says is searched for secrets, and less of it is kept: one at the end is then read
# whole, and known.
MAX_SAID = 8000
MAX_SAID_CHARS = 2000
_MARK = b"\xef\xbb\xbf"


class MalformedStream(Exception):
    """The stream is not what an OpenAI-compatible server sends; the text says what came instead."""

    status: ClassVar[Status] = "malformed"


class StreamError(MalformedStream):
    """The server says that it failed; the text has its words."""

    status: ClassVar[Status] = "stream_error"


class _Delta(msgspec.Struct, gc=False):
    """What a chat's event adds to the answer."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    thinking: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None
    role: Any = None

    @property
    def says_something(self) -> bool:
        return bool(
            self.content
            or self.reasoning_content
            or self.reasoning
            or self.tool_calls
            or self.refusal
            or self.function_call
            or self.thinking
            or self.audio
        )


class _Choice(msgspec.Struct, gc=False):
    text: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None
    token_ids: Any = None


class Completion(msgspec.Struct, gc=False):
    """An event of a stream, or an answer in one piece: what is read of either."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None

    @property
    def counts(self) -> tuple[int, int] | None:
        """Prompt and completion tokens; None where ``usage`` does not hold both."""
        if not isinstance(self.usage, dict):
            return None
        prompt, completion = self.usage.get("prompt_tokens"), self.usage.get("completion_tokens")
        return (
            (prompt, completion)
            if _is_below(prompt, MOST_TOKENS) and _is_below(completion, MOST_TOKENS)
            else None
        )

    def ids(self, payload: bytes) -> list[int]:
        """The token ids that it holds; they become part of a later prompt.

        Raises:
            MalformedStream: they are no token ids.
        """
        found = self.choices[0].token_ids if self.choices else None
        if found is None:
            return []
        if isinstance(found, list) and all(_is_below(i, MOST_TOKEN_ID) for i in found):
            return found
        raise MalformedStream(f"token_ids that are none: {said(payload, 200)}")


_decode = msgspec.json.Decoder(Completion).decode


def read_completion(payload: bytes) -> Completion:
    """Decode an event's data, or an answer in one piece.

    Raises:
        MalformedStream: it is no completion.
        StreamError: the server says in it that it failed, or ends the answer for a reason that is not the
            model's.
    """
    try:
        found = _decode(payload)
    except (ValueError, RecursionError) as error:
        found = _decode_as_others(payload, error)
    failed = found.error or found.object == "error"
    for choice in found.choices or ():
        if choice.finish_reason is not None and choice.finish_reason not in ENDS:
            failed = True
    if failed:
        raise StreamError(f"the server broke off: {said(payload)}")
    return found


def _decode_as_others(payload: bytes, why: Exception) -> Completion:
    """Python's servers write NaN, and JavaScript's cut texts inside a surrogate pair."""
    try:
        return msgspec.convert(json.loads(payload), Completion)
    except (ValueError, RecursionError) as error:
        raise MalformedStream(f"not a completion ({why}): {said(payload, 200)}") from error


class EventScanner:
    """Feeds on the body of one streamed completion.

    Attributes:
        times: of each event that may be a token; ``feed`` may raise behind some.
        counts: prompt and completion tokens by the last ``usage`` that holds both.
        done: ``[DONE]`` has come; what is behind it is no part of the answer.
        output_ids: the ``token_ids`` of all events, where they are collected.
    """

    __slots__ = (
        "_first_said",
        "_last_said",
        "_quiet_bytes",
        "_rest",
        "_return",
        "_role_only",
        "counts",
        "done",
        "output_ids",
        "times",
    )

    def __init__(self, *, collect_ids: bool = False) -> None:
        self.output_ids: list[int] | None = [] if collect_ids else None
        # The beginning of an event.
        self._rest = bytearray()
        # The last piece ended with a carriage return: that was a line end, and a line feed that comes now
        # belongs to it.
        self._return = False
        # Of whole events since the last token.
        self._quiet_bytes = 0
        # The first event with choices held a role alone, and is no token whatever usage says.
        self._role_only = False
        # Indices in ``times`` of the first and the last event that says something; -1: none did.
        self._first_said = self._last_said = -1
        self.times = array("q")
        self.counts: tuple[int, int] | None = None
        self.done = False

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take the next piece, which was read at ``now_ns``.

        Raises:
            MalformedStream: an event that is no completion, or no token for too long.
            StreamError: the server says that it failed.
        """
        # ``find`` and not ``in``: CPython 3.11 first asks whether what is looked for is a number, which takes
        # longer than the rest.
        if self._return or data.find(b"\r") >= 0:
            data = self._with_line_feeds(data)
        rest = self._rest
        if rest:
            searched = len(rest) - 1
            rest += data
            if rest.find(b"\n\n", searched) < 0:
                self._check_rest()
                return
            data = bytes(rest)
            rest.clear()
        events = data.split(b"\n\n")
        last = events.pop()
        quiet_bytes = self._quiet_bytes
        for event in events:
            quiet_bytes += len(event) + 2
            if quiet_bytes > MOST_BYTES_A_TOKEN:
                raise _quiet()
            if event and self._take(event, now_ns):
                quiet_bytes = 0
            if self.done:
                return
        self._quiet_bytes = quiet_bytes
        if last:
            rest += last
            self._check_rest()

    def finish(self) -> None:
        """The body has ended. The mark of the end need not be followed by an empty line."""
        self.done = self.done or bytes(self._rest).strip() in (b"data: [DONE]", b"data:[DONE]")

    def token_times(self) -> "array[int]":
        """When each token came, as far as events tell.

        Where ``usage`` counts fewer tokens than there are events, the surplus is no tokens: first leading
        events that say nothing, then trailing ones. Others that say nothing are tokens, of undecodable bytes.
        """
        times = self.times
        surplus = len(times) - self.counts[1] if self.counts is not None else 0
        if surplus <= 0:
            return times
        if self._first_said < 0:
            return times[surplus:]
        leading = min(surplus, self._first_said)
        trailing = min(surplus - leading, len(times) - 1 - self._last_said)
        return times[leading : len(times) - trailing]

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Lines may end with CR LF, or with CR alone; neither stands inside JSON."""
        if not data:
            return data
        if self._return:
            data = data.removeprefix(b"\n")
        self._return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check_rest(self) -> None:
        if self._quiet_bytes + len(self._rest) > MOST_BYTES_A_TOKEN:
            raise _quiet()

    def _take(self, event: bytes, now_ns: int) -> bool:
        """Note one event; whether it may be a token."""
        if event.startswith(b"data: {") and event.find(b"\n") < 0:
            payload = event[6:]
        elif not (payload := _data_of(event)):
            return False  # a comment, a heartbeat, or an event of another name
        elif payload == b"[DONE]":
            self.done = True
            return False
        found = read_completion(payload)
        if found.usage is not None:
            self.counts = found.counts or self.counts
        if not found.choices:
            return False
        says_something = role_only = False
        for choice in found.choices:
            if choice.text or ((delta := choice.delta) is not None and delta.says_something):
                says_something = True
            elif delta is not None and delta.role is not None:
                role_only = True
        if says_something:
            self._last_said = len(self.times)
            if self._first_said < 0:
                self._first_said = self._last_said
        elif role_only and not (self._role_only or self.times):
            self._role_only = True
            return False
        if self.output_ids is not None:
            self.output_ids += found.ids(payload)
        self.times.append(now_ns)
        return True


def _quiet() -> MalformedStream:
    return MalformedStream(f"no token in {MOST_BYTES_A_TOKEN >> 20} MiB of the stream")


def said(payload: bytes, most: int = MAX_SAID_CHARS) -> str:
    """An excerpt without secrets."""
    return excerpt(payload[:MAX_SAID], most)


def _data_of(event: bytes) -> bytes:
    """The data of an event whose lines end with line feeds; empty where it has none, or has a name and is no
    message.

    Raises:
        StreamError: the server names it an error.
    """
    name, data = b"", []
    # A byte order mark may stand before the first event (WHATWG HTML, 9.2.6).
    for line in event.removeprefix(_MARK).split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.strip())
        elif field == b"event":
            name = value.strip()
    payload = b"\n".join(data).strip()
    if name == b"error":
        raise StreamError(f"the server broke off: {said(payload)}")
    return payload if name in (b"", b"message") or payload == b"[DONE]" else b""


def _is_below(value: object, most: int) -> TypeGuard[int]:
    """Whether it is a whole number from 0 on; JSON's true is none."""
    return type(value) is int and 0 <= value < most
