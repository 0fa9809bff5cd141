"""The scanner counts tokens by bytes and agrees with a full JSON parse, however the bytes are cut."""

import itertools
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
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
CHAT = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
STREAM = TOKEN + SPACED + b": keep-alive\n\n" + TOKEN + USAGE + DONE


def scan(pieces: list[bytes]) -> EventScanner:
    scanner = EventScanner()
    for piece in pieces:
        scanner.feed(piece)
    scanner.finish()
    return scanner


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_every_byte_boundary_gives_the_same_answer(newline: bytes) -> None:
    """Events split anywhere, also between the two characters of a line end."""
    stream = STREAM.replace(b"\n", newline)
    for boundary in range(len(stream) + 1):
        found = scan([stream[:boundary], stream[boundary:]])
        assert (found.tokens, found.done, found.usage) == (
            3,
            True,
            {"prompt_tokens": 8, "completion_tokens": 3},
        )


@given(
    st.lists(st.sampled_from([TOKEN, SPACED, CHAT, b": c\n\n", b"event: x\n\n"]), max_size=20),
    st.lists(st.integers(0, 10_000), max_size=30),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_cutting_of_any_stream_counts_the_same(
    events: list[bytes], cuts: list[int], newline: bytes
) -> None:
    stream = (b"".join(events) + USAGE + DONE).replace(b"\n", newline)
    found = scan(cut(stream, cuts))
    assert found.tokens == sum(e in (TOKEN, SPACED, CHAT) for e in events)
    assert found.done
    assert found.usage is not None


@given(st.text(max_size=60))
def test_text_that_looks_like_protocol_is_still_text(text: str) -> None:
    """A model that writes JSON or line ends cannot confuse the count: inside a string they are escaped."""
    tricky = text + '"choices":[]' + "\n\ndata: [DONE]\n\n" + '"choices":[{'
    event = b"data: " + json.dumps({"choices": [{"text": tricky}]}).encode() + b"\n\n"
    found = scan([TOKEN + event + event + USAGE])
    assert found.tokens == 3
    assert not found.done


def test_empty_text_is_a_token() -> None:
    """An incomplete UTF-8 sequence streams as an empty text; the token exists all the same."""
    assert scan([SPACED, USAGE]).tokens == 1


def test_a_chat_role_is_not_a_token() -> None:
    assert scan([ROLE + CHAT + CHAT + USAGE + DONE]).tokens == 2


def test_usage_inside_the_last_token_event_is_found() -> None:
    last = b'data: {"choices":[{"text":"x"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    assert scan([TOKEN, last, DONE]).usage == {"prompt_tokens": 1, "completion_tokens": 2}


def with_usage(n: int, choices: object, *, first: bool = False, loose: bool = False) -> bytes:
    usage = {"usage": {"prompt_tokens": 9, "completion_tokens": n}}
    event = {**usage, "choices": choices} if first else {"choices": choices, **usage}
    return b"data: " + json.dumps(event, separators=None if loose else (",", ":")).encode() + b"\n\n"


GOES_ON = [{"index": 0, "text": "x", "finish_reason": None}]
ROLE_ONLY = [{"index": 0, "delta": {"role": "assistant", "content": ""}}]
PLAIN = b'data: {"choices":[{"index":0,"text":"x","finish_reason":null}],"usage":null}\n\n'
RUNNING = {
    "in every event": [with_usage(n, GOES_ON) for n in range(1, 9)],
    "in every event, before choices": [with_usage(n, GOES_ON, first=True) for n in range(1, 9)],
    "in every event, with spaces": [with_usage(n, GOES_ON, loose=True) for n in range(1, 9)],
    "0 with the role, then in the last token": [
        with_usage(0, ROLE_ONLY),
        *7 * [PLAIN],
        with_usage(8, GOES_ON),
    ],
    "0 with the role, then in an event of its own": [
        with_usage(0, ROLE_ONLY),
        *8 * [PLAIN],
        with_usage(8, []),
    ],
    "in every event, and in one of its own": [
        *(with_usage(n, GOES_ON) for n in range(7)),
        PLAIN,
        with_usage(8, []),
    ],
    "in the first ones alone": [with_usage(1, GOES_ON), PLAIN, with_usage(8, GOES_ON), *5 * [PLAIN]],
}


@pytest.mark.parametrize(
    "at_once", [0, 1, 3, 100], ids=["as chunks", "one a read", "three a read", "all in a read"]
)
@pytest.mark.parametrize("events", RUNNING.values(), ids=RUNNING)
def test_of_several_usages_the_last_one_counts(events: list[bytes], at_once: int) -> None:
    scanner = EventScanner()
    for k in range(0, len(events), at_once or 1):
        piece = b"".join(events[k : k + (at_once or 1)])
        if at_once or not scanner.between_tokens or not scanner.take(b"%x\r\n%b\r\n" % (len(piece), piece)):
            scanner.feed(piece)
    scanner.feed(DONE)
    scanner.finish()
    assert scanner.usage == {"prompt_tokens": 9, "completion_tokens": 8}
    assert scanner.tokens == sum(b'"choices":[]' not in e and b"role" not in e for e in events) == 8


@pytest.mark.parametrize(
    "event",
    [b"data: {broken\n\n", b'data: {"id":"cmpl-1"}\n\n', b"data: 7\n\n"],
)
def test_what_is_no_completion_is_refused_with_its_text(event: bytes) -> None:
    with pytest.raises(MalformedStream, match=r"an event"):
        scan([TOKEN, event])


def test_an_error_of_the_server_is_none_of_the_stream() -> None:
    with pytest.raises(StreamError, match=r"the server broke off: .*engine died"):
        scan([TOKEN, b'data: {"error":{"message":"engine died"}}\n\n'])


def test_a_ten_megabyte_event_is_one_token() -> None:
    event = b"data: " + json.dumps({"choices": [{"text": "y" * 10_000_000}]}).encode() + b"\n\n"
    pieces = [event[i : i + 65536] for i in range(0, len(event), 65536)]
    assert scan([TOKEN, *pieces, USAGE]).tokens == 2


@pytest.mark.parametrize(
    "piece",
    [b"\n", b"\r", b": ping\n\n", b"event: ping\n\n", b'data: {"choices":[]}\n\n'],
    ids=["blank lines", "CRs", "comments", "other fields", "empty choices"],
)
def test_a_stream_in_which_no_token_comes_has_an_end(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of it is kept; a token begins the count anew. Of 16 MiB, which are one here."""
    monkeypatch.setattr(sse, "MOST_EVENT_BYTES", 1 << 20)
    flood = piece * ((1 << 18) // len(piece))
    with pytest.raises(MalformedStream, match="no token in 1 MiB of the stream"):
        scan([TOKEN, flood, flood, flood, TOKEN, *6 * [flood]])
    assert scan([TOKEN, flood, flood, flood, TOKEN, *3 * [flood], TOKEN, USAGE, DONE]).tokens == 3


def test_a_token_in_a_frame_of_its_own_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_EVENT_BYTES", 1 << 20)
    scanner = EventScanner()
    scanner.feed(TOKEN)
    for _ in range(12):
        scanner.feed(b": ping\n\n" * (1 << 15))
        assert scanner.take(b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))
    assert scanner.tokens == 13


def test_data_lines_are_found_among_other_lines() -> None:
    event = b': a comment\nid: data: 1\ndata: {"choices":\nretry: 3\n data: none\ndata:[{"text":"x"}]}  \n\n'
    assert scan([event, USAGE, DONE]).tokens == 1
