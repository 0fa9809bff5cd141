"""What is done, running, skipped and left of a campaign; reads files only."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.base.config import load_campaign
from connector_tax.read.report.status import status_text


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--configfile", type=Path, required=True, help="the campaign")
    parser.add_argument(
        "--root", type=Path, default=Path("results"), help="holds the campaign's folder; default: %(default)s"
    )


def _run(args: argparse.Namespace) -> int:
    print(status_text(load_campaign(args.configfile), args.root, args.configfile))
    return 0


COMMAND = Command(__doc__, _arguments, _run)
