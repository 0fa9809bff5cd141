"""Parses one streamed completion: bytes -> token times, usage, and whether it is complete.

Each event is decoded once its last byte has arrived, so the result depends on the bytes alone, however reads
group them. Only times depend on reads: an event's time is that of the read with its last byte.

An event with ``choices`` counts as a token only as far as ``usage`` confirms it, see
``EventScanner.token_times``.
"""

import json
from array import array
from typing import Any, ClassVar, TypeGuard

import msgspec

from connector_tax.base.records.request import Status
from connector_tax.base.secrets import excerpt

# No server sends more between two tokens, and an endless stream must not fill memory.
MOST_BYTES_A_TOKEN = 1 << 24
# A larger count is invalid and may not fit a 64-bit record.
MOST_TOKENS = MOST_TOKEN_ID = 2**31
# A model's reasons to end an answer; some servers write "" while it continues. Any other reason is the
# server's failure. A tuple, since a reason may be any JSON value, even an unhashable one.
ENDS = ("", "stop", "length", "tool_calls", "function_call", "content_filter")
# This much of an error text is searched for secrets and less is kept, so a secret at
# the cut is still recognized.
MAX_SAID = 8000
MAX_SAID_CHARS = 2000
_MARK = b"\xef\xbb\xbf"


class MalformedStream(Exception):
    """Not the stream of an OpenAI-compatible server; the text says what came instead."""

    status: ClassVar[Status] = "malformed"


class StreamError(MalformedStream):
    """The server reported a failure, quoted in the text."""

    status: ClassVar[Status] = "stream_error"


class _Delta(msgspec.Struct, gc=False):
    """A chat event's addition to the answer."""

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
    """The parsed parts of a stream's event or of an answer in one piece."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None

    @property
    def counts(self) -> tuple[int, int] | None:
        """Return prompt and completion tokens; None unless ``usage`` has both."""
        if not isinstance(self.usage, dict):
            return None
        prompt, completion = self.usage.get("prompt_tokens"), self.usage.get("completion_tokens")
        return (
            (prompt, completion)
            if _is_below(prompt, MOST_TOKENS) and _is_below(completion, MOST_TOKENS)
            else None
        )

    def ids(self, payload: bytes) -> list[int]:
        """Return its token ids, which become part of a later prompt.

        Raises:
            MalformedStream: they are invalid.
        """
        token_ids = self.choices[0].token_ids if self.choices else None
        if token_ids is None:
            return []
        if isinstance(token_ids, list) and all(_is_below(i, MOST_TOKEN_ID) for i in token_ids):
            return token_ids
        raise MalformedStream(f"token_ids that are none: {said(payload, 200)}")


_decode = msgspec.json.Decoder(Completion).decode


def read_completion(payload: bytes) -> Completion:
    """Decode an event's data, or an answer in one piece.

    Raises:
        MalformedStream: it is no completion.
        StreamError: the server reports a failure, or ends the answer for a reason that is not the model's.
    """
    try:
        completion = _decode(payload)
    except (ValueError, RecursionError) as error:
        completion = _decode_as_others(payload, error)
    failed = completion.error or completion.object == "error"
    for choice in completion.choices or ():
        if choice.finish_reason is not None and choice.finish_reason not in ENDS:
            failed = True
    if failed:
        raise StreamError(f"the server broke off: {said(payload)}")
    return completion


def _decode_as_others(payload: bytes, first_error: Exception) -> Completion:
    """Decode the NaN of Python servers and the split surrogate pairs of JavaScript ones."""
    try:
        return msgspec.convert(json.loads(payload), Completion)
    except (ValueError, RecursionError) as error:
        raise MalformedStream(f"not a completion ({first_error}): {said(payload, 200)}") from error


class EventScanner:
    """Incremental parser of one streamed completion's body.

    Attributes:
        times: of each event that may be a token; ``feed`` may add some before it raises.
        counts: prompt and completion tokens from the last complete ``usage``.
        done: ``[DONE]`` has come; anything after it is not part of the answer.
        output_ids: ``token_ids`` of all events, if collected.
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
        # The last piece ended with CR, which ended a line; an LF that follows belongs to it.
        self._return = False
        # Bytes of whole events since the last token.
        self._quiet_bytes = 0
        # The first event with choices had only a role, so it is no token whatever usage says.
        self._role_only = False
        # Indices in ``times`` of the first and last event with content; -1: none.
        self._first_said = self._last_said = -1
        self.times = array("q")
        self.counts: tuple[int, int] | None = None
        self.done = False

    def feed(self, data: bytes, now_ns: int) -> None:
        """Parse the next piece, which was read at ``now_ns``.

        Raises:
            MalformedStream: an event is no completion, or no token came for too long.
            StreamError: the server reports a failure.
        """
        # ``find``, not ``in``: CPython 3.11 first checks whether the operand is a number, which is slower.
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
        unfinished = events.pop()
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
        if unfinished:
            rest += unfinished
            self._check_rest()

    def finish(self) -> None:
        """End the body; ``[DONE]`` needs no empty line after it."""
        self.done = self.done or bytes(self._rest).strip() in (b"data: [DONE]", b"data:[DONE]")

    def token_times(self) -> "array[int]":
        """Return when each token came, as far as events show.

        If ``usage`` counts fewer tokens than events, the surplus is dropped: first leading events without
        content, then trailing ones. Other events without content are tokens of undecodable bytes.
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
        """Return ``data`` with CR LF and CR replaced by LF; neither occurs inside JSON."""
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
        """Record one event; return whether it may be a token."""
        if event.startswith(b"data: {") and event.find(b"\n") < 0:
            payload = event[6:]
        elif not (payload := _data_of(event)):
            return False  # a comment, a heartbeat, or an event of another name
        elif payload == b"[DONE]":
            self.done = True
            return False
        completion = read_completion(payload)
        if completion.usage is not None:
            self.counts = completion.counts or self.counts
        if not completion.choices:
            return False
        says_something = role_only = False
        for choice in completion.choices:
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
            self.output_ids += completion.ids(payload)
        self.times.append(now_ns)
        return True


def _quiet() -> MalformedStream:
    return MalformedStream(f"no token in {MOST_BYTES_A_TOKEN >> 20} MiB of the stream")


def said(payload: bytes, max_chars: int = MAX_SAID_CHARS) -> str:
    """Return an excerpt without secrets."""
    return excerpt(payload[:MAX_SAID], max_chars)


def _data_of(event: bytes) -> bytes:
    """Return the data of an event with LF line ends; empty if it has none or is not a message.

    Raises:
        StreamError: the event is named an error.
    """
    event_name, data = b"", []
    # A byte order mark may stand before the first event (WHATWG HTML, 9.2.6).
    for line in event.removeprefix(_MARK).split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.strip())
        elif field == b"event":
            event_name = value.strip()
    payload = b"\n".join(data).strip()
    if event_name == b"error":
        raise StreamError(f"the server broke off: {said(payload)}")
    return payload if event_name in (b"", b"message") or payload == b"[DONE]" else b""


def _is_below(value: object, limit: int) -> TypeGuard[int]:
    """Return whether it is a whole number in [0, ``limit``); JSON's true is not."""
    return type(value) is int and 0 <= value < limit
