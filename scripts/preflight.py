"""Decide which configurations can be measured here; writes preflight/preflight_status.json."""

import argparse
from pathlib import Path

from connector_tax.base.door import log_to, run_door
from connector_tax.run.engine.lifeline import end_in_order, end_with_parent
from connector_tax.run.measure.preflight import run_preflight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign-file", type=Path, required=True, help="results/<campaign>/campaign.json")
    parser.add_argument("--only", help="verify this configuration alone and print what was found")
    parser.add_argument("--log", type=Path, help="everything printed also goes here")
    parser.add_argument(
        "--end-with-parent", action="store_true", help="also when it is killed; for Snakemake's jobs"
    )
    args = parser.parse_args()
    end_in_order()
    if args.end_with_parent:
        end_with_parent()
    log_to(args.log)
    run_preflight(args.campaign_file, args.only)


if __name__ == "__main__":
    run_door(main)
