"""Many campaigns in order of time: taxes of each, and which rose or fell since the campaign before it (exit code 1)."""

import argparse
import sys
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.base.opening import printable
from connector_tax.commands.compare import ratio_limit
from connector_tax.read.compare.text import sentence
from connector_tax.read.track import heading, track, write_history

EPILOG = """\
examples:
  connector-tax track results --to site/history
  connector-tax track nights/ releases/ --to history --fail-above 0.01

exit code 0: no tax of a newest campaign is known to have risen too far; 1: one has, since the campaign before it or since the first; 2: a mistake, or no campaign that
can be read
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "campaigns",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="a campaign's folder, its aggregate.json, or a folder with folders of campaigns in it",
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="FOLDER", help="where index.html and history.json go"
    )
    parser.add_argument(
        "--fail-above",
        type=ratio_limit,
        default=0.05,
        metavar="RATIO",
        help="how far a tax may rise, as compare takes it; default 0.05",
    )


def _run(args: argparse.Namespace) -> int:
    found = track(args.campaigns, args.fail_above)
    for left_out in found.left_out:
        print(f"left out: {left_out.path}: {left_out.reason}", file=sys.stderr)
    for path in write_history(found, args.to):
        print(f"wrote {path}")
    for comparison in found.newest:
        print(printable(f"{heading(comparison)}: {sentence(comparison)}", 20_000))
    print(found.verdict)
    return found.exit_code


COMMAND = Command(__doc__, _arguments, _run, epilog=EPILOG)
