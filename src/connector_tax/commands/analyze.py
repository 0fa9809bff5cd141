"""Raw results to aggregate.json and aggregate.csv; needs no engine and no GPU, on any machine."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.base.documents.aggregate import written
from connector_tax.base.files import to_json, write_text_if_changed
from connector_tax.base.parallel import cores, each_in
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.table import aggregate_csv

# Below this a second process takes longer to begin than the work takes.
LARGE_BYTES = 200_000_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument("--processes", type=int, help="default: one per core for a large campaign, else one")


def _run(args: argparse.Namespace) -> int:
    folder = CampaignFolder(args.root)
    large = sum(p.lstat().st_size for p in args.root.glob("*/phase_*/cells/*/*")) > LARGE_BYTES
    with each_in(args.processes or (cores() if large else 1)) as each:
        data = read_campaign(args.root, each=each)
        value = aggregate(data, each)
    write_text_if_changed(folder.aggregate, to_json(written(value)))
    write_text_if_changed(folder.aggregate_csv, aggregate_csv(value))
    if lost := data.tables_not_kept():
        print(f"{len(lost)} step tables are not kept, the next analysis takes as long again: {lost[0]}")
    print(
        f"{folder.aggregate}: {len(value.cells)} cells, {len(value.taxes)} taxes, {len(value.problems)} problems"
    )
    return 0


COMMAND = Command(__doc__, _arguments, _run)
