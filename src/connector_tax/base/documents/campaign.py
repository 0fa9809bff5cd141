"""``campaign.json``: the resolved config, the date and the run order."""

from typing import Any, ClassVar, Literal

from msgspec import UNSET, UnsetType

from connector_tax.base.documents.reading import document_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import is_bare, is_campaign_name, is_date, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.record import Record


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


def campaign_of(value: Any, where: str) -> CampaignDocument:
    """``campaign.json``, parsed: what is used as a name is one.

    Raises:
        ArtifactError: of an unknown version or another form, or a name in it is none; names the key.
    """
    found = document_of(value, CampaignDocument, where)
    # Of these names paths are made, and tables of other people's pages.
    checks = [
        ("campaign", found.campaign, is_campaign_name, "name of a campaign"),
        ("date", found.date, is_date, "date (YYYY-MM-DD)"),
        *((f"order.{phase}", i, is_bare, "bare name") for phase, order in found.order.items() for i in order),
    ]
    for place, name, is_one, what in checks:
        if not is_one(name):
            raise ArtifactError(f"{where}: {place} is no {what}: {shown(name)}. {CampaignDocument.REMEDY}")
    return found
