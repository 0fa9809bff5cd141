"""``campaign.json``: the resolved config, the date and the run order."""

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.records.bounds import CampaignName, Foreign
from connector_tax.base.records.connector import ConnectorId
from connector_tax.base.records.rates import Record


class Thinned(Record, frozen=True, kw_only=True):
    """The rule by which a published campaign was thinned, and the checksums of its source."""

    rule: str
    source: dict[str, str]


class CampaignDocument(Record, frozen=True, kw_only=True):
    """The contents of ``campaign.json``.

    Attributes:
        date: ``YYYY-MM-DD`` of the first start; it names folders.
        order: phase -> configurations in order of launch.
        config: as written, by whatever version; ``plan.config_of`` converts it, and hashes are over it.
    """

    REMEDY: ClassVar[str] = (
        "Nothing was read or written under a name in it; take the file as the campaign wrote it."
    )

    schema: Literal[1] = 1
    campaign: CampaignName
    date: Annotated[str, Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z")]
    created_utc: str | UnsetType = UNSET
    order: dict[str, tuple[ConnectorId, ...]]
    config: Foreign
    thinned: Thinned | UnsetType = UNSET
