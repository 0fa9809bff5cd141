"""One request, one JSONL line; dropped and failed requests have a line, too.

All times are CLOCK_MONOTONIC nanoseconds. Latencies count from the *intended* send time, so that a late
client cannot hide queueing (G. Tene, wrk2). Those from the actual send are kept beside them.
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


# An engine does not make this many tokens in one step, so if all came at once their times are unknown.
WHOLE_FROM_TOKENS = 8


class Answered(Protocol):
    """The fields of ``RequestRecord`` that latencies are computed from."""

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
    """Return TTFT from the intended send; None unless ``ok``."""
    if request.status != "ok" or request.t_first_token_ns is None:
        return None
    return request.t_first_token_ns - request.t_sched_ns


def tpot_ns(request: Answered) -> float | None:
    """Return the mean time per output token after the first.

    None unless ``ok`` with two tokens or more, and for an answer that came as a whole.
    """
    first, last, tokens = request.t_first_token_ns, request.t_last_token_ns, request.completion_tokens
    if request.status != "ok" or first is None or last is None or tokens is None or tokens < 2:
        return None
    if first == last and tokens >= WHOLE_FROM_TOKENS:
        return None
    return (last - first) / (tokens - 1)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The outcome of one scheduled request.

    Attributes:
        seq: arrival index in the cell, from 0.
        t_sched_ns: intended send time, by the arrival process.
        t_send_ns: first byte handed to the socket; None if dropped or never connected.
        t_first_token_ns, t_last_token_ns: first and last token, each by the read that completed its event.
        t_end_ns: ``[DONE]``, or the failure.
        prompt_tokens, completion_tokens: from the server's ``usage``; None if it never came.
        inflight_at_send: requests in flight just before this one.
        phase: ``warmup`` or ``window``, by ``t_sched_ns``.
        session, turn: position in a conversation; None for independent requests.
        resends: resends because a kept-alive connection was being closed.
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
        """Time of its last token, or its end if the answer has no token; None unless ``ok``."""
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
        # No copies, which dataclasses.asdict makes of each value.
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
