"""Pack a campaign for a reviewer: raw results, what is made of them, and checksums."""

import argparse
import sys
from pathlib import Path

from connector_tax.base.command import Command, add_options
from connector_tax.base.plan.named import add_campaign
from connector_tax.base.units import how_many
from connector_tax.read.bundle import bundle
from connector_tax.read.figures.words import problem_text


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    add_options(
        parser,
        ("--to=FILE", Path, "replaced if it is there; default CAMPAIGN.tar.xz here"),
        ("--partial", bool, "also a campaign that is not finished"),
        (
            "--compact",
            bool,
            "small enough for a repository: without step records of most cells, ~ for the home folder",
        ),
    )


def _run(args: argparse.Namespace) -> int:
    root = args.campaign.measured_root
    to = args.to or Path(f"{root.resolve().name}.tar.xz")
    done = bundle(root, to, partial=args.partial, compact=args.compact)
    for name in done.left_out:
        print(f"left out: {name!a}: its name cannot be shown, or it is no regular file", file=sys.stderr)
    if done.problems:
        first = done.problems[0]
        print(
            f"{root}: the analysis found {how_many(len(done.problems), 'problem')}, the first"
            f" {first.subject}: {problem_text(first).rstrip('.?')}. The bundle holds the campaign as it is,"
            " and its aggregate.json lists them all.",
            file=sys.stderr,
        )
    print(f"{to}: {done.files} files, {done.size / 2**20:.1f} MiB, sha256 {done.sha256}")
    return 0


COMMAND = Command(
    __doc__, _arguments, _run, usage="[CAMPAIGN] [options]", interrupted="no bundle was written"
)
