"""Whether a cell is being measured right now: the time that a report must not be made in."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Progress:
    """What a report depends on; of two that are equal the same report is made.

    Attributes:
        cells: finished ones.
        files: of receipts, reference rates, decisions and the plan: path, time and size.
    """

    cells: int = 0
    files: frozenset[tuple[str, int, int]] = frozenset()


def progress_of(folder: CampaignFolder) -> Progress:
    """Without a finished cell none, since there is nothing to report."""
    files = {folder.campaign_file, folder.preflight_status, folder.reference_rates}
    files |= {run.receipt for run in folder.runs()}
    found = set()
    for path in files:
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.add((str(path), stat.st_mtime_ns, stat.st_size))
    cells = finished_cells(folder)
    return Progress(cells, frozenset(found)) if cells else Progress()


def finished_cells(folder: CampaignFolder) -> int:
    """How many there are, of all runs."""
    found = 0
    for run in folder.runs():
        try:
            found += len(run.finished_cells())
        except FileNotFoundError:  # as above
            continue
    return found
