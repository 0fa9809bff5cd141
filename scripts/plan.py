"""Write campaign.json: the resolved config, the date of the first start, the run order."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.door import run_door
from connector_tax.base.files import to_json, write_text_if_changed
from connector_tax.base.plan import campaign_document, read_campaign_file


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
    path = CampaignFolder(args.root / config.campaign).campaign_file
    earlier = read_campaign_file(path) if path.exists() else None
    now = datetime.now(UTC)
    document = campaign_document(
        config,
        date=(earlier and earlier.date) or args.date or f"{now:%Y-%m-%d}",
        created_utc=(earlier and earlier.created_utc) or f"{now:%Y-%m-%dT%H:%M:%SZ}",
    )
    changed = write_text_if_changed(path, to_json(document))
    if args.print_path:
        print(path)
    elif changed:
        print(f"wrote {path}")


if __name__ == "__main__":
    run_door(main)
