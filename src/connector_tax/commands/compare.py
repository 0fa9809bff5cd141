"""Two campaigns (releases, GPUs, days): which taxes changed, and whether one rose too far.

With --history: many campaigns, each compared with the one before it, on one page.
"""

import argparse
import sys
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command, add_options, ratio
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import printable
from connector_tax.base.plan.named import find_campaign
from connector_tax.base.units import how_many
from connector_tax.read.analysis import lost_runs
from connector_tax.read.compare.comparison import LATENCIES, Side, compare, read_side
from connector_tax.read.compare.text import comparison_json_text, comparison_text, sentence
from connector_tax.read.track import heading, track, write_history

EPILOG = """\
examples:
  connector-tax compare results/vllm-0.31 results/vllm-0.32
  connector-tax compare --history nights/ releases/ --to history --fail-above 1%

exit code 0: no regression; 1: a regression (--history: of a newest campaign); 2: some tax cannot
be compared, or a mistake
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    campaigns = "the earlier one first; with --history also folders of campaigns"
    parser.add_argument("campaigns", nargs="+", metavar="CAMPAIGN", help=campaigns)
    add_options(
        parser,
        ("--fail-above=TAX", ratio, "how far a tax may rise, 2%% or 0.02; default 5%%", 0.05),
        ("--metric", LATENCIES, "the latency that decides; default both"),
        ("--allow-missing", bool, "pass although some tax cannot be compared"),
        ("--json", bool, "one JSON object instead of text"),
        ("--history", bool, "all campaigns in order of time; needs --to"),
        ("--to=FOLDER", Path, "where --history writes index.html and history.json"),
    )


def _run(args: argparse.Namespace) -> int:
    if args.history:
        return _history(args)
    if len(args.campaigns) != 2 or args.to is not None:
        raise ConfigError("two campaigns are compared; --history takes more, and writes --to a folder.")
    a, b = (_whole(name, _place(text)) for name, text in zip("AB", args.campaigns, strict=True))
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


def _whole(name: str, path: Path) -> Side:
    """Read a campaign; refuse an analysis whose runs have been removed since."""
    side, folder = read_side(name, path), CampaignFolder(path)
    if folder.campaign_file.exists() and (lost := lost_runs(folder, side.aggregate)):
        config, phase = min(lost)
        raise ArtifactError(
            f"{folder.aggregate}: has cells of {how_many(len(lost), 'run')} gone since, the first {config} in"
            f" phase {phase}. Make it anew: connector-tax report {path}. Or give the file itself."
        )
    return side


def _place(text: str) -> Path:
    """Return the campaign's folder, or a lone ``aggregate.json``."""
    return Path(text) if text.endswith(".json") else find_campaign(text).measured_root


def _history(args: argparse.Namespace) -> int:
    if args.to is None or args.metric or args.allow_missing or args.json:
        raise ConfigError("--history: goes with --to FOLDER and --fail-above alone.")
    found = track([Path(text) for text in args.campaigns], args.fail_above)
    for left_out in found.left_out:
        print(f"left out: {left_out.path}: {left_out.reason}", file=sys.stderr)
    for path in write_history(found, args.to):
        print(f"wrote {path}")
    for comparison in found.newest:
        print(printable(f"{heading(comparison)}: {sentence(comparison)}", 20_000))
    print(found.verdict)
    return found.exit_code


COMMAND = Command(__doc__, _arguments, _run, usage="CAMPAIGN CAMPAIGN [options]", epilog=EPILOG)
