"""Make a finished campaign small enough to publish, by the rule of connector_tax.base.artifacts.thinning."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.thinning import RULE, thin
from connector_tax.base.command import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument("--to", type=Path, required=True, help="a folder that does not exist")


def _run(args: argparse.Namespace) -> int:
    size = thin(args.root, args.to)
    print(f"{args.to}: {size / 2**20:.1f} MiB; kept: {RULE}")
    return 0


COMMAND = Command(__doc__, _arguments, _run, epilog=f"Kept: {RULE}.")
