"""What qualifies a cell's numbers: what was seen while it was measured, and what its files say by themselves."""

from collections import Counter

from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.steptime.heard import FLAG
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.stats.host import host_flags


def flags_of(cell: CellData) -> list[str]:
    """Those of ``cell.json``, and those that follow from its samples and step records."""
    found = [*cell.document.flags, *host_flags(cell.samples.host)]
    silent = cell.steps is not None and cell.steps.unheard
    return [*found, FLAG] if silent and FLAG not in found else found


def unheard_hooks(data: CampaignData) -> list[Problem]:
    """Per configuration and cause: in how many cells its hooks were not recorded."""
    found = []
    for connector in data.config.connectors:
        steps = [c.steps for c in data.cells() if c.config == connector.id and c.steps is not None]
        for code, n in Counter(code for own in steps for code in own.unheard).items():
            found.append(
                Problem(
                    "hooks_unknown",
                    connector.id,
                    numbers={"cells": n, "of": len(steps)},
                    because=Problem(code),
                )
            )
    return found
