"""``connector-tax``: one command, its subcommands by name."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from connector_tax import __version__
from connector_tax.base.door import run_door
from connector_tax.load.arguments import EXAMPLES, add_arguments


def parser() -> argparse.ArgumentParser:
    """The whole command line, for help and completion as well."""
    whole = argparse.ArgumentParser(prog="connector-tax", description=__doc__)
    whole.add_argument("--version", action="version", version=f"connector-tax {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    load = commands.add_parser(
        "load",
        help="load any OpenAI-compatible server and say how it answers",
        description="Load any OpenAI-compatible server, open or closed loop, and say how it answers, with intervals.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(load)
    load.set_defaults(run=_load)
    return whole


# A command imports what it needs when it is called: help and completion come at once, and Ctrl-C meanwhile is no traceback.
def _load(args: argparse.Namespace) -> int:
    from connector_tax.load.choices import load_of
    from connector_tax.load.run import run

    return run(load_of(args))


def _import(args: argparse.Namespace) -> int:
    from connector_tax.load.comparing import compare_files

    print(compare_files(args.files))
    return 0


def import_parser() -> argparse.ArgumentParser:
    """Of ``connector-tax load import``."""
    reading = argparse.ArgumentParser(
        prog="connector-tax load import",
        description="Put results of vllm bench serve, guidellm, aiperf and connector-tax load side by side.",
    )
    reading.add_argument("files", nargs="+", type=Path, help="result files (JSON)")
    return reading


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script; exits."""
    arguments = sys.argv[1:] if argv is None else argv
    run_door(partial(_main, arguments), interrupted="cells that were over are in --out")


def _main(argv: Sequence[str]) -> None:
    # What is imported needs no server, so it has a command line of its own.
    if list(argv[:2]) == ["load", "import"]:
        sys.exit(_import(import_parser().parse_args(argv[2:])))
    args = parser().parse_args(argv)
    sys.exit(args.run(args))
