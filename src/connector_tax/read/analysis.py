"""Writes ``aggregate.json`` and ``aggregate.csv`` from the raw results of a campaign."""

from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import Aggregate, written
from connector_tax.base.files import to_json, write_text_if_changed
from connector_tax.base.parallel import cores, each_in
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.cell_rows import aggregate_csv

# Below this size a second process takes longer to start than the work takes.
LARGE_BYTES = 200_000_000


def analyse(root: Path, processes: int | None = None) -> Aggregate:
    """Write both files of the campaign at ``root``, and return the aggregate.

    Args:
        processes: default: one per core for a large campaign, else one.

    Raises:
        ArtifactError: there is no campaign, or its files cannot be written.
    """
    folder = CampaignFolder(root)
    with each_in(processes or processes_for(root)) as each:
        data = read_campaign(root, each=each)
        value = aggregate(data, each)
    write_text_if_changed(folder.aggregate, to_json(written(value)))
    write_text_if_changed(folder.aggregate_csv, aggregate_csv(value))
    return value


def lost_runs(folder: CampaignFolder, found: Aggregate) -> set[tuple[str, str]]:
    """Return (configuration, phase) of runs with cells in the analysis whose folders are gone.

    A deleted folder leaves no newer file that would show it.
    """
    return {(c.config, c.phase) for c in found.cells} - {
        (run.connector_id, run.phase) for run in folder.runs()
    }


def counts(found: Aggregate) -> str:
    """Return the numbers of cells, taxes and problems as text."""
    return (
        f"aggregate.json: {len(found.cells)} cells, {len(found.taxes)} taxes, {len(found.problems)} problems"
    )


def processes_for(root: Path) -> int:
    """Return how many processes should read the raw results: one per core for a large campaign, else one."""
    large = sum(p.lstat().st_size for p in root.glob("*/phase_*/cells/*/*")) > LARGE_BYTES
    return cores() if large else 1
