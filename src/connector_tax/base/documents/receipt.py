"""``receipt.json`` and ``launches.json`` of one (configuration, phase)."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.documents.cell import FileEntry, VerdictWord
from connector_tax.base.documents.identity import EngineIdentity, Versions
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import document_of, is_bare, shown
from connector_tax.base.records.bounds import Attempt, Seconds, WholeTokens
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.rates import Record

# preflight_status.json: which configurations can be measured here, and why the others cannot.

# The check that a cache connector was asked for the prompts' KV.
CACHE_ASKED = "external cache asked"
# A number of tokens as text.
LengthText = Annotated[str, Meta(pattern="^[0-9]{1,10}$")]


class Finding(Record, frozen=True):
    """The outcome of one check."""

    check: str
    ok: bool
    detail: str


class MatchedLaunch(Record, frozen=True, kw_only=True):
    """The settings that make plain vLLM equal to the connector whose baseline it is."""

    extra_args: tuple[str, ...]
    env: dict[str, str]


class Decision(Record, frozen=True):
    """The decision on one configuration.

    Attributes:
        install: would make it run here.
        launch_hash: of launch, versions and cards; an earlier decision holds for equal ones.
        launch: only for a matched baseline.
        prompt_s: of plain: prompt length (as text) -> median seconds for one token on the idle, warm engine.
        token_s: of plain: median seconds per further token there.
        counters: the engine's counters that rose with this connector and not in plain -> the shortest prompt
            that raised them, in tokens; ``UNSET`` if not examined. In ``decision.json``, all that rose.
    """

    REMEDY: ClassVar[str] = "Remove it to have the configuration tried again."

    decision: Literal["include", "skip"]
    reason: str | None = None
    install: str | None = None
    launch_hash: str | None = None
    checked: tuple[Finding, ...] = ()
    launch: MatchedLaunch | UnsetType | None = None
    prompt_s: dict[LengthText, Seconds] | UnsetType | None = None
    token_s: Seconds | UnsetType | None = None
    counters: dict[str, WholeTokens] | UnsetType = UNSET


class PreflightStatus(Record, frozen=True, kw_only=True):
    """The contents of ``preflight_status.json``.

    Attributes:
        step_timing_reason: why there is none.
        hooks_unheard: configuration -> why its hook times stay unknown.
        elapsed_s: of all attempts together; ``UNSET`` if not timed.
    """

    REMEDY: ClassVar[str] = "Remove it to have it made again."

    schema: Literal[1] = 1
    step_timing_available: bool = False
    step_timing_reason: str | None = None
    hooks_unheard: dict[str, str] | UnsetType = UNSET
    elapsed_s: Seconds | UnsetType | None = UNSET
    engine: Versions = msgspec.field(default_factory=dict)
    configs: dict[str, Decision]

    def skips(self, connector_id: str) -> bool:
        """Return whether its launches end at once; plain's second launch follows plain's decision."""
        own = self.configs.get("plain" if connector_id == PLAIN_AGAIN else connector_id)
        return own is not None and own.decision == "skip"


ReceiptStatus = Literal["measured", "skipped", "not_needed", "failed"]


class Launch(Record, frozen=True, kw_only=True):
    """One attempt to launch.

    Attributes:
        attempt: its number in the run, from 1.
        elapsed_s: from before the engine's start until it was gone; None if its process was killed.
        ending_s: the last part, from the request to end.
        failure: why it did not become ready.
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
    """One cell of the run, with the checksums of its files, including ``cell.json``."""

    cell_id: str
    spec_hash: str | UnsetType = UNSET
    verdict: VerdictWord | UnsetType = UNSET
    reasons: tuple[str, ...] | UnsetType = UNSET
    files: dict[str, FileEntry]


class Receipt(Record, frozen=True, kw_only=True):
    """The final state of a run.

    Attributes:
        engine: of the launch that measured its last cell; None if nothing was measured.
        launches: the duration of each; none in receipts from before they were timed.
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
        """Write a missing identity as an empty object."""
        value = msgspec.to_builtins(self)
        return {**value, "engine": value["engine"] or {}}


def receipt_of(value: Any, where: str) -> Receipt:
    """Convert a parsed ``receipt.json``.

    Raises:
        ArtifactError: of an unknown version or another form, or with an invalid cell id.
    """
    if isinstance(value, dict) and value.get("engine") == {}:
        value = {**value, "engine": None}
    found = document_of(value, Receipt, where)
    for k, cell in enumerate(found.cells):
        # Cell ids become paths.
        if not is_bare(cell.cell_id):
            raise ArtifactError(
                f"{where}: cells[{k}].cell_id is no bare name: {shown(cell.cell_id)}. {Receipt.REMEDY}"
            )
    return found
