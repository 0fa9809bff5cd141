"""Write report.html of a campaign from its aggregate.json and figures/."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.read.report.page import build_report


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")


def _run(args: argparse.Namespace) -> int:
    print(f"wrote {build_report(args.root)}")
    return 0


COMMAND = Command(__doc__, _arguments, _run)
