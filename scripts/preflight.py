"""Decide which configurations can be measured here; writes preflight/preflight_status.json."""

import argparse
from typing import get_args

from connector_tax.run.measure.preflight import Launching, run_preflight
from connector_tax.run.measure.time_left import TimeLimit, run_job


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--only", help="verify this configuration alone and print what was found")
    add("--launch", choices=get_args(Launching), default="all", help="who is launched and asked")


def _preflight(args: argparse.Namespace, limit: TimeLimit | None) -> None:
    run_preflight(args.campaign_file, args.only, launch=args.launch, limit=limit)


if __name__ == "__main__":
    run_job(__doc__, _arguments, _preflight)
