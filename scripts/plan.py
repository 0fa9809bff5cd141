"""Write campaign.json: the resolved config, the date of the first start, the run order."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.door import run_door
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.plan.start import refuse_change, write_campaign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=Path("results"))
    parser.add_argument(
        "--date", help="YYYY-MM-DD; default today. That of an existing campaign.json is kept."
    )
    parser.add_argument("--print-path", action="store_true", help="print where it lies, nothing else")
    args = parser.parse_args()
    config = load_campaign(args.configfile)
    folder = CampaignFolder(args.root / config.campaign)
    path = folder.campaign_file
    earlier = read_campaign_file(path) if path.exists() else None
    if earlier is not None and refuse_change(config, earlier, folder):
        folder.preflight_status.unlink(missing_ok=True)
    date = earlier.date if earlier is not None else args.date or f"{datetime.now(UTC):%Y-%m-%d}"
    changed = write_campaign(config, folder, date, earlier)
    if args.print_path:
        print(path)
    elif changed:
        print(f"wrote {path}")


if __name__ == "__main__":
    run_door(main)
