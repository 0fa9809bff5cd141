"""What qualifies a cell's numbers: what was seen while it was measured, and what its files say by themselves."""

from connector_tax.base.steptime.heard import FLAG
from connector_tax.read.ingest import CampaignData, CellData, Problem
from connector_tax.read.stats.host import host_flags


def flags_of(cell: CellData) -> list[str]:
    """Those of ``cell.json``, and those that follow from its samples and step records."""
    found = [*cell.document.flags, *host_flags(cell.samples.host)]
    silent = cell.steps is not None and cell.steps.unheard is not None
    return [*found, FLAG] if silent and FLAG not in found else found


def unheard_hooks(data: CampaignData) -> list[Problem]:
    """Per configuration: that its hooks were not recorded, and why."""
    found = []
    for config in data.config.connector_ids:
        cells = [c for c in data.cells() if c.config == config and c.steps is not None]
        silent = [c.steps.unheard for c in cells if c.steps is not None and c.steps.unheard is not None]
        if silent:
            reasons = "; ".join(dict.fromkeys(silent))
            what = f"{reasons} ({len(silent)} of {len(cells)} cells with step records). No tax of hooks is taken from them"
            found.append(Problem(config, what))
    return found
