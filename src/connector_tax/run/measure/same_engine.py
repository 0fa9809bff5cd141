"""A campaign goes on with the engine that it was begun with: the analysis leaves cells of another one out, so measuring them is time lost."""

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
        ConfigError: a cell of this campaign was measured with other versions or another driver, or one of the same phase on another card.
    """
    day = run.path.parent.name[:10]
    for other in folder.runs():
        cells = other.finished_cells()
        if not cells or not other.path.parent.name.startswith(f"{day}_"):
            continue
        try:
            begun = read_cell(cells[0]).engine
        except ArtifactError:
            continue  # the analysis names it
        if different := other_versions(engine, begun):
            raise ConfigError(
                f"campaign {config.campaign} was begun with another engine (now / in {other.path}): {', '.join(different)}. Give "
                "engine.python the interpreter, engine.container the image, runtime and mounts, and the host the driver that it was begun "
                "with; or give `campaign` another name."
            )
        cards, its = (kinds_of(e.gpu) if config.engine.mixes_cards else list(e.gpu) for e in (engine, begun))
        if other.phase == run.phase and its != cards:
            raise ConfigError(
                f"phase {phase_word(run.phase)} was begun on {' and '.join(its) or 'no card'} ({other.path}), and would go on on "
                f"{' and '.join(cards) or 'none'}. Its cells are compared with one another. Show the engine that card again "
                f"(engine.gpu, engine.gpus or CUDA_VISIBLE_DEVICES), let cards of one kind be mixed (engine.mix_cards: true), or remove "
                "that phase's folders to have it measured anew."
            )
