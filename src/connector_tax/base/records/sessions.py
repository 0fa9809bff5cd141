"""Conversations as graphs: which turn waits for which, and which history precedes its prompt.

A session file is JSONL, one session per line::

    {"turns": [{"new_tokens": 400, "output_tokens": 50},
               {"new_tokens": 30, "output_tokens": 80, "after": [0], "history": 0, "wait_s": 0.5}]}

A turn is ready when all of ``after`` are complete, and is sent ``wait_s`` later (think time, a tool's run).
With ``history``, one turn or a list of them, its prompt begins with the conversation up to those turns, each
turn once. Each turn comes after those it waits for, so chains, fan-outs and fan-ins are written in the order
in which they run.
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
        new_tokens: its own prompt tokens, after its history.
        after: indices of turns that must be complete; empty for a root.
        history: indices of the turns whose prompts and answers come first, each one of ``after``.
        wait_s: delay from ready to sent (``wait_after_ready``).
        blocks: ids of shared blocks of ``BLOCK_TOKENS`` tokens that its own tokens begin with; equal ids mean
            equal tokens in all sessions.
    """

    new_tokens: int
    output_tokens: int
    after: tuple[int, ...] = ()
    history: tuple[int, ...] = ()
    wait_s: float = 0.0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """Turns, each after those it waits for.

    Attributes:
        arrival_s: start time in a trace; None leaves it to the arrival process.
    """

    turns: tuple[Turn, ...]
    arrival_s: float | None = None

    def said_before(self, turn: int) -> list[int]:
        """Return the turns that a turn's prompt begins with, in order: its history, and theirs."""
        found: set[int] = set()
        for k in range(turn, -1, -1):
            if k == turn or k in found:
                found.update(self.turns[k].history)
        return sorted(found)

    def longest_tokens(self) -> int:
        """Return the most tokens of a turn, prompt and output, history included."""
        own = [turn.new_tokens + turn.output_tokens for turn in self.turns]
        return max(tokens + sum(own[h] for h in self.said_before(k)) for k, tokens in enumerate(own))


def read_sessions(path: Path) -> tuple[Session, ...]:
    """Read a session file, or a Mooncake trace, recognized by its keys.

    Raises:
        ConfigError: unreadable, or with an invalid line; names line, turn and what is wrong.
    """
    return parse_lines(path, session_of, "one session, a JSON object with turns,")


def session_of(value: Foreign) -> Session:
    """Return the session of one line."""
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
    """Parse a Mooncake trace's line: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

    Source: kvcache-ai/Mooncake, FAST'25 traces; each hash id stands for one block of 512 prompt tokens.
    """
    tokens, blocks = int(value["input_length"]), tuple(int(h) for h in value["hash_ids"])
    whole = blocks[: tokens // BLOCK_TOKENS]
    turn = Turn(tokens, max(1, int(value["output_length"])), blocks=whole)
    if tokens < 1:
        raise ValueError("input_length: at least 1")
    return Session((turn,), float(value["timestamp"]) / 1000)
