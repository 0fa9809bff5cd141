"""Write campaign.json as the first start of a campaign does: the resolved config, the date, the run order. For tests alone."""

import argparse
from pathlib import Path

from connector_tax.base.config import load_campaign
from connector_tax.base.door import run_door
from connector_tax.base.plan.start import begin_campaign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=Path("results"))
    parser.add_argument(
        "--date", help="YYYY-MM-DD; default today. That of an existing campaign.json is kept."
    )
    args = parser.parse_args()
    path, changed = begin_campaign(load_campaign(args.configfile), args.root, args.date)
    if changed:
        print(f"wrote {path}")


if __name__ == "__main__":
    run_door(main)
