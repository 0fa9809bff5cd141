"""The taxes that the embedded engine's cost model gives, by many launches in virtual time, to put_in.json."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.door import run_door
from connector_tax.base.files import write_json
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.run.rehearsal.put_in import LAUNCHES, taxes_put_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--launches", type=int, default=LAUNCHES, help="of each configuration (default: %(default)s)"
    )
    args = parser.parse_args()
    folder = CampaignFolder(args.root)
    rates = read_document(folder.reference_rates, ReferenceRatesFile)
    found = taxes_put_in(config_of(read_campaign_file(folder.campaign_file)), rates, args.launches)
    write_json(folder.put_in, found)
    print(f"{folder.put_in}: {len(found.taxes)} taxes of {found.launches} launches in virtual time")


if __name__ == "__main__":
    run_door(main)
