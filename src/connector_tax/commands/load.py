"""Load any OpenAI-compatible server, open or closed loop, and say how it answers, with intervals."""

import argparse
from contextlib import nullcontext

from connector_tax.base.command import Command
from connector_tax.load.arguments import BRIEF, EXAMPLES, add_arguments


# Imports on call, so that help is fast.
def _run(args: argparse.Namespace) -> int:
    from connector_tax.load.choices import load_of
    from connector_tax.load.demo import embedded_engine
    from connector_tax.load.run import run

    with embedded_engine(args) if args.demo else nullcontext():
        return run(load_of(args))


COMMAND = Command(
    __doc__,
    add_arguments,
    _run,
    usage="--target URL [--rates A,B] [--out FOLDER] [options]",
    brief=BRIEF,
    epilog=EXAMPLES,
    interrupted="cells that were over are written",
)
