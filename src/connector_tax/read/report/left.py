"""What of a campaign's plan is not measured, from what lies on disk.

How long that takes is said elsewhere: the report's page, made of what was measured, does not depend on a guess of it.
"""

from collections.abc import Mapping, Sequence

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.plan.start import standing
from connector_tax.base.records.cell import Phase, phase_word


def unfinished(folder: CampaignFolder) -> list[str]:
    """What of a campaign's own plan is not measured, in sentences; none where all has ended.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read, or another version wrote it.
        LookupError, AttributeError, TypeError, ValueError: it was edited.
    """
    document = read_campaign_file(folder.campaign_file)
    config = config_of(document)
    left = standing(config, folder, document.date).left
    if not left:
        return []
    runs = sum(len(config.members(p)) for p in config.phases)
    ended = runs - sum(map(len, left.values()))
    said = [f"{ended} of {runs} runs of this campaign have ended.", f"Left: {left_text(config, left)}."]
    if "a" in left:
        said.append("Reference rates are preliminary before all of phase A has ended.")
    return [*said, "What follows is made of the cells that are finished, and may change with the rest."]


def left_text(config: CampaignConfig, left: Mapping[Phase, Sequence[str]]) -> str:
    """``phase A of nixl_both; all of phases B and R1``."""
    parts = [
        f"phase {phase_word(phase)} of {', '.join(ids)}"
        for phase, ids in left.items()
        if len(ids) < len(config.members(phase))
    ]
    whole = [phase_word(phase) for phase, ids in left.items() if len(ids) == len(config.members(phase))]
    if whole:
        names = " and ".join([", ".join(whole[:-1]), whole[-1]] if len(whole) > 1 else whole)
        parts.append(f"all of phase{'s' if len(whole) > 1 else ''} {names}")
    return "; ".join(parts)
