"""Write put_in.json: the taxes that the embedded engine's cost model adds, from launches in virtual time."""

from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import of_root
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.files import read_document, write_json
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.run.rehearsal.cell import LAUNCHES, taxes_put_in


def put_in(root: Path) -> str:
    folder = CampaignFolder(root)
    rates = read_document(folder.reference_rates, ReferenceRatesFile)
    found = taxes_put_in(config_of(read_campaign_file(folder.campaign_file)), rates, LAUNCHES)
    write_json(folder.put_in, found)
    return f"{folder.put_in}: {len(found.taxes)} taxes of {found.launches} launches in virtual time"


if __name__ == "__main__":
    of_root(__doc__, put_in)
