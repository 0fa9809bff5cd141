"""One request, one JSONL line; dropped and failed requests have a line too.

All times are CLOCK_MONOTONIC nanoseconds. Latencies count from the *intended* send time, so that a
late client cannot hide queueing (G. Tene, wrk2); the same from the actual send is kept beside.
"""

import json
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

Status = Literal[
    "ok",
    "dropped",
    "connect_error",
    "http_error",
    "timeout",
    "truncated",
    "malformed",
    "stream_error",
    "wrong_length",
    "aborted",
]


# Of an answer of so many tokens that all came at one instant nobody knows when they were made: no engine
# makes them in one step.
WHOLE_FROM_TOKENS = 8


class Answered(Protocol):
    """What latencies are made of; the fields of ``RequestRecord``, wherever they stand."""

    @property
    def seq(self) -> int: ...

    @property
    def t_sched_ns(self) -> int: ...

    @property
    def t_first_token_ns(self) -> int | None: ...

    @property
    def t_last_token_ns(self) -> int | None: ...

    @property
    def status(self) -> Status | None: ...

    @property
    def completion_tokens(self) -> int | None: ...


def ttft_ns(request: Answered) -> int | None:
    """Time to first token from the intended send; None unless ``ok``."""
    if request.status != "ok" or request.t_first_token_ns is None:
        return None
    return request.t_first_token_ns - request.t_sched_ns


def tpot_ns(request: Answered) -> float | None:
    """Mean time per output token after the first; None unless ``ok`` with two tokens or more, and of an
    answer that came whole."""
    first, last, tokens = request.t_first_token_ns, request.t_last_token_ns, request.completion_tokens
    if request.status != "ok" or first is None or last is None or tokens is None or tokens < 2:
        return None
    if first == last and tokens >= WHOLE_FROM_TOKENS:
        return None
    return (last - first) / (tokens - 1)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What happened to one scheduled request.

    Attributes:
        seq: arrival index in the cell, from 0.
        t_sched_ns: when the arrival process wanted it sent.
        t_send_ns: first byte handed to the socket; None if dropped or never connected.
        t_first_token_ns, t_last_token_ns: first and last token, each the read in which the last byte of its
            event came.
        t_end_ns: ``[DONE]``, or the failure.
        prompt_tokens, completion_tokens: from the server's ``usage``; None if it never came.
        inflight_at_send: requests in flight just before this one.
        phase: ``warmup`` or ``window``, by ``t_sched_ns``.
        session, turn: where it stands in a conversation; None for independent requests.
        resends: how often it was sent again, having met a kept-alive connection that was being closed.
    """

    seq: int
    t_sched_ns: int
    t_send_ns: int | None
    t_first_token_ns: int | None
    t_last_token_ns: int | None
    t_end_ns: int | None
    status: Status
    prompt_tokens: int | None
    completion_tokens: int | None
    inflight_at_send: int
    worker: int
    phase: str
    error: str | None = None
    session: int | None = None
    turn: int | None = None
    resends: int = 0

    @property
    def ttft_ns(self) -> int | None:
        return ttft_ns(self)

    @property
    def t_done_ns(self) -> int | None:
        """When it was complete: at its last token, or at its end if the answer has no token; None unless
        ``ok``."""
        if self.status != "ok":
            return None
        return self.t_end_ns if self.t_last_token_ns is None else self.t_last_token_ns

    @property
    def e2e_ns(self) -> int | None:
        """End-to-end latency from the intended send; None unless ``ok``."""
        done_ns = self.t_done_ns
        return None if done_ns is None else done_ns - self.t_sched_ns

    @property
    def tpot_ns(self) -> float | None:
        return tpot_ns(self)

    def to_line(self) -> str:
        # Copies nothing, as dataclasses.asdict would at each value.
        value = {name: getattr(self, name) for name in _FIELDS}
        if self.session is None:
            del value["session"], value["turn"]
        if not self.resends:
            del value["resends"]
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, value: Any) -> "RequestRecord":
        return cls(**value)


_FIELDS = tuple(f.name for f in fields(RequestRecord))
