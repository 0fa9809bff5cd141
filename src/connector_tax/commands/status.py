"""What is done, running, skipped and left of a campaign; reads files only."""

import argparse

from connector_tax.base.command import Command
from connector_tax.base.plan.named import add_campaign
from connector_tax.read.report.status import status_text


def _run(args: argparse.Namespace) -> int:
    campaign = args.campaign
    print(status_text(campaign.config(), campaign.root, campaign.run_command))
    return 0


COMMAND = Command(__doc__, add_campaign, _run, usage="[CAMPAIGN]")
