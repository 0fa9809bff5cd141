"""Simulate a campaign in virtual time: how long it would take, and how small a tax it would find."""

import argparse
from pathlib import Path

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.config import load_campaign
from connector_tax.doors import run_door
from connector_tax.rehearsal.campaign import analyse, rehearse
from connector_tax.rehearsal.outlook import outlook, power_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=Path("results"))
    parser.add_argument("--seed", type=int, default=0, help="another seed is another day")
    parser.add_argument("--analyze", action="store_true", help="also analyse it and print detectable taxes")
    parser.add_argument(
        "--earlier", type=Path, help="a measured campaign's folder: what its variance would find"
    )
    args = parser.parse_args()
    root, times = rehearse(load_campaign(args.configfile), args.root, seed=args.seed)
    if args.analyze:
        analyse(root)
    print(outlook(root, times))
    if args.earlier is not None:
        print(
            "\n".join(
                [
                    "",
                    f"by the variance of {args.earlier}:",
                    *power_lines(CampaignFolder(args.earlier).aggregate),
                ]
            )
        )


if __name__ == "__main__":
    run_door(main)
