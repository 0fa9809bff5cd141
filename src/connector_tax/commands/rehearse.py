"""Simulate a campaign in virtual time: how long it would take, and how small a tax it would find."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ConfigError
from connector_tax.run.rehearsal.campaign import analyse, rehearse
from connector_tax.run.rehearsal.outlook import hours_lines, outlook, power_lines


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--configfile", type=Path, required=True, help="the campaign")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("results"),
        help="folder that gets <campaign>-rehearsed; default: %(default)s",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the scatter of steps; schedules do not depend on it; default: %(default)d",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="how many cards of engine.gpus are used at a time, as with `--resources gpu=N` of a run; default: all",
    )
    parser.add_argument("--analyze", action="store_true", help="also analyse it and print detectable taxes")
    parser.add_argument(
        "--earlier",
        type=Path,
        help="a measured campaign's folder: also print which taxes would be found if launches differ as they do there",
    )
    parser.add_argument(
        "--hours",
        type=float,
        help="also say how to divide so many hours between blocks of launches and requests; needs --analyze",
    )


def _run(args: argparse.Namespace) -> int:
    if args.hours is not None and not args.analyze:
        raise ConfigError(
            "--hours needs --analyze: what launches differ by is taken from the analysed rehearsal"
        )
    config = load_campaign(args.configfile)
    slots = config.engine.slots
    if args.gpus is not None and not 1 <= args.gpus <= len(slots):
        raise ConfigError(
            f"--gpus {args.gpus}: campaign {config.campaign} may use {len(slots)} (engine.gpus: {', '.join(map(str, slots))}). "
            "Give a number from 1 to that, or name more cards there."
        )
    root, times = rehearse(config, args.root, seed=args.seed)
    if args.analyze:
        analyse(root)
    print(outlook(root, times, config, args.hours, args.gpus))
    if args.earlier is not None:
        lines = [
            "",
            f"by the variance of {args.earlier}:",
            *power_lines(CampaignFolder(args.earlier).aggregate),
        ]
        if args.hours is not None:
            earlier = read_aggregate(CampaignFolder(args.earlier).aggregate)
            rates = read_document(CampaignFolder(root).reference_rates, ReferenceRatesFile).rates
            lines += ["", *hours_lines(earlier, config, rates, times, args.hours, args.gpus)]
        print("\n".join(lines))
    return 0


COMMAND = Command(__doc__, _arguments, _run)
