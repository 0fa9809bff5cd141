"""However a server cuts its answer into events, chunks and reads, the client reads the same out of it."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))
from one_answer import Answer, recorded

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

texts = st.sampled_from([" a", "", "\u00fc", '"choices":[{', "data: x\n\n", "}\n\n\r\n", "[DONE]", "\\"])


@st.composite
def token_events(draw: st.DrawFn) -> bytes:
    value = {"id": "x", "choices": [{"index": 0, "text": draw(texts)}], "usage": None}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return b"data: " + json.dumps(value, separators=separators).encode()


def naive_tokens(event: bytes) -> int:
    """By the book: decode every event."""
    data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
    return int(bool(data and json.loads(data)["choices"]))


others = st.sampled_from(
    [
        b": keep-alive",
        b'data: {"choices":[],"usage":null}',
        b"event: ping",
        b'data: {"choices":[\ndata: {"text":"two lines"}]}',
    ]
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if b > a]


cuts = st.lists(st.integers(0, 5000), max_size=20)


@given(st.binary(max_size=400), cuts, st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_connection_takes_any_bytes_and_reports_its_flight_once(
    data: bytes, where: list[int], with_head: bool
) -> None:
    wire = HEAD + data if with_head else data
    recorded(Answer(wire), pieces(wire, where))


def end(tokens: int) -> bytes:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":%d}}\n\n' % tokens
    done = b"data: [DONE]\n\n"
    return b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(usage), usage, len(done), done)


@given(
    data=st.data(),
    events=st.lists(st.one_of(token_events(), token_events(), others), min_size=1, max_size=20),
)
@settings(max_examples=150, deadline=None)
def test_every_token_has_the_time_of_the_read_that_completed_it(data: Any, events: list[bytes]) -> None:
    """Each event in a chunk of its own, as servers send them; reads hold one, a few, or pieces of them."""
    wire, ends = HEAD, []
    for one in events:
        payload = one + b"\n\n"
        wire += b"%x\r\n%b" % (len(payload), payload)
        ends += [len(wire)] * naive_tokens(one)
        wire += b"\r\n"
    tokens = len(ends)
    boundaries = [len(HEAD), *(k + 6 for k in range(len(wire)) if wire.startswith(b"}\n\n\r\n", k))]
    odd = data.draw(st.lists(st.integers(0, len(wire)), max_size=3))
    left_out = data.draw(st.sets(st.sampled_from(boundaries), max_size=4))
    where = sorted({*boundaries, *odd} - left_out | {len(wire)})
    reads = [wire[a:b] for a, b in pairwise([0, *where]) if a < b]
    found = recorded(Answer(wire), [*reads, end(tokens)])
    assert (found.status, found.completion_tokens) == ("ok", tokens)
    read_ends = [sum(map(len, reads[: k + 1])) for k in range(len(reads))]
    expected = [next(k for k, at in enumerate(read_ends, start=1) if at >= e) for e in ends]
    first, last, _, *stamps = found.stamps
    assert stamps == expected
    assert [first, last] == ([expected[0], expected[-1]] if expected else [None, None])


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 500 X\r\ncontent-type: application/json\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n",
    ],
    ids=["error", "no stream", "no event"],
)
@pytest.mark.parametrize("kept", [200, 2000])
def test_of_a_known_secret_no_half_is_kept(head: bytes, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may repeat the key that it refused where its answer is cut."""
    secret = "Zq8vT2xLk9Rw4nBd7fHsQ1"
    monkeypatch.setenv("VLLM_API_KEY", secret)
    said = b"data: {" + b"m" * (kept - 19) + b" " + secret.encode() + b" was refused\n\n"
    wire = head + b"content-length: %d\r\n\r\n" % len(said) + said
    error = recorded(Answer(wire), [wire]).error
    assert error is not None and "mmm" in error and secret[:4] not in error
