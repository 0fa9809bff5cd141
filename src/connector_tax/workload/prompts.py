"""(cell, arrival index) -> the bytes of one HTTP request.

Prompts are lists of token ids, so their length is exact without a tokenizer. Ids are drawn anew for
each request: no two prompts share a first block, and prefix caching never hits.
"""

import json
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from connector_tax.records.cell import CellSpec

PATH = "/v1/completions"


# Tokens drawn and rendered at a time: 10 to 40 us, depending on what the caches hold.
PIECE_TOKENS = 512


class TokenSource:
    """Seeded token ids, any of them without the ones before, and their decimal text.

    Philox is a function of (key, counter), so any piece of any prompt is drawn by itself, for a sixth of what a
    generator of its own would cost. 32 random bits are scaled to the range; the bias is below range / 2^32.
    """

    def __init__(self, seed: int, low: int, high: int) -> None:
        self._low = low
        self._span = np.uint64(high - low)
        self._philox = np.random.Philox(key=seed)
        self._state = self._philox.state
        # Its buffer is marked as used up, so that a new counter takes effect with the first draw.
        self._state["buffer_pos"] = 4
        self._counter = self._state["state"]["counter"]
        self._table = _number_table(low, high)

    def rows(self, stream: int, item: int, count: int) -> Iterator[NDArray[np.uint64]]:
        """``count`` ids less ``low``, in pieces of at most ``PIECE_TOKENS``; the same for the same arguments."""
        for piece, start in enumerate(range(0, count, PIECE_TOKENS)):
            n = min(PIECE_TOKENS, count - start)
            self._counter[1:4] = piece, item, stream
            self._philox.state = self._state
            bits = self._philox.random_raw((n + 1) // 2).view(np.uint32)[:n].astype(np.uint64)
            bits *= self._span
            bits >>= np.uint64(32)
            yield bits

    def ids(self, stream: int, item: int, count: int) -> Iterator[NDArray[np.int64]]:
        """The same as token ids."""
        for rows in self.rows(stream, item, count):
            yield rows.astype(np.int64) + self._low

    def row_text(self, rows: NDArray[np.uint64]) -> bytes:
        """Decimal numbers, each with a comma behind it and padded with blanks."""
        return self._table[rows].tobytes()

    def text(self, ids: NDArray[np.int64]) -> bytes:
        """The same for ids, which a server may have answered from beyond the range."""
        inside = (ids >= self._low) & (ids < self._low + int(self._span))
        if inside.all():
            return self.row_text((ids - self._low).astype(np.uint64))
        return b"".join(b"%d," % i for i in ids)


class RequestRenderer:
    """Renders the requests of one cell.

    Ids index a table of numbers padded to one width, and JSON allows the blanks; joining decimal strings would
    take fifteen times as long. Still a long prompt takes 0.3 ms and more, which a response's stamp would feel, so
    it can be rendered piece by piece.
    """

    def __init__(self, spec: CellSpec, *, model: str, host: str) -> None:
        self._spec = spec
        self._source = TokenSource(spec.seed, spec.token_id_low, spec.token_id_high)
        options = (
            f'"model":{json.dumps(model)},"max_tokens":{spec.output_tokens},"temperature":0,"ignore_eos":true,'
            '"stream":true,"stream_options":{"include_usage":true}'
        )
        self._before = ("{" + options + ',"prompt":[').encode()
        self._after = b"]}"
        length = (
            len(self._before)
            + len(self._source.row_text(np.zeros(1, dtype=np.uint64))) * spec.input_tokens
            - 1
            + len(self._after)
        )
        self._head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {length}\r\nX-Request-Id: {spec.seed:x}-"
        ).encode()

    def token_ids(self, seq: int) -> NDArray[np.int64]:
        """The prompt of arrival ``seq``; shape (input_tokens,)."""
        return np.concatenate(list(self._source.ids(0, seq, self._spec.input_tokens)))

    def render(self, seq: int) -> bytes:
        """Head and body of arrival ``seq``; the same bytes for the same cell and index, always."""
        for payload in self.pieces(seq):
            if payload is not None:
                return payload
        raise AssertionError("the last piece is the whole")

    def pieces(self, seq: int) -> Iterator[bytes | None]:
        """The same in steps: None until the whole is there, which comes last."""
        numbers = []
        for rows in self._source.rows(0, seq, self._spec.input_tokens):
            numbers.append(self._source.row_text(rows))
            yield None
        numbers[-1] = numbers[-1][:-1]
        yield b"".join((self._head, b"%d\r\n\r\n" % seq, self._before, *numbers, self._after))

    # What a workload of independent requests has to say about itself; see ``loadgen.generator.Workload``.

    collects_ids = False

    def lengths(self, seq: int) -> tuple[int, int]:
        return self._spec.input_tokens, self._spec.output_tokens

    def place(self, seq: int) -> tuple[int, int] | None:
        return None

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...


@cache
def _number_table(low: int, high: int) -> NDArray[np.bytes_]:
    """Row i is the decimal text of ``low + i`` and a comma, padded on the left with blanks."""
    width = len(str(high - 1)) + 1
    return np.array([f"{i},".rjust(width).encode() for i in range(low, high)], dtype=f"S{width}")
