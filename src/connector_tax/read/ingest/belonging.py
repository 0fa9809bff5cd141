"""Whether a cell was measured for this campaign: same names, same launch and same load as ``campaign.json`` says.

Only what both sides know is compared: a parameter that one of them was written without says nothing.
"""

from dataclasses import dataclass

from connector_tax.base.artifacts.layout import CellFolder, RunFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.cell import CellDocument
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import as_json
from connector_tax.base.plan.campaign import config_of
from connector_tax.base.plan.cells import cells_of, launch_spec
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.rates import ReferenceRates

# What preflight puts into the launch of a matched baseline, once it has seen the other engine.
MATCHED = {"extra_args", "env"}


@dataclass(frozen=True, slots=True)
class Belonging:
    """What cells are held against.

    Attributes:
        config: None where ``campaign.json`` is of another version, so that nothing but names can be compared.
    """

    campaign: str
    config: CampaignConfig | None

    @classmethod
    def to(cls, document: CampaignDocument) -> tuple["Belonging", str | None]:
        """Also why the config cannot be read, if so."""
        try:
            return cls(document.campaign, config_of(document)), None
        except ArtifactError as error:
            return cls(document.campaign, None), str(error)

    def faults(self, run: RunFolder, folder: CellFolder, document: CellDocument) -> list[Problem]:
        """Why the cell in ``folder`` is of another campaign; none if it is of this one."""
        named = (document.campaign, document.connector, document.phase, document.cell_id)
        if named != (self.campaign, run.connector_id, run.phase, folder.cell_id):
            return [Problem("of_other_campaign", names=named)]
        if self.config is None or not _lists(self.config, run.connector_id):
            return []
        faults: list[Problem] = []
        own, planned = (
            as_json(launch or {}) for launch in (document.launch, launch_spec(self.config, run.connector_id))
        )
        free = MATCHED if self.config.connector(run.connector_id).matches is not None else set()
        if different := [k for k in planned if k in own and k not in free and own[k] != planned[k]]:
            faults.append(Problem("launched_otherwise", names=tuple(different)))
        wanted = _planned(self.config, run, document.spec)
        if wanted is None:
            faults.append(Problem("not_planned"))
        elif different := [k for k, v in document.spec.to_json().items() if v != wanted.to_json().get(k)]:
            faults.append(Problem("loaded_otherwise", names=tuple(different)))
        return faults


def _lists(config: CampaignConfig, connector_id: str) -> bool:
    return connector_id in (*config.connector_ids, PLAIN_AGAIN)


def _planned(config: CampaignConfig, run: RunFolder, spec: CellSpec) -> CellSpec | None:
    """The campaign's own cell of this rate and shape; reference rates are taken from the cell, since they are found, not asked for."""
    rates = [spec.rate_per_s]
    if run.phase == "c":
        rates = [spec.rate_per_s * f.turns_per_session for f in config.phase_c.sessions]
    planned = [
        cell
        for rate in rates
        for cell in cells_of(config, run.connector_id, run.phase, ReferenceRates(rate, rate))
    ]
    return next((cell for cell in planned if cell.cell_id == spec.cell_id), None)
