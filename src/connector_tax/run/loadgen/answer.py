"""An answer that has ended -> the status of its flight, what is said of a failure, and how many tokens the server counted.

Nothing here waits, reads a clock or touches the connection: that has read the answer by now, and ends the flight with what comes out.
"""

from connector_tax.base.records.request import Status
from connector_tax.base.secrets import excerpt
from connector_tax.run.loadgen.issuer import Flight
from connector_tax.run.loadgen.sse import EventScanner, MalformedStream, read_completion, said

MAX_ERROR_CHARS = 2000
# Of an answer in one piece; none is longer, and a server that sends without end is not kept for ever.
MAX_WHOLE = 1 << 26
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


def end_of_whole(flight: Flight, body: bytes, now_ns: int, coding: str, lost: str | None) -> Ending:
    """An answer in one piece has a last token and no first one: when that came nobody can tell.

    Args:
        coding: how it was compressed; empty where it was not.
        lost: what became of the connection, where that has ended the answer.
    """
    if coding:
        return _compressed(coding)
    try:
        found = read_completion(body)
        ids = found.ids(body) if flight.output_ids is not None else None
    except MalformedStream as error:
        cut = lost is not None and error.status == "malformed"
        return ("truncated", lost) if cut else (error.status, str(error))
    if not found.choices:
        return "malformed", f"an answer without choices: {said(body)}"
    flight.t_last_token_ns = now_ns
    return _end_with_counts(flight, found.counts, ids, seen=True)


def end_of_stream(flight: Flight, scanner: EventScanner, coding: str, lost: str | None) -> Ending:
    """
    Args:
        coding, lost: as above.
    """
    if coding:
        return _compressed(coding)
    scanner.finish()
    if not scanner.done:
        return "truncated", lost or "the stream ended without [DONE]"
    return _end_with_counts(flight, scanner.counts, scanner.output_ids, seen=bool(scanner.times))


def _compressed(coding: str) -> Ending:
    return "malformed", f"the answer is compressed ({coding}), which was not asked for"


def _end_with_counts(
    flight: Flight, counts: tuple[int, int] | None, output_ids: list[int] | None, *, seen: bool
) -> Ending:
    """
    Args:
        counts: prompt and completion tokens by the server's ``usage``.
        output_ids: what was collected of them, where the workload needs them.
        seen: whether any token was.
    """
    if counts is None:
        return "malformed", "no usage in the answer that counts prompt_tokens and completion_tokens"
    flight.prompt_tokens, flight.completion_tokens = counts
    if flight.completion_tokens and not seen:
        return "malformed", f"{flight.completion_tokens} tokens of usage, and none of them in the stream"
    if output_ids is not None:
        flight.output_ids = output_ids
        if len(output_ids) != flight.completion_tokens:
            return "malformed", (
                f"{len(output_ids)} token ids for {flight.completion_tokens} tokens; conversations need a "
                "server that honours return_token_ids (vLLM 0.10.2 or newer)"
            )
    return "ok", None
