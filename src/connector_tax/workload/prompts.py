"""(cell, arrival index) -> the bytes of one HTTP request.

Prompts are lists of token ids, so their length is exact without a tokenizer. Ids are drawn anew for
each request: no two prompts share a first block, and prefix caching never hits.
"""

import json
from functools import cache

import numpy as np
from numpy.typing import NDArray

from connector_tax.records.cell import CellSpec

PATH = "/v1/completions"


class RequestRenderer:
    """Renders the requests of one cell.

    A 32k-token prompt takes about 0.2 ms: ids index a table of numbers padded to one width, and JSON
    allows the blanks. Joining 32k decimal strings would take 3 ms, which the next arrival would feel.
    """

    def __init__(self, spec: CellSpec, *, model: str, host: str) -> None:
        self._spec = spec
        self._table = _number_table(spec.token_id_low, spec.token_id_high)
        options = (
            f'"model":{json.dumps(model)},"max_tokens":{spec.output_tokens},"temperature":0,"ignore_eos":true,'
            '"stream":true,"stream_options":{"include_usage":true}'
        )
        self._before = ("{" + options + ',"prompt":[').encode()
        self._after = b"]}"
        length = len(self._before) + self._table.itemsize * spec.input_tokens - 1 + len(self._after)
        self._head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {length}\r\nX-Request-Id: {spec.seed:x}-"
        ).encode()

    def token_ids(self, seq: int) -> NDArray[np.int64]:
        """The prompt of arrival ``seq``; shape (input_tokens,)."""
        rng = np.random.default_rng([self._spec.seed, seq])
        return rng.integers(self._spec.token_id_low, self._spec.token_id_high, self._spec.input_tokens)

    def render(self, seq: int) -> bytes:
        """Head and body of arrival ``seq``; the same bytes for the same cell and index, always."""
        numbers = self._table[self.token_ids(seq) - self._spec.token_id_low].tobytes()
        return b"".join((self._head, b"%d\r\n\r\n" % seq, self._before, numbers[:-1], self._after))


@cache
def _number_table(low: int, high: int) -> NDArray[np.bytes_]:
    """Row i is the decimal text of ``low + i`` and a comma, padded on the left with blanks."""
    width = len(str(high - 1)) + 1
    return np.array([f"{i},".rjust(width).encode() for i in range(low, high)], dtype=f"S{width}")
