"""What of a campaign's plan is not measured, from what lies on disk."""

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.plan.start import standing
from connector_tax.base.records.cell import phase_word
from connector_tax.read.report.view import Left


def unfinished(folder: CampaignFolder) -> Left | None:
    """Return what is left of a campaign's own plan; None where all has ended.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read, or another version wrote it.
        LookupError, AttributeError, TypeError, ValueError: it was edited.
    """
    document = read_campaign_file(folder.campaign_file)
    config = config_of(document)
    left = standing(config, folder, document.date).left
    if not left:
        return None
    runs = sum(len(config.members(p)) for p in config.phases)
    return Left(
        ended=runs - sum(map(len, left.values())),
        runs=runs,
        phases=[
            (phase_word(phase), ids if len(ids) < len(config.members(phase)) else ())
            for phase, ids in left.items()
        ],
    )
