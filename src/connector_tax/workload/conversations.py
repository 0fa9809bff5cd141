"""(session, turn, what was answered before) -> the bytes of one HTTP request.

A turn's prompt is its history, token by token as the server saw and answered it, and then tokens of its own, so the
engine's prefix cache is hit as an agent's requests hit it. Answers are known as token ids, which vLLM streams on
demand (``return_token_ids``, since 0.10.2).
"""

import json
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from connector_tax.records.cell import CellSpec
from connector_tax.workload.prompts import PATH, PIECE_TOKENS, TokenSource
from connector_tax.workload.sessions import BLOCK_TOKENS, Session, Turn

# Streams of the token source: what one session says, and blocks that sessions share.
OWN, SHARED = 1, 2
MAX_TURNS = 4096

Ids = NDArray[np.int64]


class ConversationRenderer:
    """Renders the turns of one worker's sessions and remembers what was said in those under way.

    Args:
        turn_of: sample -> (session number, turn), the scheduler's knowledge.
        session_of: session number -> its graph.
    """

    collects_ids = True

    def __init__(
        self,
        spec: CellSpec,
        *,
        model: str,
        host: str,
        turn_of: Callable[[int], tuple[int, int]],
        session_of: Callable[[int], Session],
    ) -> None:
        self._spec = spec
        self._turn_of = turn_of
        self._session_of = session_of
        self._source = TokenSource(spec.seed, spec.token_id_low, spec.token_id_high)
        self._options = (
            f'{{"model":{json.dumps(model)},"temperature":0,"ignore_eos":true,"stream":true,'
            '"stream_options":{"include_usage":true},"return_token_ids":true,"max_tokens":'
        )
        self._head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"
            f"X-Request-Id: {spec.seed:x}-"
        )
        # (session number, turn) -> prompt and answer.
        self._said: dict[tuple[int, int], Ids] = {}
        self._prompts: dict[int, Ids] = {}

    def lengths(self, seq: int) -> tuple[int, int]:
        """Prompt and output tokens of a sample that was rendered."""
        return self._prompts[seq].size, self._turn(seq).output_tokens

    def place(self, seq: int) -> tuple[int, int] | None:
        return self._turn_of(seq)

    def render(self, seq: int) -> bytes:
        for payload in self.pieces(seq):
            if payload is not None:
                return payload
        raise AssertionError("the last piece is the whole")

    def pieces(self, seq: int) -> Iterator[bytes | None]:
        """As ``RequestRenderer.pieces``."""
        number, k = self._turn_of(seq)
        turn = self._turn(seq)
        history = [] if turn.history is None else [self._said[number, turn.history]]
        prompt = np.concatenate([*history, *self._own(number, k, turn)])
        self._prompts[seq] = prompt
        yield None
        numbers = []
        for start in range(0, prompt.size, PIECE_TOKENS):
            numbers.append(self._source.text(prompt[start : start + PIECE_TOKENS]))
            yield None
        numbers[-1] = numbers[-1][:-1]
        before = f'{self._options}{turn.output_tokens},"prompt":['.encode()
        length = len(before) + sum(map(len, numbers)) + 2
        yield b"".join(
            (f"{self._head}{seq}\r\nContent-Length: {length}\r\n\r\n".encode(), before, *numbers, b"]}")
        )

    def answered(self, seq: int, output_ids: list[int]) -> None:
        """The turn is complete; what comes after it may need this."""
        self._said[self._turn_of(seq)] = np.concatenate([self._prompts[seq], output_ids]).astype(np.int64)

    def ended(self, seq: int) -> None:
        """The sample is over, well or not."""
        self._prompts.pop(seq, None)

    def forget(self, number: int) -> None:
        """The session is over."""
        for k in range(len(self._session_of(number).turns)):
            self._said.pop((number, k), None)

    def _turn(self, seq: int) -> Turn:
        number, k = self._turn_of(seq)
        return self._session_of(number).turns[k]

    def _own(self, number: int, k: int, turn: Turn) -> list[Ids]:
        shared = [ids for block in turn.blocks for ids in self._source.ids(SHARED, block, BLOCK_TOKENS)]
        rest = turn.new_tokens - BLOCK_TOKENS * len(turn.blocks)
        return [*shared, *self._source.ids(OWN, number * MAX_TURNS + k, rest)]
