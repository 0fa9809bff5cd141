"""Put results of vllm bench serve, guidellm, aiperf and connector-tax load side by side."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.load.comparing import compare_files


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, help="result files (JSON)")


def _run(args: argparse.Namespace) -> int:
    print(compare_files(args.files))
    return 0


COMMAND = Command(__doc__, _arguments, _run)
