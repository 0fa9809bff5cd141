"""``campaign.json``: the resolved config, the date and the run order."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import document_of, is_bare, is_campaign_name, is_date, shown
from connector_tax.base.records.bounds import Foreign, Length, Rate
from connector_tax.base.records.rates import Record
from connector_tax.base.units import token_count


class Thinned(Record, frozen=True, kw_only=True):
    """Of a published campaign: by which rule it was made small, and the checksums of what it is from."""

    rule: str
    source: dict[str, str]


class CampaignDocument(Record, frozen=True, kw_only=True):
    """
    Attributes:
        date: ``YYYY-MM-DD`` of the first start; it names folders.
        order: phase -> configurations, as they are launched.
        config: as it was written, by whatever version; ``plan.config_of`` makes the campaign of it, and hashes are over it.
    """

    REMEDY: ClassVar[str] = (
        "Nothing was read or written under a name in it; take the file as the campaign wrote it."
    )

    schema: Literal[1] = 1
    campaign: str
    date: str
    created_utc: str | UnsetType = UNSET
    order: dict[str, tuple[str, ...]]
    config: Foreign
    thinned: Thinned | UnsetType = UNSET


class _AskedEngine(Record, frozen=True, kw_only=True):
    kind: str
    model: str
    args: Foreign
    gpus: tuple[int, ...] | None = None
    mix_cards: bool | None = None

    @property
    def several(self) -> bool:
        return len(self.gpus or ()) > 1

    @property
    def mixes_cards(self) -> bool:
        """As ``EngineConfig`` has it; where it says nothing, a campaign of one card had no other."""
        return self.several and self.kind != "vllm" if self.mix_cards is None else self.mix_cards


class _AskedConnector(Record, frozen=True, kw_only=True):
    id: str
    label: str
    kv_transfer_config: Foreign | None


class _AskedShape(Record, frozen=True, kw_only=True):
    input_tokens: Length
    output_tokens: Length


class _AskedPrime(Record, frozen=True, kw_only=True):
    configs: tuple[str, ...]
    shapes: tuple[_AskedShape, ...]


class _AskedCell(Record, frozen=True, kw_only=True):
    arrival: str
    inflight_cap: Annotated[int, Meta(ge=1, le=10**6)]


class _AskedAnalysis(Record, frozen=True, kw_only=True):
    bootstrap_draws: Annotated[int, Meta(ge=1, le=100_000)]
    confidence: Annotated[float, Meta(ge=0.5, le=1)]
    time_budget_h: Annotated[float, Meta(ge=0, le=1e6)]


class AskedConfig(Record, frozen=True, kw_only=True):
    """What the statistics ask of a config, whichever version wrote it."""

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    engine: _AskedEngine
    connectors: tuple[_AskedConnector, ...]
    phase_a_shape: _AskedShape
    phase_b_input_tokens: tuple[Length, ...]
    phase_b_output_tokens: tuple[Length, ...]
    phase_b_prime: _AskedPrime
    cell: _AskedCell
    analysis: _AskedAnalysis
    phase_a_rates_per_s: tuple[Rate, ...] | None = None


# Of ``engine.args``, in the words that its command line takes: -1, ``auto``, ``32k``.
COUNTED = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


def asked_of(document: CampaignDocument, where: str) -> AskedConfig:
    """
    Raises:
        ArtifactError: the config says too little for statistics, or something that none can be made of.
    """
    try:
        found = msgspec.convert(document.config, AskedConfig)
        for name in COUNTED:
            token_count(found.engine.args.get(name))
    except ValueError as error:  # msgspec.ValidationError is one
        what = str(error).replace("`$.", "`$.config.")
        raise ArtifactError(f"{where}: {what}; nothing can be worked out from such a campaign.") from error
    if isinstance(document.created_utc, UnsetType):
        raise ArtifactError(f"{where}: Object missing required field `created_utc`. {document.REMEDY}")
    return found


def campaign_of(value: Any, where: str) -> CampaignDocument:
    """``campaign.json``, parsed: what is used as a name is one.

    Raises:
        ArtifactError: of an unknown version or another form, or a name in it is none; names the key.
    """
    found = document_of(value, CampaignDocument, where)
    listed = found.config.get("connectors", [])
    ids = (
        [c.get("id") if isinstance(c, dict) else None for c in listed] if isinstance(listed, list) else [None]
    )
    # Of these names paths are made, and tables of other people's pages.
    checks = [
        ("campaign", found.campaign, is_campaign_name, "name of a campaign"),
        ("date", found.date, is_date, "date (YYYY-MM-DD)"),
        *((f"order.{phase}", i, is_bare, "bare name") for phase, order in found.order.items() for i in order),
        *((f"config.connectors[{k}].id", i, is_bare, "bare name") for k, i in enumerate(ids)),
    ]
    for place, name, is_one, what in checks:
        if not is_one(name):
            raise ArtifactError(f"{where}: {place} is no {what}: {shown(name)}. {CampaignDocument.REMEDY}")
    return found
