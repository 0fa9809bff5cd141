"""What is done, running, skipped and left of a campaign; reads files only."""

import argparse
from pathlib import Path

from connector_tax.base.config import load_campaign
from connector_tax.base.door import run_door
from connector_tax.read.report.status import status_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=Path("results"))
    args = parser.parse_args()
    print(status_text(load_campaign(args.configfile), args.root, args.configfile))


if __name__ == "__main__":
    run_door(main)
