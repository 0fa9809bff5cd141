"""``campaign.json``: the resolved config, the date and the run order, for every entrypoint."""

from pathlib import Path

import msgspec

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import hash_of, read_document
from connector_tax.base.plan.order import run_order
from connector_tax.base.secrets import know_references


def campaign_document(config: CampaignConfig, *, date: str, created_utc: str) -> CampaignDocument:
    """Return the contents of ``results/<campaign>/campaign.json``.

    Args:
        date: ``YYYY-MM-DD`` of the first start; a resume keeps it, since it names folders.
    """
    return CampaignDocument(
        campaign=config.campaign,
        date=date,
        created_utc=created_utc,
        order={phase: run_order(config, phase) for phase in config.phases},
        config=config.to_json(),
    )


def read_campaign_file(path: Path) -> CampaignDocument:
    """Read ``campaign.json``; values that are used as file names are checked.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version, or with an invalid name; names the key.
    """
    return read_document(path, CampaignDocument)


def document_hash(document: CampaignDocument) -> str:
    return hash_of(document.config)


def config_of(document: CampaignDocument) -> CampaignConfig:
    """Return the config that a ``campaign.json`` was made from, the inverse of ``campaign_document``.

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
