"""Simulate a campaign in virtual time: how long it takes, and how small a tax it finds."""

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command, add_options
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan.named import add_campaign, find_campaign
from connector_tax.outlook import outlook, outlook_text
from connector_tax.run.rehearsal.campaign import analyse, rehearse


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    differ = "take what launches differ by from that measured campaign"
    add_options(
        parser,
        ("--earlier=CAMPAIGN", find_campaign, differ),
        ("--gpus=N", int, "cards of engine.gpus used at a time; default all"),
        ("--time-only", bool, "say nothing of taxes"),
        ("--json", bool, "print for programs"),
        ("--seed", int, "of the scatter of steps; default %(default)d", 0),
        ("--to=FOLDER", Path, "keep the simulated results, as <campaign>-rehearsed"),
    )


def _run(args: argparse.Namespace) -> int:
    config = args.campaign.config()
    slots = config.engine.slots
    if args.gpus is not None and not 1 <= args.gpus <= len(slots):
        raise ConfigError(
            f"--gpus {args.gpus}: campaign {config.campaign} may use {len(slots)} (engine.gpus:"
            f" {', '.join(map(str, slots))}). Give a number from 1 to that, or name more cards there."
        )
    earlier = args.earlier and CampaignFolder(args.earlier.root).aggregate
    with nullcontext(args.to) if args.to else tempfile.TemporaryDirectory(prefix="connector-tax-") as folder:
        root, times = rehearse(config, Path(folder), seed=args.seed)
        if not args.time_only:
            analyse(root)
        plan = outlook(root, times, config, args.gpus, earlier)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
        return 0
    print(outlook_text(plan, times, config, args.campaign.run_command, args.gpus))
    if args.to:
        print(f"kept: {root}")
    return 0


COMMAND = Command(__doc__, _arguments, _run, usage="[CAMPAIGN] [options]", interrupted="nothing was measured")
