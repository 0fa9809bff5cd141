"""What the steps of one (configuration, phase) share."""

from dataclasses import dataclass, field

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.slots import Slot
from connector_tax.run.measure.deaths import Death
from connector_tax.run.measure.progress import Progress
from connector_tax.run.measure.time_left import TimeLimit


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the steps of one run share.

    Attributes:
        slot: where its engines run.
        counters: those of the engine by which preflight knows this connector.
        deaths: of its engine while this process measured; grows.
        limit: by when it has to be over; None takes its time.
    """

    folder: CampaignFolder
    config: CampaignConfig
    run: RunFolder
    progress: Progress
    step_timing: bool
    slot: Slot
    deaths: list[Death] = field(default_factory=list)
    limit: TimeLimit | None = None
    counters: tuple[str, ...] = ()

    @property
    def cards(self) -> Cards:
        return self.slot.cards

    @property
    def connector_id(self) -> str:
        return self.run.connector_id
