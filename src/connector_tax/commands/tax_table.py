"""Print the taxes of an analysed campaign as a Markdown table, or put it into a page that has a place for it."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.files import write_text
from connector_tax.read.report.sections import with_part
from connector_tax.read.report.tax_table import tax_table


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--page", type=Path, help="replace the table between '<!-- begin taxes CAMPAIGN -->' and its end"
    )


def _run(args: argparse.Namespace) -> int:
    aggregate = read_aggregate(CampaignFolder(args.root).aggregate)
    table = tax_table(aggregate)
    if args.page is None:
        print(table)
        return 0
    name = f"taxes {aggregate.campaign}"
    write_text(args.page, with_part(args.page.read_text(encoding="utf-8"), name, table))
    print(f"wrote {args.page}")
    return 0


COMMAND = Command(__doc__, _arguments, _run)
