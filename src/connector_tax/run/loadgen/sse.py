"""Server-sent events as bytes: which of them carry a token, and what the last ones say.

JSON is decoded for the first event, the last one and the last one with usage only; an event in between is
recognised by bytes that cannot occur inside a JSON string (a quote there is always escaped). Where
those bytes are missing the event is decoded after all, so a server that writes its JSON another way
costs time, never truth.
"""

import re
from typing import ClassVar

import msgspec

from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.request import Status
from connector_tax.base.redaction import excerpt

_TIGHT, _LOOSE = _TOKEN = (b'"choices":[{', b'"choices": [{')
# Of an event that says what was used so far; null says nothing.
_USAGE = b'"usage"'
_USAGES = (b'"usage":{', b'"usage": {')
_DONE = b"[DONE]"
# An event that is longer is none; no server puts more into one, and a stream without an end must not fill memory. Nor does so much
# come between two tokens: a prompt's ids stand in an event with a token.
MOST_EVENT_BYTES = 1 << 24
_DATA_LINE = re.compile(rb"^data:(.*)$", re.MULTILINE)
# A key or a value that a server writes into the event in which it gives up. Inside a JSON string its quotes would be escaped.
_ERROR = b'"error"'
_MARK = b"\xef\xbb\xbf"
# Of one event in its HTTP chunk; of a choice that goes on; and what no chunk ends with.
_END = b"}\n\n\r\n"
# Of one in which nothing follows the choices.
_NO_MORE = b"}]}\n\n\r\n"
_FINISH = b'"finish_reason":'
_NO_TAIL = b"\n\n\n"
MOST_TOKEN_ID = 2**31
# Of what is no event so much is looked at for a message, of which less is kept: a secret at its end is read whole, and known.
MAX_SAID = 8000
MAX_SAID_CHARS = 2000


class MalformedStream(Exception):
    """The stream is not what an OpenAI-compatible server sends; the text says what came instead."""

    status: ClassVar[Status] = "malformed"


class StreamError(MalformedStream):
    """The server says in the middle of the stream that it failed; the text has its words."""

    status: ClassVar[Status] = "stream_error"


class EventScanner:
    """Feeds on the body of one streamed completion, in whatever pieces it comes.

    Attributes:
        tokens: events with a non-empty ``choices`` so far (not tokens: a loaded server packs
            several tokens into one event).
        usage: the last ``usage`` object of the stream, once ``finish`` was called: a server may write what it used so far into every event.
        done: ``[DONE]`` has come.
        output_ids: the ``token_ids`` of all events, where they are collected; every event is decoded then.
    """

    __slots__ = (
        "_begun",
        "_last_payload",
        "_rest",
        "_return",
        "_tail",
        "_tailless",
        "_tokenless_bytes",
        "_usage_payload",
        "done",
        "output_ids",
        "tokens",
        "usage",
    )

    def __init__(self, *, collect_ids: bool = False) -> None:
        self.output_ids: list[int] | None = [] if collect_ids else None
        # Of an event that is not complete.
        self._rest = bytearray()
        # The last piece ended with a carriage return: that was a line end, and a line feed that comes now belongs to it.
        self._return = False
        self._begun = False
        self._tail = _NO_TAIL
        # Its events do not say that they go on.
        self._tailless = False
        # Not decoded yet: of the last token, and of the last event with usage, where that came after ``usage``.
        self._last_payload = b""
        self._usage_payload = b""
        # Since the last token.
        self._tokenless_bytes = 0
        self.tokens = 0
        self.usage: Foreign | None = None
        self.done = False

    def feed(self, data: bytes) -> int:
        """Take the next piece; returns how many events with a token it completed.

        Raises:
            MalformedStream: an event that is not JSON, or none that ends.
            StreamError: an error object in place of a token.
        """
        before = self.tokens
        self._read(data)
        self._tokenless_bytes = 0 if self.tokens > before else self._tokenless_bytes + len(data)
        if len(self._rest) > MOST_EVENT_BYTES:
            said = excerpt(bytes(self._rest[:MAX_SAID]), 200)
            raise MalformedStream(f"an event without an end after {MOST_EVENT_BYTES >> 20} MiB: {said}")
        if self._tokenless_bytes > MOST_EVENT_BYTES:
            raise MalformedStream(f"no token in {MOST_EVENT_BYTES >> 20} MiB of the stream")
        return self.tokens - before

    def _read(self, data: bytes) -> None:
        if self._return or b"\r" in data:
            data = self._with_line_feeds(data)
        if not self._begun and data:
            # A byte order mark may stand before the first event (WHATWG HTML, 9.2.6).
            self._begun, data = True, data.removeprefix(_MARK)
        if self._rest:
            searched = len(self._rest) - 1
            self._rest += data
            if self._rest.find(b"\n\n", searched) < 0:
                return
            data = bytes(self._rest)
            self._rest.clear()
        if not self.tokens:
            first = data.find(b"\n\n")
            if first < 0:
                self._rest += data
                return
            self._event(data[:first])
            data = data[first + 2 :]
        if self.tokens and self.output_ids is None:
            data = self._count_plain(data)
        *events, rest = data.split(b"\n\n")
        for event in events:
            if event:
                self._event(event)
        self._rest += rest

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Lines may end with CR LF, or with CR alone; neither stands inside JSON."""
        if not data:
            return data
        if self._return:
            data = data.removeprefix(b"\n")
        self._return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    @property
    def between_tokens(self) -> bool:
        """Whole events have come, one of them with a token, and none of them the last; what comes next may be counted unread."""
        return not self._rest and self.tokens > 0 and not self.done and self.output_ids is None

    def take(self, chunk: bytes) -> bool:
        """Count one event in its HTTP chunk, ``...data: {...}\\n\\n\\r\\n``, if it is beyond doubt one token.

        Only between tokens. False: it is not, and nothing has changed.
        """
        # The first line feed ends the chunk's size, the second its only event. ``find`` and not ``in``: CPython 3.11 first asks
        # whether what is looked for is a number, and formats the message of an exception that nobody sees.
        if chunk.find(b"\n", 8) != len(chunk) - 4 or chunk.find(_ERROR, 8) >= 0:
            return False
        if not chunk.endswith(self._tail):
            if not chunk.endswith(_END) or (chunk.find(_TIGHT, 8) < 0 and chunk.find(_LOOSE, 8) < 0):
                return False
            # Where its events do not say that they go on, usage before the choices is looked for in the first one alone.
            used = not chunk.endswith(_NO_MORE) or not self._tailless
            if used and chunk.find(_USAGE, 8) >= 0 and (_USAGES[0] in chunk or _USAGES[1] in chunk):
                # Where usage stands in an event, each is looked at.
                self._usage_payload = chunk
                self._tail = _NO_TAIL
            elif not self._tailless:
                # What follows the text is the same in all events of a stream, and says that there is a choice and no end to it.
                at = chunk.rfind(_FINISH)
                self._tailless = at < 0
                goes_on = at > 0 and chunk[at + len(_FINISH) :].lstrip(b" ").startswith(b"null")
                self._tail = chunk[at:] if goes_on else _NO_TAIL
        self.tokens += 1
        self._tokenless_bytes = 0
        self._last_payload = chunk
        return True

    def _count_plain(self, buffer: bytes) -> bytes:
        """Count leading events that are beyond doubt tokens, without looking at them one by one; returns the rest.

        Beyond doubt: two line feeds for each beginning of a ``choices`` that is not empty, so one line of data an event.
        The last of them is not counted but returned: what comes at its end may matter, and a server that breaks off says so there.
        """
        marker = _TOKEN[0] if _TOKEN[0] in buffer else _TOKEN[1]
        boundary = buffer.rfind(b"\n\ndata:", 0, buffer.rfind(marker) + 1)
        if boundary < 0 or not buffer.startswith(b"data:"):
            return buffer
        n = buffer.count(marker, 0, boundary)
        if _line_feeds(buffer[: boundary + 2]) != 2 * n:
            return buffer
        if self.usage is not None or self._usage_payload:
            # A server that writes usage into events between others may write none into the last one.
            used = max(buffer.rfind(mark, 0, boundary) for mark in _USAGES)
            if used >= 0:
                start = buffer.rfind(b"\n\n", 0, used) + 1
                self._usage_payload = buffer[start : buffer.find(b"\n\n", used)]
        self.tokens += n
        return buffer[boundary + 2 :]

    def finish(self) -> None:
        """The body has ended: take ``usage`` from the last event that has it.

        The last line need not be followed by an empty one if it is the mark of the end.
        """
        if bytes(self._rest).strip() in (b"data: [DONE]", b"data:[DONE]"):
            self.done = True
            self._rest.clear()
        for payload in (self._last_payload, self._usage_payload):
            if not payload:
                continue
            # What was taken as a chunk still has its frame, which holds no brace.
            start, end = payload.find(b"{"), payload.rfind(b"}") + 1
            if usage := _decoded(payload[start:end]).get("usage"):
                self.usage = usage
                return

    def _event(self, event: bytes) -> None:
        if event.startswith(b"data:") and b"\n" not in event:
            payload = event[5:].strip()
        else:
            # Comments (": keep-alive"), other fields, or data spread over several lines.
            lines = _DATA_LINE.findall(event) if b"data:" in event else ()
            if not lines:
                return
            payload = b"\n".join([line.strip() for line in lines])
        if payload == _DONE:
            self.done = True
        elif self.done:
            raise MalformedStream(f"an event after [DONE]: {excerpt(payload[:MAX_SAID], 200)}")
        elif (
            self.tokens
            and self.output_ids is None
            and payload.endswith(b"}")
            and _ERROR not in payload
            and (_TOKEN[0] in payload or _TOKEN[1] in payload)
        ):
            self.tokens += 1
            self._last_payload = payload
            if _USAGES[0] in payload or _USAGES[1] in payload:
                self._usage_payload = payload
        else:
            self._decode(payload)

    def _decode(self, payload: bytes) -> None:
        value = _decoded(payload)
        if value.get("usage"):
            self.usage = value["usage"]
            self._last_payload = self._usage_payload = b""
        choices = value.get("choices")
        if value.get("error") or value.get("object") == "error":
            raise StreamError(f"the server broke off: {excerpt(payload[:MAX_SAID], MAX_SAID_CHARS)}")
        if choices is None:
            raise MalformedStream(f"an event without choices: {excerpt(payload[:MAX_SAID], 200)}")
        if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices[:1]):
            raise MalformedStream(
                f"an event whose choices are no objects: {excerpt(payload[:MAX_SAID], 200)}"
            )
        # A chat endpoint's first delta carries only the role; it is not a token.
        if choices and choices[0].get("finish_reason") == "error":
            raise StreamError(f"the server broke off: {excerpt(payload[:MAX_SAID], MAX_SAID_CHARS)}")
        if choices and not _is_role_only(choices[0]):
            self.tokens += 1
            self._last_payload = payload
            if self.output_ids is not None:
                self.output_ids += _ids(choices[0].get("token_ids"), payload)


def read_whole_answer(body: bytes) -> Foreign:
    """An answer that was not streamed.

    Raises:
        MalformedStream: no JSON object with choices.
        StreamError: an error object in place of one.
    """
    answer = _decoded(body)
    said = excerpt(body[:MAX_SAID], MAX_SAID_CHARS)
    if answer.get("error") or answer.get("object") == "error":
        raise StreamError(f"the server answered with an error: {said}")
    if not isinstance(answer.get("choices"), list):
        raise MalformedStream(f"an answer without choices: {said}")
    return answer


def _line_feeds(data: bytes) -> int:
    # Half the time of bytes.count, which looks at every byte.
    return len(data) - len(data.replace(b"\n", b""))


def _ids(value: object, payload: bytes) -> list[int]:
    """The token ids of an event; they become part of the next prompt."""
    if value is None:
        return []
    if isinstance(value, list) and all(type(i) is int and 0 <= i < MOST_TOKEN_ID for i in value):
        return value
    raise MalformedStream(f"token_ids that are none: {excerpt(payload[:MAX_SAID], 200)}")


def _is_role_only(choice: Foreign) -> bool:
    """Whether a chat's first delta names who speaks and has nothing to say yet: no text, no reasoning, no call of a tool."""
    delta = choice.get("delta")
    return isinstance(delta, dict) and "role" in delta and not any(v for k, v in delta.items() if k != "role")


def _decoded(payload: bytes) -> Foreign:
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedStream(f"an event that is not JSON: {excerpt(payload[:MAX_SAID], 200)}") from error
    if not isinstance(value, dict):
        raise MalformedStream(f"an event that is no object: {excerpt(payload[:MAX_SAID], 200)}")
    return value
