"""Whether a cell is being measured right now: the time that a report must not be made in."""

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.supervisor import recorded_supervisor


def cell_under_way(folder: CampaignFolder) -> bool:
    """Whether an engine is up whose run has a cell under its temporary name; what a killed measurement left is none."""
    return any(map(_has_one, folder.runs()))


def _has_one(run: RunFolder) -> bool:
    try:
        begun = any(run.cells.glob(".*.partial"))
        supervisor = recorded_supervisor(run.path) if begun else None
    except FileNotFoundError:  # a run that begins anew removes its folders
        return False
    return supervisor is not None and supervisor.lives


def finished_cells(folder: CampaignFolder) -> int:
    """How many there are, of all runs."""
    found = 0
    for run in folder.runs():
        try:
            found += len(run.finished_cells())
        except FileNotFoundError:  # as above
            continue
    return found
