"""A campaign goes on with the engine that it was begun with, or is refused by name before anything is launched.

Its analysis leaves cells of another engine, driver or card than plain's out, so measuring them would be time lost.
"""

from collections.abc import Iterator

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.identity import EngineIdentity, kinds_of, other_versions
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.records.cell import phase_word


def refuse_another_engine(
    folder: CampaignFolder, config: CampaignConfig, run: RunFolder, engine: EngineIdentity
) -> None:
    """
    Args:
        engine: what would be launched now.

    Raises:
        ConfigError: a cell of this start of the campaign was measured with other versions or another driver, or one of the same
            phase on another card.
    """
    day = run.path.parent.name[:10]
    for other, begun in _begun(folder):
        if not other.path.parent.name.startswith(f"{day}_"):
            continue
        if different := other_versions(engine, begun):
            raise ConfigError(
                f"campaign {config.campaign} was begun with another engine (now / in {other.path}): {', '.join(different)}. Cells of two "
                "engines are not compared. Give engine.container the image, runtime and mounts that it was begun with, engine.python the "
                "interpreter, and the host its driver; or give "
                "`campaign` another name to measure this one."
            )
        cards, its = (kinds_of(e.gpu) if config.engine.mixes_cards else list(e.gpu) for e in (engine, begun))
        if other.phase == run.phase and its != cards:
            raise ConfigError(
                f"phase {phase_word(run.phase)} was begun on {' and '.join(its) or 'no card'} ({other.path}), and would go on on "
                f"{' and '.join(cards) or 'none'}. Its cells are compared with one another. Show the engine that card again "
                f"(engine.gpu, engine.gpus or CUDA_VISIBLE_DEVICES), let cards of one kind be mixed (engine.mix_cards: true), or remove "
                "that phase's folders to have it measured anew."
            )


def _begun(folder: CampaignFolder) -> Iterator[tuple[RunFolder, EngineIdentity]]:
    """Of each run its first finished cell that can be read; the analysis names those that cannot."""
    for run in folder.runs():
        for cell in run.finished_cells():
            try:
                yield run, read_cell(cell).engine
            except ArtifactError:
                continue
            break
