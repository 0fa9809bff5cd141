"""Analyse raw results: write aggregate.json and aggregate.csv. Needs no engine and no GPU."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.read.analysis import analyse


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument("--processes", type=int, help="default: one per core for a large campaign, else one")


def _run(args: argparse.Namespace) -> int:
    done = analyse(args.root, args.processes)
    if lost := done.tables_not_kept:
        print(f"{len(lost)} step tables are not kept, the next analysis takes as long again: {lost[0]}")
    value = done.aggregate
    print(
        f"{CampaignFolder(args.root).aggregate}: {len(value.cells)} cells, {len(value.taxes)} taxes, {len(value.problems)} problems"
    )
    return 0


COMMAND = Command(__doc__, _arguments, _run)
