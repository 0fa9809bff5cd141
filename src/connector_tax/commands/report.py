"""Write report.html of a campaign from its aggregate.json and figures/."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.read.report.page import build_report, closing_lines, taxes_markdown
from connector_tax.read.report.view import page_view


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--markdown", action="store_true", help="print the taxes as a Markdown table, and write nothing"
    )


def _run(args: argparse.Namespace) -> int:
    if args.markdown:
        print(taxes_markdown(page_view(read_aggregate(CampaignFolder(args.root).aggregate))))
    else:
        build_report(args.root)
        print(closing_lines(args.root))
    return 0


COMMAND = Command(__doc__, _arguments, _run)
