"""(cell, arrival index) -> the bytes of one HTTP request.

Prompts are lists of token ids, so their length is exact without a tokenizer. Ids are drawn anew for
each request: no two prompts share a first block, and prefix caching never hits.
"""

import json
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connector_tax.records.cell import CellSpec

PATH = "/v1/completions"
# So many different ids a cell uses: their texts stay in a core's first cache, where all 100,000 would not.
VOCABULARY = 4096
# A number, its comma and blanks in front, which JSON allows: one machine word, so that joining is a table look-up.
WORD_BYTES = 8
# Drawn at a time, where prompts are shorter; takes some 30 us.
SHEET_TOKENS = 2048

Ids = NDArray[np.int64]


class TokenSource:
    """Seeded token ids out of ``low <= id < high``, any of them without the ones before, and their decimal text.

    A cell uses ``VOCABULARY`` ids, drawn from the range. Philox is a function of (key, counter), so every item of
    every stream is drawn by itself; the bias of scaling 16 random bits is below 2 %.
    """

    def __init__(self, seed: int, low: int, high: int) -> None:
        n = min(VOCABULARY, high - low)
        self._n = np.uint32(n)
        self._ids = np.random.default_rng(seed).choice(high - low, n, replace=False).astype(np.int64) + low
        self._words = _words(high)[self._ids]
        self._every_word = _words(high)
        self._philox = np.random.Philox(key=seed)
        self._state = self._philox.state
        # Its buffer is marked as used up, so that a new counter takes effect with the first draw.
        self._state["buffer_pos"] = 4
        self._counter = self._state["state"]["counter"]

    def ids(self, stream: int, item: int, count: int) -> Ids:
        """``count`` ids; the same for the same arguments."""
        return self._ids[self._draw(stream, item, count)]

    def drawn_text(self, stream: int, item: int, count: int) -> bytes:
        """``text(ids(...))``, in a fraction of the time."""
        return self._words[self._draw(stream, item, count)].tobytes()

    def text(self, ids: Ids) -> bytes:
        """Decimal numbers, each padded with blanks and with a comma behind it; ids may lie beyond the range."""
        if ids.size and ids.min() >= 0 and ids.max() < self._every_word.size:
            return self._every_word[ids].tobytes()
        return b"".join(b"%d," % i for i in ids)

    def _draw(self, stream: int, item: int, count: int) -> NDArray[np.uint32]:
        self._counter[1:4] = 0, item, stream
        self._philox.state = self._state
        rows = self._philox.random_raw((count + 3) // 4).view(np.uint16)[:count].astype(np.uint32)
        rows *= self._n
        rows >>= np.uint32(16)
        return rows


class Wire:
    """What all completion requests of one cell have in common, made once.

    Args:
        options: members of the body beside ``prompt``, the same for all.
        authorization: the header of that name, where the server asks for one.
    """

    def __init__(
        self,
        spec: CellSpec,
        *,
        model: str,
        host: str,
        options: dict[str, Any],
        authorization: str | None = None,
    ) -> None:
        body = {
            "model": model,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        key = "" if authorization is None else f"Authorization: {authorization}\r\n"
        self._head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\n{key}Content-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nX-Request-Id: {spec.prompt_seed:x}-"
        ).encode()
        self._options = json.dumps(body, separators=(",", ":")).encode()[:-1]

    def request(self, seq: int, prompt: bytes, output_tokens: int) -> bytes:
        """Head and body; ``prompt`` is JSON."""
        before = b'%b,"max_tokens":%d,"prompt":' % (self._options, output_tokens)
        length = len(before) + len(prompt) + 1
        return b"%b%d\r\nContent-Length: %d\r\n\r\n%b%b}" % (self._head, seq, length, before, prompt)


class RequestRenderer:
    """Renders the requests of one cell: independent, synthetic, all of one shape.

    Short prompts are drawn several at a time: to place the generator costs as much as to draw a thousand ids.
    """

    collects_ids = False

    def __init__(self, spec: CellSpec, *, model: str, host: str, authorization: str | None = None) -> None:
        self._shape = (spec.input_tokens, spec.output_tokens)
        self._source = TokenSource(spec.prompt_seed, spec.token_id_low, spec.token_id_high)
        self._wire = Wire(spec, model=model, host=host, authorization=authorization, options={})
        self._rows = max(1, SHEET_TOKENS // spec.input_tokens)
        self._sheet_index, self._sheet = -1, b""

    def token_ids(self, seq: int) -> Ids:
        """The prompt of arrival ``seq``; shape (input_tokens,)."""
        sheet, row = divmod(seq, self._rows)
        n = self._shape[0]
        return self._source.ids(0, sheet, self._rows * n)[row * n : (row + 1) * n]

    def render(self, seq: int) -> bytes:
        """Head and body of arrival ``seq``; the same bytes for the same cell and index, always."""
        input_tokens, output_tokens = self._shape
        sheet, row = divmod(seq, self._rows)
        if sheet != self._sheet_index:
            self._sheet_index = sheet
            self._sheet = self._source.drawn_text(0, sheet, self._rows * input_tokens)
        start = row * input_tokens * WORD_BYTES
        numbers = self._sheet[start : start + input_tokens * WORD_BYTES - 1]
        return self._wire.request(seq, b"[%b]" % numbers, output_tokens)

    # What a workload of independent requests has to say about itself; see ``loadgen.generator.Workload``.

    def lengths(self, seq: int) -> tuple[int | None, int]:
        return self._shape

    def place(self, seq: int) -> tuple[int, int] | None:
        return None

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...


@cache
def _words(high: int) -> NDArray[np.uint64]:
    """Row i is the decimal text of ``i`` and a comma as ``WORD_BYTES`` bytes, blanks on the left."""
    if high > 10 ** (WORD_BYTES - 1):
        raise ValueError(f"token ids up to {high}: more than {WORD_BYTES - 1} digits are not provided for")
    texts = [b"%*d," % (WORD_BYTES - 1, i) for i in range(high)]
    return np.frombuffer(b"".join(texts), dtype=np.uint64)
