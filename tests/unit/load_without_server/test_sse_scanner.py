"""What the scanner reads of a stream, however its bytes are cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_tax.run.loadgen import sse
from connector_tax.run.loadgen.sse import EventScanner, MalformedStream, StreamError

TOKEN = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
SPACED = b'data: {"choices": [{"index": 0, "text": ""}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
CHAT = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
STREAM = TOKEN + SPACED + b": keep-alive\n\n" + TOKEN + USAGE + DONE


def scan(pieces: list[bytes]) -> EventScanner:
    scanner = EventScanner()
    for k, piece in enumerate(pieces, start=1):
        scanner.feed(piece, k)
    scanner.finish()
    return scanner


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_every_byte_boundary_gives_the_same_answer(newline: bytes) -> None:
    """Events split anywhere, also between the two characters of a line end."""
    stream = STREAM.replace(b"\n", newline)
    for boundary in range(len(stream) + 1):
        found = scan([stream[:boundary], stream[boundary:]])
        assert (len(found.times), found.done, found.counts) == (3, True, (8, 3))


@given(st.text(max_size=60))
def test_text_that_looks_like_protocol_is_still_text(text: str) -> None:
    """A model that writes JSON or line ends cannot confuse the count: inside a string they are escaped."""
    tricky = text + '"choices":[]' + "\n\ndata: [DONE]\n\n" + '"choices":[{'
    event = b"data: " + json.dumps({"choices": [{"text": tricky}]}).encode() + b"\n\n"
    found = scan([TOKEN + event + event + USAGE])
    assert len(found.times) == 3
    assert not found.done


def with_usage(n: int, choices: object, *, first: bool = False, loose: bool = False) -> bytes:
    usage = {"usage": {"prompt_tokens": 9, "completion_tokens": n}}
    event = {**usage, "choices": choices} if first else {"choices": choices, **usage}
    return b"data: " + json.dumps(event, separators=None if loose else (",", ":")).encode() + b"\n\n"


GOES_ON = [{"index": 0, "text": "x", "finish_reason": None}]
ROLE_ONLY = [{"index": 0, "delta": {"role": "assistant", "content": ""}}]
PLAIN = b'data: {"choices":[{"index":0,"text":"x","finish_reason":null}],"usage":null}\n\n'
RUNNING = {
    "in every event, before choices": [with_usage(n, GOES_ON, first=True) for n in range(1, 9)],
    "in every event, with spaces": [with_usage(n, GOES_ON, loose=True) for n in range(1, 9)],
    "0 with the role, then in the last token": [
        with_usage(0, ROLE_ONLY),
        *7 * [PLAIN],
        with_usage(8, GOES_ON),
    ],
    "in every event, and in one of its own": [
        *(with_usage(n, GOES_ON) for n in range(7)),
        PLAIN,
        with_usage(8, []),
    ],
    "in the first ones alone": [with_usage(1, GOES_ON), PLAIN, with_usage(8, GOES_ON), *5 * [PLAIN]],
}


@pytest.mark.parametrize("at_once", [1, 3], ids=["one a read", "three a read"])
@pytest.mark.parametrize("events", RUNNING.values(), ids=RUNNING)
def test_of_several_usages_the_last_one_counts(events: list[bytes], at_once: int) -> None:
    found = scan([*(b"".join(events[k : k + at_once]) for k in range(0, len(events), at_once)), DONE])
    assert found.counts == (9, 8)
    assert len(found.times) == sum(b'"choices":[]' not in e and b"role" not in e for e in events) == 8


def test_an_error_of_the_server_is_none_of_the_stream() -> None:
    with pytest.raises(StreamError, match=r"the server broke off: .*engine died"):
        scan([TOKEN, b'data: {"error":{"message":"engine died"}}\n\n'])


def test_a_ten_megabyte_event_is_one_token() -> None:
    event = b"data: " + json.dumps({"choices": [{"text": "y" * 10_000_000}]}).encode() + b"\n\n"
    pieces = [event[i : i + 65536] for i in range(0, len(event), 65536)]
    assert len(scan([TOKEN, *pieces, USAGE]).times) == 2


@pytest.mark.parametrize(
    "piece",
    [b"\r", b": ping\n\n", b'data: {"choices":[]}\n\n'],
    ids=["CRs", "comments", "empty choices"],
)
def test_a_stream_in_which_no_token_comes_has_an_end(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of it is kept; a token begins the count anew. Of 16 MiB, which are one here."""
    monkeypatch.setattr(sse, "MOST_BYTES_A_TOKEN", 1 << 20)
    flood = piece * ((1 << 18) // len(piece))
    with pytest.raises(MalformedStream, match="no token in 1 MiB of the stream"):
        scan([TOKEN, flood, flood, flood, TOKEN, *6 * [flood]])
    assert len(scan([TOKEN, flood, flood, flood, TOKEN, *3 * [flood], TOKEN, USAGE, DONE]).times) == 3


def test_data_lines_are_found_among_other_lines() -> None:
    event = b': a comment\nid: data: 1\ndata: {"choices":\nretry: 3\n data: none\ndata:[{"text":"x"}]}  \n\n'
    assert len(scan([event, USAGE, DONE]).times) == 1


def delta(**said: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": said}]}).encode() + b"\n\n"


def text(written: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "text": written}]}).encode() + b"\n\n"


def counted(n: int) -> bytes:
    return with_usage(n, [])


CALL = [{"index": 0, "function": {"name": "f", "arguments": ""}}]
ROLE_AND_NOTHING = {"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": []}
# Events, one a read from 1 on, with the number of tokens that usage counts, and the reads of the first and the last token.
EVENTS_AND_TOKENS = {
    "a role beside nulls": ([delta(**ROLE_AND_NOTHING), *3 * [CHAT]], 3, 2, 4),
    "a role, with two tokens in an event": ([delta(role="assistant", content=""), *3 * [CHAT]], 4, 2, 4),
    "a role, then nothing": ([delta(role="assistant"), delta(content=""), CHAT, CHAT], 2, 3, 4),
    "three of them": ([delta(), delta(content=""), delta(reasoning=""), CHAT, CHAT], 2, 4, 5),
    "an empty text at the end": ([text("a"), text("b"), text("")], 2, 1, 2),
    "one at each end": ([delta(), CHAT, CHAT, delta()], 2, 2, 3),
    "one at each end, one of them a token": ([delta(), CHAT, CHAT, delta()], 3, 2, 4),
    "reasoning alone": ([delta(reasoning_content="a"), delta(reasoning_content="b"), delta()], 2, 1, 2),
    "reasoning by its other name": ([delta(), delta(reasoning="a"), delta(reasoning="b")], 2, 2, 3),
    "a call of a tool": ([delta(content=""), delta(tool_calls=CALL), delta(tool_calls=CALL)], 2, 2, 3),
    "a refusal": ([delta(content=""), delta(refusal="no"), delta(content="")], 1, 2, 2),
    "the role in each": ([*3 * [delta(role="assistant", content="x")], delta(role="assistant")], 4, 1, 4),
    "a token without text, last": ([text("a"), text("b"), text("")], 3, 1, 3),
    "tokens without text": ([text(""), text(""), text("")], 3, 1, 3),
    "a token without text in between": ([text(""), text("a"), text(""), text("b")], 3, 2, 4),
    "more that says something than tokens": ([text("a"), text("b"), text("c")], 2, 1, 3),
    "several tokens in an event": ([text(""), text("a"), text("bcd")], 5, 1, 3),
}


@pytest.mark.parametrize(("events", "n", "first", "last"), EVENTS_AND_TOKENS.values(), ids=EVENTS_AND_TOKENS)
def test_events_are_tokens_as_far_as_usage_confirms_it(
    events: list[bytes], n: int, first: int, last: int
) -> None:
    times = scan([*events, counted(n), DONE]).token_times()
    assert (times[0], times[-1]) == (first, last)


def test_an_answer_of_no_tokens_has_no_first_one() -> None:
    assert not scan([delta(content=""), delta(), counted(0), DONE]).token_times()


def test_events_count_where_no_usage_has_come() -> None:
    """An answer that breaks off."""
    assert list(scan([delta(), CHAT, delta()]).token_times()) == [1, 2, 3]
