"""What of a campaign's plan is not measured, from what lies on disk.

How long that takes is said elsewhere: the report's page, made of what was measured, does not depend on a guess of it.
"""

from collections.abc import Mapping, Sequence

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ArtifactError
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.plan.ended import has_ended
from connector_tax.base.records.cell import Phase, phase_word
from connector_tax.base.records.rates import ReferenceRates


def left_of(
    folder: CampaignFolder, config: CampaignConfig, date: str
) -> tuple[dict[Phase, tuple[str, ...]], ReferenceRates | None, list[str]]:
    """Also the reference rates, None before all of Phase A has ended; and why they cannot be read.

    Rates that lie there before are of an earlier plan.
    """

    def of(phase: Phase, rates: ReferenceRates | None) -> tuple[str, ...]:
        return tuple(
            c for c in config.members(phase) if not has_ended(config, folder.run(date, c, phase), rates)
        )

    of_a = of("a", None)
    rates, unreadable = (None, []) if of_a else _rates(folder)
    found = {phase: of_a if phase == "a" else of(phase, rates) for phase in config.phases}
    return {phase: ids for phase, ids in found.items() if ids}, rates, unreadable


def unfinished(folder: CampaignFolder) -> list[str]:
    """What of a campaign's own plan is not measured, in sentences; none where all has ended.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read, or another version wrote it.
        LookupError, AttributeError, TypeError, ValueError: it was edited.
    """
    document = read_campaign_file(folder.campaign_file)
    config = config_of(document)
    left = left_of(folder, config, document.date)[0]
    if not left:
        return []
    runs = sum(len(config.members(p)) for p in config.phases)
    ended = runs - sum(map(len, left.values()))
    said = [f"{ended} of {runs} runs of this campaign have ended.", f"Left: {left_text(config, left)}."]
    if "a" in left:
        said.append("Reference rates are preliminary before all of phase A has ended.")
    return [*said, "What follows is made of the cells that are finished, and may change with the rest."]


def runs_left(config: CampaignConfig, folder: CampaignFolder, date: str) -> int:
    """Of a campaign that was started: runs without a receipt, or with one of an earlier plan."""
    return sum(map(len, left_of(folder, config, date)[0].values()))


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


def _rates(folder: CampaignFolder) -> tuple[ReferenceRates | None, list[str]]:
    """And why they cannot be read."""
    if not folder.reference_rates.exists():
        return None, []
    try:
        return read_document(folder.reference_rates, ReferenceRatesFile).rates, []
    except ArtifactError as error:
        return None, [f"cannot be read: {error}"]
