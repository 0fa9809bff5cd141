"""Whether results are those of the campaign that the sweep defines now, and not of another one or of a part of it."""

from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.opening import printable
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.plan.start import changed_keys


@dataclass(frozen=True, slots=True)
class Fault:
    """
    Attributes:
        stands: whether numbers stand nevertheless, since only what was measured later is not in them.
    """

    why: str
    stands: bool = False


def fault_of(config: CampaignConfig, folder: Path, aggregate: Aggregate) -> Fault | None:
    """Why the aggregate in ``folder`` is not all of this campaign's; None where it is.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read, or is of another version.
    """
    if folder.is_symlink():
        return Fault("a link, which is not followed")
    if aggregate.campaign != config.campaign:
        return Fault(f"results of campaign {printable(aggregate.campaign, 100)}, not of this one")
    campaign = CampaignFolder(folder)
    file = campaign.campaign_file
    if keys := edited(config, read_campaign_file(file)) if file.exists() else []:
        return Fault(f"measured before an edit ({printable(', '.join(keys), 200)})")
    analysed = (aggregate.provenance.settings or {}).get("connectors", ()) or aggregate.config_ids
    if others := sorted(set(config.connector_ids) ^ set(analysed)):
        return Fault(f"analysed with other connectors ({printable(', '.join(others), 200)})", stands=True)
    since_ns = campaign.aggregate.stat().st_mtime_ns
    if any(run.receipt.stat().st_mtime_ns > since_ns for run in campaign.runs() if run.receipt.exists()):
        return Fault("runs that were measured since are not in it", stands=True)
    return None


def edited(config: CampaignConfig, document: CampaignDocument) -> list[str]:
    """Keys whose change makes another campaign of it.

    What is in variables that this shell has not is not known; a start that wants them says so.

    Raises:
        ArtifactError: ``campaign.json`` is of another version.
    """
    return [
        key for key, was, now in changed_keys(config, document) if "${" not in str(now) or "${" in str(was)
    ]
