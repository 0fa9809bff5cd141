"""What the steps of one (configuration, phase) share."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.secrets import with_originals
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.reading import read_document
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.records.cell import Phase
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.slots import Slot, slots_of
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


def open_run(campaign_file: Path, connector_id: str, phase: Phase) -> Run:
    """Of a campaign whose preflight has been made.

    Raises:
        ArtifactError: the campaign or its preflight cannot be read.
    """
    document = read_campaign_file(campaign_file)
    config = config_of(with_originals(document, os.environ))
    folder = CampaignFolder(campaign_file.parent)
    return Run(
        folder,
        config,
        folder.run(document.date, connector_id, phase),
        Progress(folder, config, document.date, connector_id, phase),
        read_document(folder.preflight_status, PreflightStatus).step_timing_available,
        slots_of(config.engine)[0],
    )
