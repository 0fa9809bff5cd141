"""``preflight_status.json``: which configurations can be measured here, and for each of the others why not."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.documents.identity import Versions
from connector_tax.base.records.bounds import Seconds, WholeTokens
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.record import Record

# The check that a cache connector was asked for the prompts.
CACHE_ASKED = "external cache asked"
# A number of tokens, as text.
LengthText = Annotated[str, Meta(pattern="^[0-9]{1,10}$")]


class Finding(Record, frozen=True):
    """The outcome of one check."""

    check: str
    ok: bool
    detail: str


class MatchedLaunch(Record, frozen=True, kw_only=True):
    """What makes plain vLLM like the connector that it is the baseline of."""

    extra_args: tuple[str, ...]
    env: dict[str, str]


class Decision(Record, frozen=True):
    """One configuration.

    Attributes:
        install: what would make it run here.
        launch_hash: of launch, versions and cards; an earlier decision holds for the same.
        launch: of a matched baseline alone.
        prompt_s: of plain: prompt length (as text) -> median seconds for one token on the idle, warm engine.
        token_s: of plain: median seconds per further token there.
        counters: the engine's counters that rose with this connector and not in plain -> the shortest prompt that raised them, in
            tokens; ``UNSET`` where nobody looked. In ``decision.json``, all that rose.
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
    """
    Attributes:
        step_timing_reason: why there is none.
        hooks_unheard: configuration -> why its hook times stay unknown.
        elapsed_s: of all tries together; ``UNSET`` where it was not timed.
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
        """Whether a launch of it would end at once; of plain's second one plain's decision holds."""
        own = self.configs.get("plain" if connector_id == PLAIN_AGAIN else connector_id)
        return own is not None and own.decision == "skip"
