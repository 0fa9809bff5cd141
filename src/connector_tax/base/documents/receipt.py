"""``receipt.json`` and ``launches.json`` of one (configuration, phase)."""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from connector_tax.base.documents.cell import FileEntry, VerdictWord
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.documents.reading import document_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import is_bare, shown
from connector_tax.base.records.bounds import Attempt, Seconds
from connector_tax.base.records.record import Record

ReceiptStatus = Literal["measured", "skipped", "not_needed", "failed"]


class Launch(Record, frozen=True, kw_only=True):
    """One try to launch.

    Attributes:
        attempt: which one of its run, from 1.
        elapsed_s: from before the engine was started until it was gone; None where its process was killed.
        ending_s: the last part of it, from the moment the engine was told to end.
        failure: why it did not get ready.
    """

    attempt: Attempt
    started_utc: str | UnsetType = UNSET
    elapsed_s: Seconds | None
    ending_s: Seconds | UnsetType = UNSET
    failure: str | UnsetType = UNSET


class Launches(Record, frozen=True, kw_only=True):
    """``launches.json``, oldest first."""

    REMEDY: ClassVar[str] = "Remove it; its launches then count as not timed."

    schema: Literal[1] = 1
    launches: tuple[Launch, ...]


class ReceiptCell(Record, frozen=True, kw_only=True):
    """One cell of the run, with the checksum of each of its files, ``cell.json`` among them."""

    cell_id: str
    spec_hash: str | UnsetType = UNSET
    verdict: VerdictWord | UnsetType = UNSET
    reasons: tuple[str, ...] | UnsetType = UNSET
    files: dict[str, FileEntry]


class Receipt(Record, frozen=True, kw_only=True):
    """The last word of a run.

    Attributes:
        engine: of the launch that measured its last cell; None where nothing was measured.
        launches: how long each took; none in receipts from before they were timed.
    """

    REMEDY: ClassVar[str] = "Remove it and start again; cells are kept."

    schema: Literal[1] = 1
    status: ReceiptStatus
    reason: str | None
    campaign: str
    connector: str
    phase: str
    step_timing_available: bool
    engine: EngineIdentity | None
    launches: tuple[Launch, ...] | None = ()
    cells: tuple[ReceiptCell, ...]

    def to_json(self) -> Any:
        """An identity that there is none of is an empty object in the file."""
        value = msgspec.to_builtins(self)
        return {**value, "engine": value["engine"] or {}}


def receipt_of(value: Any, where: str) -> Receipt:
    """``receipt.json``, parsed.

    Raises:
        ArtifactError: of an unknown version or another form, or a cell's id is no name.
    """
    if isinstance(value, dict) and value.get("engine") == {}:
        value = {**value, "engine": None}
    found = document_of(value, Receipt, where)
    for k, cell in enumerate(found.cells):
        # Of these paths are made.
        if not is_bare(cell.cell_id):
            raise ArtifactError(
                f"{where}: cells[{k}].cell_id is no bare name: {shown(cell.cell_id)}. {Receipt.REMEDY}"
            )
    return found
