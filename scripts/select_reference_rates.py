"""Phase A's cells to reference_rates.json: the rates at which Phase B and the taxes are taken."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.door import run_door
from connector_tax.base.files import to_json, write_text_if_changed
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.reference import select_reference_rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    args = parser.parse_args()
    rates = select_reference_rates(read_campaign(args.root, phases=("a",)))
    write_text_if_changed(CampaignFolder(args.root).reference_rates, to_json(rates))
    print(
        f"ref_safe {rates.ref_safe_per_s:g} req/s, ref_load {rates.ref_load_per_s:g} req/s {list(rates.flags)}"
    )


if __name__ == "__main__":
    run_door(main)
