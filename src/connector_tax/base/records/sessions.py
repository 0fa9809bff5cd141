"""Conversations as graphs: which turn waits for which, and whose words come before its own.

A session file is JSONL, one session per line::

    {"turns": [{"new_tokens": 400, "output_tokens": 50},
               {"new_tokens": 30, "output_tokens": 80, "after": [0], "history": 0, "wait_s": 0.5}]}

A turn is ready when all of ``after`` are complete, and is sent ``wait_s`` later (think time, a tool's run).
With ``history``, one turn or a list of them, its prompt begins with what was said up to those turns, each
turn of it once. Turns stand in an order in which each comes after those it waits for, so a chain, a fan-out
and a fan-in are all written down as they run.
"""

from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.files import parse_lines
from connector_tax.base.records.bounds import Foreign

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session.

    Attributes:
        new_tokens: prompt tokens of its own, behind its history.
        after: indices of turns that must be complete; empty for a root.
        history: indices of the turns whose prompts and answers come first, each one of ``after``.
        wait_s: from being ready to being sent (``wait_after_ready``).
        blocks: ids of shared blocks of ``BLOCK_TOKENS`` tokens that its own tokens begin with; equal ids are
            equal tokens, in whatever session they stand.
    """

    new_tokens: int
    output_tokens: int
    after: tuple[int, ...] = ()
    history: tuple[int, ...] = ()
    wait_s: float = 0.0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """Turns in an order in which each comes after those it waits for.

    Attributes:
        arrival_s: when a trace wants it to begin; None leaves that to the arrival process.
    """

    turns: tuple[Turn, ...]
    arrival_s: float | None = None

    def said_before(self, turn: int) -> list[int]:
        """Return the turns that a turn's prompt begins with, in order: its history, and the history of
        those."""
        found: set[int] = set()
        for k in range(turn, -1, -1):
            if k == turn or k in found:
                found.update(self.turns[k].history)
        return sorted(found)

    def longest_tokens(self) -> int:
        """Prompt and output of the turn that has the most of both, history included."""
        own = [turn.new_tokens + turn.output_tokens for turn in self.turns]
        return max(tokens + sum(own[h] for h in self.said_before(k)) for k, tokens in enumerate(own))


def read_sessions(path: Path) -> tuple[Session, ...]:
    """A session file, or a Mooncake trace: told apart by their keys.

    Raises:
        ConfigError: unreadable, or a line that is no session; names line, turn and what is wrong.
    """
    return parse_lines(path, session_of, "one session, a JSON object with turns,")


def session_of(value: Foreign) -> Session:
    """Return the session that a line of such a file says."""
    if "hash_ids" in value:
        return _mooncake(value)
    turns = tuple(_turn(turn) for turn in value["turns"])
    if not turns:
        raise ValueError("turns: a session has at least one")
    for k, turn in enumerate(turns):
        if any(not 0 <= parent < k for parent in turn.after):
            raise ValueError(f"turn {k}: after {list(turn.after)}: give indices of earlier turns")
        if not set(turn.history) <= set(turn.after):
            raise ValueError(f"turn {k}: history {list(turn.history)} is not among the turns it comes after")
        if turn.new_tokens < 1 or turn.output_tokens < 1 or turn.wait_s < 0:
            raise ValueError(f"turn {k}: new_tokens and output_tokens are at least 1, wait_s at least 0")
    return Session(turns, value.get("arrival_s"))


def _turn(value: Foreign) -> Turn:
    known = {"new_tokens", "output_tokens", "after", "history", "wait_s"}
    unknown = value.keys() - known
    if unknown:
        raise ValueError(f"unknown key {min(unknown)!r}. Allowed: {', '.join(sorted(known))}")
    history = value.get("history")
    parents = history if isinstance(history, list) else [] if history is None else [history]
    return Turn(
        int(value["new_tokens"]),
        int(value["output_tokens"]),
        tuple(int(k) for k in value.get("after", ())),
        tuple(int(k) for k in parents),
        float(value.get("wait_s", 0.0)),
    )


def _mooncake(value: Foreign) -> Session:
    """A line of the Mooncake traces: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

    Source: kvcache-ai/Mooncake, FAST'25 traces; each hash id stands for one block of 512 prompt tokens.
    """
    tokens, blocks = int(value["input_length"]), tuple(int(h) for h in value["hash_ids"])
    whole = blocks[: tokens // BLOCK_TOKENS]
    turn = Turn(tokens, max(1, int(value["output_length"])), blocks=whole)
    if tokens < 1:
        raise ValueError("input_length: at least 1")
    return Session((turn,), float(value["timestamp"]) / 1000)
