"""Raw results to aggregate.json and aggregate.csv; needs no engine and no GPU, on any machine."""

import argparse
from pathlib import Path

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.doors import run_door
from connector_tax.files import to_json, write_text_if_changed
from connector_tax.ingest import read_campaign
from connector_tax.stats.aggregate import aggregate, aggregate_csv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    args = parser.parse_args()
    folder = CampaignFolder(args.root)
    value = aggregate(read_campaign(args.root))
    write_text_if_changed(folder.aggregate, to_json(value))
    write_text_if_changed(folder.aggregate_csv, aggregate_csv(value))
    print(
        f"{folder.aggregate}: {len(value['cells'])} cells, {len(value['taxes'])} taxes, {len(value['problems'])} problems"
    )


if __name__ == "__main__":
    run_door(main)
