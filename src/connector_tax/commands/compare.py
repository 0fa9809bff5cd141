"""Two campaigns (releases, GPUs, days): which taxes changed, and whether one rose too far (exit code 1)."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.read.compare.comparison import LATENCIES, compare, read_side
from connector_tax.read.compare.text import comparison_json_text, comparison_text


def ratio_limit(text: str) -> float:
    """How far a tax may rise, as a ratio."""
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(
            f"{text}: wanted is a ratio from 0 to 1; 0.05 is 5 percentage points"
        )
    return value


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", type=Path, help="the earlier campaign: results/<campaign>, or its aggregate.json"
    )
    parser.add_argument("b", type=Path, help="the later campaign, likewise")
    parser.add_argument(
        "--fail-above",
        type=ratio_limit,
        default=0.05,
        metavar="RATIO",
        help="how far a tax may rise; default 0.05",
    )
    parser.add_argument("--metric", choices=LATENCIES, help="the latency that decides; default both")
    parser.add_argument(
        "--allow-missing", action="store_true", help="pass although some tax cannot be compared"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def _run(args: argparse.Namespace) -> int:
    a, b = read_side("A", args.a), read_side("B", args.b)
    found = compare(
        a,
        b,
        fail_above=args.fail_above,
        deciding=(args.metric,) if args.metric else LATENCIES,
        allow_missing=args.allow_missing,
    )
    text = comparison_json_text(found) if args.json else comparison_text(found)
    print(text)
    return found.exit_code


COMMAND = Command(
    __doc__,
    _arguments,
    _run,
    epilog="Exit code 0: no regression; 1: a regression; 2: some tax cannot be compared (see --allow-missing), or a mistake in the command.",
)
