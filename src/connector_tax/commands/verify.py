"""Say of a bundle which files were changed, are missing or were added; with --reproduce, compute it anew and compare.

Of a campaign's folder: which cells are not as their receipts list them, by checksum. A start looks at sizes alone.
"""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.cells import damage
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.command import Command
from connector_tax.base.files import printable, sha256_of
from connector_tax.base.plan.named import find_campaign
from connector_tax.base.units import how_many
from connector_tax.read.bundle import reproduce, verify

_EXIT = """\
exit code:
  0  every file is as it was bundled (and came out the same)
  1  one is not, or the archive is damaged; a line says so of each
  2  a mistake in the command
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle",
        metavar="BUNDLE|CAMPAIGN",
        help="a bundle as it came, or unpacked; or a campaign, by its config file or its results folder",
    )
    parser.add_argument(
        "--reproduce",
        action="store_true",
        help="make aggregate and figures of the raw results alone, in a temporary folder, and compare byte for byte",
    )


def _run(args: argparse.Namespace) -> int:
    path = Path(args.bundle)
    if path.suffix in (".yaml", ".yml") or not (path.suffix or path.exists()):
        path = find_campaign(args.bundle).measured_root
    campaign = CampaignFolder(path)
    if campaign.campaign_file.is_file() and not args.reproduce:
        return _verify_campaign(campaign)
    verified = verify(path)
    for finding in verified.findings:
        print(finding)
    if verified.findings:
        print(
            f"{path}: {how_many(len(verified.findings), 'finding')}"
            + "; nothing was reproduced" * args.reproduce
        )
        return 1
    whole = "" if path.is_dir() else f"; sha256 {sha256_of(path)}"
    print(f"{path}: {len(verified.sha256) + 1} files, all as they were bundled{whole}")
    if not args.reproduce:
        return 0
    done = reproduce(path, verified)
    for finding in done.findings:
        print(finding)
    print(f"{done.compared - len(done.findings)} of {done.compared} files came out the same, byte for byte")
    return 1 if done.findings else 0


def _verify_campaign(folder: CampaignFolder) -> int:
    cells = [
        (run.cell(cell.cell_id), cell.files)
        for run in folder.runs()
        if run.receipt.is_file()
        for cell in read_receipt(run).cells
    ]
    damaged = {
        cell.path: why for cell, files in cells if (why := damage(cell, files, contents=True)) is not None
    }
    for path, why in damaged.items():
        print(f"{path}: {printable(why)}")
    if damaged:
        print(f"remove these folders and have the cells measured again: connector-tax run {folder.root}")
    print(
        f"{folder.root}: {len(cells) - len(damaged)} of {how_many(len(cells), 'cell')} as they were measured"
    )
    return 1 if damaged else 0


COMMAND = Command(
    __doc__,
    _arguments,
    _run,
    usage="BUNDLE|CAMPAIGN [--reproduce]",
    epilog=_EXIT,
    interrupted="nothing was written",
)
