"""``accuracy.json``: what an engine answered to a fixed set of prompts."""

from typing import ClassVar, Literal, NotRequired, TypedDict

from msgspec import UNSET, UnsetType

from connector_tax.base.records.record import Record


class Output(TypedDict):
    """The answer to one prompt: ``token_ids``; ``text`` where the server gives no ids; ``error`` where it failed."""

    token_ids: NotRequired[list[int]]
    text: NotRequired[str]
    error: NotRequired[str]


class OutputsFile(Record, frozen=True, kw_only=True):
    """The accuracy pass of one run.

    Attributes:
        spec_hash: of launch and prompts; a pass is used again only if its hash is the plan's.
    """

    REMEDY: ClassVar[str] = "Remove it and start again to have the prompts asked once more."

    schema: Literal[1] = 1
    campaign: str
    connector: str
    spec_hash: str | UnsetType = UNSET
    outputs: list[Output]
