"""What the steps of one (configuration, phase) share."""

from dataclasses import dataclass, field

from connector_tax.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.config import CampaignConfig
from connector_tax.engine.gpus import Cards
from connector_tax.measure.deaths import Death
from connector_tax.measure.progress import Progress


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the steps of one run share.

    Attributes:
        deaths: of its engine while this process measured; grows.
    """

    folder: CampaignFolder
    config: CampaignConfig
    run: RunFolder
    progress: Progress
    step_timing: bool
    cards: Cards
    deaths: list[Death] = field(default_factory=list)

    @property
    def connector_id(self) -> str:
        return self.run.connector_id
