"""Random answers of servers, well formed and broken, and what a connection records of one for given reads."""

import gzip
import json
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from typing import Any
from unittest import mock

from connector_tax.run.loadgen import connection as connection_module
from connector_tax.run.loadgen.connection import Connection
from connector_tax.run.loadgen.events import SILENT
from connector_tax.run.loadgen.issuer import Flight

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


@dataclass(frozen=True)
class Answer:
    """Bytes of one answer, and how it was asked for."""

    wire: bytes
    stream: bool
    collect_ids: bool


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


class _Pool:
    events = SILENT

    def __init__(self, stream: bool) -> None:
        self.stream = stream
        self.ended: list[Flight] = []

    def flight_ended(self, connection: Connection, flight: Flight) -> None:
        self.ended.append(flight)

    def connection_free(self, connection: Connection) -> None: ...

    def connection_lost(self, connection: Connection, flight: Flight | None) -> None:
        if flight is not None:
            self.ended.append(flight)


class _Line:
    closing = False

    def get_extra_info(self, name: str) -> None: ...

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def recorded(answer: Answer, reads: Sequence[bytes]) -> tuple[list[object], list[int | None]]:
    """What is recorded of an answer whose k-th read comes at time k, and which then ends: all but the times, and the times."""
    now = [0]
    pool = _Pool(answer.stream)
    flight = Flight(0, 0, 0, token_ns=array("q"), output_ids=[] if answer.collect_ids else None)
    with mock.patch.object(connection_module, "monotonic_ns", lambda: now[0]):
        connection = Connection(pool)
        line = _Line()
        connection.connection_made(line)  # type: ignore[arg-type]
        connection.send(flight, b"request")
        for now[0], data in enumerate(reads, start=1):
            if not line.closing:
                connection.data_received(data)
        now[0] = len(reads) + 1
        connection.connection_lost(None)
    assert all(one is flight for one in pool.ended) and len(pool.ended) <= 1
    facts: list[object] = [flight.status, flight.error, flight.prompt_tokens, flight.completion_tokens]
    facts += [flight.output_ids, len(flight.token_ns or ())]
    stamps = [flight.t_first_token_ns, flight.t_last_token_ns, flight.t_end_ns, *(flight.token_ns or ())]
    return facts, stamps


def check_one_record(seed: int, splits: int = 3) -> str | None:
    """One answer, read byte by byte and in ``splits`` other ways, has one record, and times of the reads in which its bytes came.

    Returns:
        The answer's status; None where nothing of it came.
    """
    rng = Random(seed)
    answer = random_answer(rng)
    if not answer.wire:
        return None
    facts, byte_at = recorded(answer, [answer.wire[k : k + 1] for k in range(len(answer.wire))])
    for cuts in [0, *(rng.choice([1, 2, 5, 30]) for _ in range(splits - 1))]:
        reads = pieces(rng, answer.wire, cuts)
        found, stamps = recorded(answer, reads)
        assert found == facts, (seed, cuts)
        ends = list(accumulate(map(len, reads)))
        assert stamps == [None if at is None else bisect_left(ends, at) + 1 for at in byte_at], (seed, cuts)
    return str(facts[0])
