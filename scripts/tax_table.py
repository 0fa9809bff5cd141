"""Print the taxes of an analysed campaign as a Markdown table, or put it into a page that has a place for it."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.door import run_door
from connector_tax.base.files import read_json, write_text
from connector_tax.read.report.sections import with_part
from connector_tax.read.report.tax_table import tax_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--page", type=Path, help="replace the table between '<!-- begin taxes CAMPAIGN -->' and its end"
    )
    args = parser.parse_args()
    aggregate = read_json(CampaignFolder(args.root).aggregate)
    table = tax_table(aggregate)
    if args.page is None:
        print(table)
        return
    name = f"taxes {aggregate['campaign']}"
    write_text(args.page, with_part(args.page.read_text(encoding="utf-8"), name, table))
    print(f"wrote {args.page}")


if __name__ == "__main__":
    run_door(main)
