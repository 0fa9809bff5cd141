"""Select the rates of Phase B and of the taxes from Phase A's cells; writes reference_rates.json."""

from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import of_root
from connector_tax.base.files import to_json, write_text_if_changed
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.reference import select_reference_rates


def select(root: Path) -> str:
    rates = select_reference_rates(read_campaign(root, phases=("a",)))
    write_text_if_changed(CampaignFolder(root).reference_rates, to_json(rates))
    return (
        f"ref_safe {rates.ref_safe_per_s:g} req/s, ref_load {rates.ref_load_per_s:g} req/s"
        f" {list(rates.flags)}"
    )


if __name__ == "__main__":
    of_root(__doc__, select)
