"""Random server answers, well formed and broken; each must have one record however it is read."""

import gzip
import json
from itertools import pairwise
from random import Random
from typing import Any

from one_answer import Answer, bytewise, check_split, recorded

TEXTS = ["a", " b", "", "\u00fc\u2028", '"choices":[{', "data: x\n\n", "}\n\n\r\n", "[DONE]", "\ud83d"]
REASONS = [None, None, None, None, "", "length", "stop", "abort", "error", "who knows", {"type": "abort"}]
HEARTBEATS = [
    b"data:",
    b"data: ",
    b"data: {}",
    b': ping "usage"',
    b":",
    b"event: ping\ndata: hello",
    b'event: m\ndata: {"choices":[{"text":"x"}]}',
    b"retry: 3",
    b'data: {"type":"keepalive"}',
    b"",
]
BROKEN = [
    b'data: {"error":{"message":"engine died"}}',
    b"event: error\ndata: no",
    b'data: {"object":"error","message":"m"}',
    b"data: {broken",
    b"data: 7",
    b'data: {"choices":5}',
    b'data: {"choices":[{"text":"\xff"}]}',
    b"data: [done]",
]
USAGES: list[Any] = [
    {"prompt_tokens": 8, "completion_tokens": 3},
    {"prompt_tokens": 8, "completion_tokens": 0},
    {},
    None,
    7,
    {"prompt_tokens": 8},
]
HEADS = [b"HTTP/1.1 200 OK\r\n"] * 12 + [
    b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 503 X\r\n",
    b"HTTP/1.1 307 X\r\nLocation: /x\r\n",
    b"HTTP/1.1 204 X\r\n",
    b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n",
    b"HTTP/1.1 20",
    b"SSH-2.0\r\n",
]


def random_answer(rng: Random) -> Answer:
    stream = rng.random() < 0.85
    body = _events(rng) if stream or rng.random() < 0.1 else _whole(rng)
    head = rng.choice(HEADS)
    kind = b"text/event-stream" if stream and rng.random() < 0.95 else b"application/json"
    head += b"Content-Type: " + kind + b"\r\n"
    if b"gzip" in head:
        body = gzip.compress(body, mtime=0)
    wire = _framed(rng, head, body)
    if rng.random() < 0.15:
        wire = wire[: rng.randrange(len(wire))]
    elif rng.random() < 0.1:
        wire += rng.choice([b"\r\n", b"garbage", wire])
    return Answer(wire, stream, rng.random() < 0.2)


def _framed(rng: Random, head: bytes, body: bytes) -> bytes:
    form = rng.random()
    if form < 0.6:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces(rng, body, rng.randint(0, 8)))
        end = rng.choice([b"0\r\n\r\n"] * 8 + [b"0\r\nX-Cost: 3\r\n\r\n", b"", b"zz\r\n", b"0\r\n"])
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + end
    if form < 0.85:
        length = len(body) + rng.choice([0, 0, 0, 0, -7, 7])
        return head + b"Content-Length: %d\r\n\r\n" % max(length, 0) + body
    return head + b"\r\n" + body


def _choice(rng: Random, *, chat: bool) -> dict[str, Any]:
    text = rng.choice(TEXTS)
    choice: dict[str, Any] = {"index": 0}
    if not chat:
        choice["text"] = text
    else:
        keys = ["content", "reasoning_content", "reasoning", "refusal", "role"]
        choice["delta"] = {k: rng.choice([text, "", None]) for k in rng.sample(keys, rng.randint(0, 3))}
        if rng.random() < 0.1:
            choice["delta"]["tool_calls"] = rng.choice([[], [{"index": 0}]])
    if rng.random() < 0.15:
        choice["finish_reason"] = rng.choice(REASONS)
    if rng.random() < 0.2:
        choice["token_ids"] = rng.choice([[1], [1, 2], None, ["x"]])
    return choice


def _events(rng: Random) -> bytes:
    chat = rng.random() < 0.5
    events = []
    for _ in range(rng.choice([0, 1, 2, 3, 4, 4, 8])):
        if rng.random() < 0.2:
            events.append(rng.choice(HEARTBEATS))
        if rng.random() < 0.02:
            events.append(rng.choice(BROKEN))
        value: dict[str, Any] = {"id": "x", "choices": [_choice(rng, chat=chat)]}
        if rng.random() < 0.1:
            value["choices"] = rng.choice([[], None, [_choice(rng, chat=chat), _choice(rng, chat=chat)]])
        if rng.random() < 0.2:
            value["usage"] = rng.choice(USAGES)
        events.append(_data(rng, value))
    if rng.random() < 0.9:
        usage = {"prompt_tokens": 8, "completion_tokens": max(0, len(events) - rng.choice([0, 0, 1, 2]))}
        events.append(_data(rng, {"choices": [], "usage": usage}))
    if rng.random() < 0.93:
        events.insert(len(events) - (rng.random() < 0.03), b"data: [DONE]")
    if rng.random() < 0.05:
        events.append(rng.choice([b"data: [DONE]", *BROKEN]))
    ends = rng.choice([[b"\n"], [b"\r\n"], [b"\r"], [b"\n", b"\r\n", b"\r"]])
    lines = [line for event in events for line in (*event.split(b"\n"), b"")]
    body = rng.choice([b"", b"", b"", b"\xef\xbb\xbf"]) + b"".join(line + rng.choice(ends) for line in lines)
    return body[: -rng.randint(1, 3)] if rng.random() < 0.1 else body


def _data(rng: Random, value: dict[str, Any]) -> bytes:
    separators = rng.choice([(",", ":"), (", ", ": ")])
    text = json.dumps(value, separators=separators).encode()
    if rng.random() < 0.1:
        return b"data: " + text.replace(b',"', b',\ndata: "')
    return rng.choice([b"data: ", b"data:", b"id: 1\nevent: message\ndata: "]) + text


def _whole(rng: Random) -> bytes:
    choice: dict[str, Any] = {"index": 0, "text": "aa", "finish_reason": rng.choice(REASONS)}
    if rng.random() < 0.3:
        choice["token_ids"] = rng.choice([[1, 2, 3], [1], None, ["x"]])
    value: dict[str, Any] = {"choices": rng.choice([[choice]] * 6 + [[], None, 5])}
    value["usage"] = rng.choice(USAGES[:1] * 6 + USAGES)
    if rng.random() < 0.05:
        value["error"] = {"message": "m"}
    return rng.choice([json.dumps(value).encode()] * 12 + [b"", b"[]", b"{broken"])


def pieces(rng: Random, data: bytes, cuts: int) -> list[bytes]:
    edges = [0, *sorted(rng.randrange(len(data) + 1) for _ in range(cuts)), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if b > a]


def check_one_record(seed: int, splits: int = 3) -> str | None:
    """Check that an answer has the same record read byte by byte and in ``splits`` other ways.

    Returns:
        The answer's status; None if it has no bytes.
    """
    rng = Random(seed)
    answer = random_answer(rng)
    if not answer.wire:
        return None
    by_bytes = recorded(answer, bytewise(answer.wire))
    for cuts in [0, *(rng.choice([1, 2, 5, 30]) for _ in range(splits - 1))]:
        check_split(answer, by_bytes, pieces(rng, answer.wire, cuts), (seed, cuts))
    return str(by_bytes.status)
