"""``campaign.json``: the resolved config, the date and the run order, as every door reads them."""

from pathlib import Path

import msgspec

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import hash_of, read_document
from connector_tax.base.plan.order import run_order
from connector_tax.base.secrets import know_references


def campaign_document(config: CampaignConfig, *, date: str, created_utc: str) -> CampaignDocument:
    """What ``results/<campaign>/campaign.json`` holds.

    Args:
        date: ``YYYY-MM-DD`` of the first start; kept on every resume, since it names folders.
    """
    return CampaignDocument(
        campaign=config.campaign,
        date=date,
        created_utc=created_utc,
        order={phase: run_order(config, phase) for phase in config.phases},
        config=config.to_json(),
    )


def read_campaign_file(path: Path) -> CampaignDocument:
    """``campaign.json``, whoever wrote it: what is used as a name is one.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version, or a name in it is none; names the key.
    """
    return read_document(path, CampaignDocument)


def document_hash(document: CampaignDocument) -> str:
    return hash_of(document.config)


def config_of(document: CampaignDocument) -> CampaignConfig:
    """The config that a ``campaign.json`` was made from; ``campaign_document`` backwards.

    Raises:
        ArtifactError: another version wrote it, or it was edited.
    """
    try:
        config = msgspec.convert(document.config, CampaignConfig)
    except msgspec.ValidationError as error:
        what = str(error).replace("`$.", "`$.config.")
        raise ArtifactError(
            f"campaign.json: not what this version writes ({what}). Was it edited by hand? "
            "Remove it and start the campaign again to have it written anew; finished cells are kept."
        ) from error
    know_references(document.config)
    return config
