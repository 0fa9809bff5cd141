"""Decide which configurations can be measured here; writes preflight/preflight_status.json."""

import argparse
import os
import sys
from pathlib import Path
from typing import get_args

from connector_tax.base.door import log_to, run_door
from connector_tax.run.engine.lifeline import end_in_order, end_with_parent
from connector_tax.run.measure.batch_limit import add_time_limit, time_limit
from connector_tax.run.measure.preflight import Launching, run_preflight
from connector_tax.run.measure.time_left import OutOfTime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign-file", type=Path, required=True, help="results/<campaign>/campaign.json")
    parser.add_argument("--only", help="verify this configuration alone and print what was found")
    parser.add_argument(
        "--launch", choices=get_args(Launching), default="all", help="who is launched and asked"
    )
    add_time_limit(parser)
    parser.add_argument("--log", type=Path, help="everything printed also goes here")
    parser.add_argument(
        "--end-with-parent", action="store_true", help="also when it is killed; for Snakemake's jobs"
    )
    args = parser.parse_args()
    end_in_order()
    if args.end_with_parent:
        end_with_parent()
    log_to(args.log)
    try:
        run_preflight(args.campaign_file, args.only, launch=args.launch, limit=time_limit(args, os.environ))
    except OutOfTime as reason:
        print(f"not begun: {reason}", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)


if __name__ == "__main__":
    run_door(main)
