"""Measure one configuration in one phase: launch, cells, receipt. Resumes where it was interrupted."""

import argparse
import os
import sys
from pathlib import Path

from connector_tax.base.door import log_to, run_door
from connector_tax.base.records.cell import is_phase
from connector_tax.run.engine.lifeline import end_in_order, end_with_parent
from connector_tax.run.measure.batch_limit import add_time_limit, time_limit
from connector_tax.run.measure.run import measure_run, require_baseline
from connector_tax.run.measure.time_left import OutOfTime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign-file", type=Path, required=True, help="results/<campaign>/campaign.json")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--phase", required=True, help="a, b, b_prime, c, or a block of repeats: r1, r2, ...")
    parser.add_argument("--log", type=Path, help="everything printed also goes here")
    add_time_limit(parser)
    parser.add_argument(
        "--end-with-parent", action="store_true", help="also when it is killed; for Snakemake's jobs"
    )
    args = parser.parse_args()
    if not is_phase(args.phase):
        parser.error(f"--phase {args.phase}: there is no such phase")
    end_in_order()
    if args.end_with_parent:
        end_with_parent()
    log_to(args.log)
    limit = time_limit(args, os.environ)
    try:
        measure_run(args.campaign_file, args.connector, args.phase, limit=limit)
        require_baseline(args.campaign_file, args.connector, args.phase)
    except OutOfTime as reason:
        print(f"not begun: {reason}; what was finished is kept", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)


if __name__ == "__main__":
    run_door(main)
