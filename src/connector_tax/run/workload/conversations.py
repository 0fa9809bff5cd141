"""(session, turn, what was answered before) -> the bytes of one HTTP request.

A turn's prompt is its history, token by token as the server saw and answered it, and then tokens of its own, so the
engine's prefix cache is hit as an agent's requests hit it. Answers are known as token ids, which vLLM streams on
demand (``return_token_ids``, since 0.10.2); it is asked for those of turns that are the history of a later one.
"""

from collections.abc import Callable

import numpy as np

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import BLOCK_TOKENS, Session, Turn
from connector_tax.base.records.target import Target
from connector_tax.run.workload.prompts import Ids, TokenSource, Wire

# Streams of the token source: what one session says, and blocks that sessions share.
OWN, SHARED = 1, 2
MAX_TURNS = 4096


class ConversationRenderer:
    """Renders the turns of one worker's sessions and remembers what was said in those under way.

    Args:
        turn_of: sample -> (session number, turn), the scheduler's knowledge.
        session_of: session number -> its graph.
    """

    def __init__(
        self,
        spec: CellSpec,
        target: Target,
        *,
        turn_of: Callable[[int], tuple[int, int]],
        session_of: Callable[[int], Session],
    ) -> None:
        self._turn_of = turn_of
        self._session_of = session_of
        self._source = TokenSource(spec.prompt_seed, spec.token_id_low, spec.token_id_high)
        self._wire = Wire(spec, target)
        self._wire_with_ids = Wire(spec, target, options={"return_token_ids": True})
        # (session number, turn) -> its own tokens and its answer.
        self._said: dict[tuple[int, int], Ids] = {}
        self._prompts: dict[int, Ids] = {}

    def lengths(self, seq: int) -> tuple[int | None, int | None]:
        """Prompt and output tokens of a sample that was rendered."""
        return self._prompts[seq].size, self._wire.wanted(self._turn(seq).output_tokens)

    def place(self, seq: int) -> tuple[int, int] | None:
        return self._turn_of(seq)

    def render(self, seq: int) -> bytes:
        """Head and body of sample ``seq``, whose history must have been answered."""
        number, k = self._turn_of(seq)
        turn = self._turn(seq)
        history = [self._said[number, h] for h in self._session_of(number).said_before(k)]
        prompt = np.concatenate([*history, *self._own(number, k, turn)])
        self._prompts[seq] = prompt
        wire = self._wire_with_ids if self.needs_ids(seq) else self._wire
        return wire.request(seq, b"[%b]" % self._source.text(prompt)[:-1], turn.output_tokens)

    def needs_ids(self, seq: int) -> bool:
        """Whether a later turn has this one as its history."""
        number, k = self._turn_of(seq)
        return any(k in turn.history for turn in self._session_of(number).turns[k + 1 :])

    def answered(self, seq: int, output_ids: list[int]) -> None:
        """The turn is complete; what comes after it may need this."""
        if self.needs_ids(seq):
            own = self._prompts[seq][-self._turn(seq).new_tokens :]
            self._said[self._turn_of(seq)] = np.concatenate([own, output_ids]).astype(np.int64)

    def ended(self, seq: int) -> None:
        """The sample is over, well or not, or will never be sent."""
        self._prompts.pop(seq, None)

    def forget(self, number: int) -> None:
        """The session is over."""
        for k in range(len(self._session_of(number).turns)):
            self._said.pop((number, k), None)

    def _turn(self, seq: int) -> Turn:
        number, k = self._turn_of(seq)
        return self._session_of(number).turns[k]

    def _own(self, number: int, k: int, turn: Turn) -> list[Ids]:
        shared = [self._source.ids(SHARED, block, BLOCK_TOKENS) for block in turn.blocks]
        rest = turn.new_tokens - BLOCK_TOKENS * len(turn.blocks)
        return [*shared, self._source.ids(OWN, number * MAX_TURNS + k, rest)]
