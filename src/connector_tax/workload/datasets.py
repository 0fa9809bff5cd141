"""A file of prompts -> the bytes of one HTTP request per arrival: arrival k sends prompt k, and the file begins again.

JSONL, one prompt per line, as text or as token ids, with the length that its answer shall have::

    {"prompt": "Once upon a time", "output_tokens": 64}
    {"prompt": [101, 2023, 2003], "output_tokens": 8}
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.files import parse_lines
from connector_tax.records.cell import CellSpec
from connector_tax.workload.prompts import Wire


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of the file.

    Attributes:
        text: the prompt as JSON, ready to be sent.
        tokens: of the prompt; None for text, whose length only the server knows.
    """

    text: bytes
    tokens: int | None
    output_tokens: int


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Every prompt of a file, in its order.

    Raises:
        ConfigError: unreadable, or a line that is no prompt; names the line and what is wrong.
    """
    return parse_lines(path, _prompt, "one prompt, a JSON object with prompt and output_tokens,")


def _prompt(value: Any) -> Prompt:
    if not isinstance(value, dict) or value.keys() != {"prompt", "output_tokens"}:
        raise ValueError('give {"prompt": ..., "output_tokens": ...} and nothing else')
    prompt, output_tokens = value["prompt"], value["output_tokens"]
    is_ids = isinstance(prompt, list) and all(type(i) is int and i >= 0 for i in prompt)
    if not prompt or not (is_ids or isinstance(prompt, str)):
        raise ValueError("prompt: a text or a list of token ids is wanted, and not an empty one")
    if type(output_tokens) is not int or output_tokens < 1:
        raise ValueError(f"output_tokens: {output_tokens!r} is not a whole number above 0")
    return Prompt(msgspec.json.encode(prompt), len(prompt) if is_ids else None, output_tokens)


class DatasetRenderer:
    """Renders the requests of a cell whose prompts come from a file."""

    collects_ids = False

    def __init__(
        self,
        spec: CellSpec,
        prompts: tuple[Prompt, ...],
        *,
        model: str,
        host: str,
        authorization: str | None = None,
    ) -> None:
        self._prompts = prompts
        self._wire = Wire(spec, model=model, host=host, authorization=authorization, options={})

    def render(self, seq: int) -> bytes:
        """Head and body of arrival ``seq``."""
        prompt = self._of(seq)
        return self._wire.request(seq, prompt.text, prompt.output_tokens)

    def lengths(self, seq: int) -> tuple[int | None, int]:
        prompt = self._of(seq)
        return prompt.tokens, prompt.output_tokens

    def place(self, seq: int) -> tuple[int, int] | None:
        return None

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...

    def _of(self, seq: int) -> Prompt:
        return self._prompts[seq % len(self._prompts)]
