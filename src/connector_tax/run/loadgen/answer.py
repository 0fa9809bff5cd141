"""An answer that has ended -> the status of its flight, what is said of a failure, and how many tokens the server counted.

Nothing here waits, reads a clock or touches the connection: that has read the answer by now, and ends the flight with what comes out.
"""

from typing import TypeGuard

import msgspec

from connector_tax.base.records.request import Status
from connector_tax.base.redaction import excerpt
from connector_tax.run.loadgen.issuer import Flight
from connector_tax.run.loadgen.sse import EventScanner, MalformedStream, read_whole_answer

MAX_ERROR_CHARS = 2000
# Read so far, so that a secret at the end of what is kept is read whole, and known.
MAX_ERROR_BODY = 8000
# Of an answer in one piece; none is longer, and a server that sends without end is not kept for ever.
MAX_WHOLE = 1 << 26
# Of one request; more is nonsense, and no 64-bit record may hold it.
MOST_TOKENS = 2**31
# Of a body as it is, or in chunks.
PLAIN_CODINGS = frozenset({b"", b"identity", b"chunked"})
# Ends of a flight that leave something of its answer in the socket.
UNFINISHED = frozenset({"malformed", "truncated", "stream_error"})

Ending = tuple[Status, str | None]


def coding_not_asked_for(value: bytes) -> str:
    """How a body is compressed, by the value of the header that says so; empty where it is not."""
    codings = {coding.strip() for coding in value.lower().split(b",")}
    return b", ".join(sorted(codings - PLAIN_CODINGS)).decode("latin-1")


def end_of_error(status_code: int, body: bytes) -> Ending:
    return "http_error", f"HTTP {status_code}: {excerpt(body, MAX_ERROR_CHARS)}"


def end_of_no_stream(body: bytes) -> Ending:
    """Of an answer in one piece where a stream was asked for."""
    return "malformed", f"not an event stream: {excerpt(body, 200)}"


def end_of_whole(
    flight: Flight, body: bytes, now_ns: int, coding: str, lost: str | None, output_ids: list[int] | None
) -> Ending:
    """An answer in one piece has a last token and no first one: when that came nobody can tell.

    Args:
        coding: how it was compressed; empty where it was not.
        lost: what became of the connection, where that has ended the answer.
        output_ids: what was collected of them, where the workload needs them.
    """
    if coding:
        return _compressed(coding)
    try:
        answer = read_whole_answer(body)
    except MalformedStream as error:
        cut = lost is not None and error.status == "malformed"
        return ("truncated", lost) if cut else (error.status, str(error))
    flight.t_last_token_ns = now_ns
    return _end_with_usage(flight, answer.get("usage"), output_ids, streamed=False)


def end_of_stream(flight: Flight, scanner: EventScanner, coding: str, lost: str | None) -> Ending:
    """
    Args:
        coding, lost: as above.
    """
    if coding:
        return _compressed(coding)
    try:
        scanner.finish()
    except MalformedStream as error:
        return error.status, str(error)
    if not scanner.done:
        return "truncated", lost or "the stream ended without [DONE]"
    return _end_with_usage(flight, scanner.usage, scanner.output_ids, streamed=True)


def _compressed(coding: str) -> Ending:
    return "malformed", f"the answer is compressed ({coding}), which was not asked for"


def _end_with_usage(flight: Flight, usage: object, output_ids: list[int] | None, *, streamed: bool) -> Ending:
    if not _has_counts(usage):
        said = excerpt(msgspec.json.encode(usage)[:MAX_ERROR_BODY], 200)
        return "malformed", f"no usage in the answer (usage: {said})"
    flight.prompt_tokens = usage["prompt_tokens"]
    flight.completion_tokens = usage["completion_tokens"]
    if streamed and flight.t_first_token_ns is None and flight.completion_tokens:
        return "malformed", f"{flight.completion_tokens} tokens of usage, and none of them in the stream"
    if output_ids is not None:
        flight.output_ids = output_ids
        if len(output_ids) != flight.completion_tokens:
            return "malformed", (
                f"{len(output_ids)} token ids for {flight.completion_tokens} tokens; conversations need a "
                "server that honours return_token_ids (vLLM 0.10.2 or newer)"
            )
    return "ok", None


def _has_counts(usage: object) -> TypeGuard[dict[str, int]]:
    """Whether both numbers of tokens are there, and are such as a record holds."""
    counts = (
        [usage.get(k) for k in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [None]
    )
    return all(type(count) is int and 0 <= count < MOST_TOKENS for count in counts)
