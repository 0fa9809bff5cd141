"""``campaign.json``: the resolved config, the date and the run order, as every door reads them."""

from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.campaign import CampaignDocument, campaign_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import hash_of, read_json
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
    return campaign_of(read_json(path), str(path))


def document_hash(document: CampaignDocument) -> str:
    return hash_of(document.config)


def config_of(document: CampaignDocument) -> CampaignConfig:
    """The config that a ``campaign.json`` was made from; ``campaign_document`` backwards.

    Raises:
        ArtifactError: another version wrote it, or it was edited.
    """
    try:
        # A campaign from before there was a Phase D has none.
        config = msgspec.convert({"phase_d": {}, **document.config}, CampaignConfig)
    except msgspec.ValidationError as error:
        raise _not_ours(str(error).replace("`$.", "`$.config.")) from error
    if (place := _unknown(document.config, config.to_json(), "$.config")) is not None:
        raise _not_ours(f"Object contains unknown field - at `{place}`")
    know_references(document.config)
    return config


def _unknown(found: Any, known: Any, place: str) -> str | None:
    """The first key of ``found`` that a config of this version has not."""
    if isinstance(found, dict):
        for key, value in found.items():
            here = f"{place}.{key}"
            if (strange := _unknown(value, known[key], here) if key in known else here) is not None:
                return strange
    elif isinstance(found, list):
        parts = (_unknown(a, b, f"{place}[{k}]") for k, (a, b) in enumerate(zip(found, known, strict=True)))
        return next((strange for strange in parts if strange is not None), None)
    return None


def _not_ours(what: str) -> ArtifactError:
    return ArtifactError(
        f"campaign.json: not what this version writes ({what}). Was it edited by hand? "
        "Remove it and start the campaign again to have it written anew; finished cells are kept."
    )
