"""A file of prompts -> the bytes of one HTTP request per arrival: arrival k sends prompt k, and the file begins again.

JSONL, one prompt per line, as text, as token ids or as the messages of a chat, with the length that its answer shall have::

    {"prompt": "Once upon a time", "output_tokens": 64}
    {"prompt": [101, 2023, 2003], "output_tokens": 8}
    {"messages": [{"role": "user", "content": "Once upon a time"}], "output_tokens": 64}

A chat endpoint is sent a text as the message of a user. It takes no token ids, and completions take no messages.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import parse_lines
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import Api, Target
from connector_tax.run.workload.prompts import Wire


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of the file.

    Attributes:
        content: text, token ids, or messages.
        tokens: of the prompt; None for text and messages, whose length only the server knows.
    """

    content: str | list[int] | list[Foreign]
    tokens: int | None
    output_tokens: int

    def json(self, api: Api) -> bytes:
        """As the endpoint takes it."""
        if api == "chat" and isinstance(self.content, str):
            return msgspec.json.encode([{"role": "user", "content": self.content}])
        return msgspec.json.encode(self.content)

    @property
    def is_messages(self) -> bool:
        return self.tokens is None and not isinstance(self.content, str)


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Every prompt of a file, in its order.

    Raises:
        ConfigError: unreadable, or a line that is no prompt; names the line and what is wrong.
    """
    return parse_lines(path, prompt_of, "one prompt, a JSON object with prompt and output_tokens,")


def check_prompts(path: Path, prompts: tuple[Prompt, ...], api: Api) -> None:
    """
    Raises:
        ConfigError: one of them is of a form that the endpoint does not take.
    """
    for number, prompt in enumerate(prompts, start=1):
        if api == "chat" and prompt.tokens is not None:
            raise ConfigError(
                f"{path}: prompt {number} is token ids, which no chat endpoint takes. Give text or messages."
            )
        if api == "completions" and prompt.is_messages:
            raise ConfigError(
                f"{path}: prompt {number} is the messages of a chat. Send them with --api chat."
            )


def prompt_of(value: Any) -> Prompt:
    """Return the prompt that a line of such a file says."""
    allowed = ({"prompt", "output_tokens"}, {"messages", "output_tokens"})
    if not isinstance(value, dict) or value.keys() not in allowed:
        raise ValueError(
            'give {"prompt": ..., "output_tokens": ...}, or "messages" for "prompt", and nothing else'
        )
    output_tokens = value["output_tokens"]
    if type(output_tokens) is not int or output_tokens < 1:
        raise ValueError(f"output_tokens: {output_tokens!r} is not a whole number above 0")
    if "messages" in value:
        messages = value["messages"]
        fits = isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages)
        if not messages or not fits:
            raise ValueError(
                "messages: a list of objects with role and content is wanted, and not an empty one"
            )
        return Prompt(messages, None, output_tokens)
    prompt = value["prompt"]
    is_ids = isinstance(prompt, list) and all(type(i) is int and i >= 0 for i in prompt)
    if not prompt or not (is_ids or isinstance(prompt, str)):
        raise ValueError("prompt: a text or a list of token ids is wanted, and not an empty one")
    return Prompt(prompt, len(prompt) if is_ids else None, output_tokens)


class DatasetRenderer:
    """Renders the requests of a cell whose prompts come from a file."""

    def __init__(self, spec: CellSpec, target: Target, prompts: tuple[Prompt, ...]) -> None:
        self._prompts = prompts
        self._api = spec.asked.api
        self._wire = Wire(spec, target)

    def render(self, seq: int) -> bytes:
        """Head and body of arrival ``seq``."""
        prompt = self._of(seq)
        return self._wire.request(seq, prompt.json(self._api), prompt.output_tokens)

    def lengths(self, seq: int) -> tuple[int | None, int | None]:
        prompt = self._of(seq)
        return prompt.tokens, self._wire.wanted(prompt.output_tokens)

    def place(self, seq: int) -> tuple[int, int] | None:
        return None

    def needs_ids(self, seq: int) -> bool:
        return False

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...

    def _of(self, seq: int) -> Prompt:
        return self._prompts[seq % len(self._prompts)]
