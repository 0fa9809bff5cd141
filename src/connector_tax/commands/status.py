"""What is done, running, skipped and left of a campaign; reads files only."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.base.config import load_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.read.report.status import status_text

DEFAULT_PORT = 8753
# What the page alone has a use for.
OF_THE_PAGE = ("port", "report", "every", "during_cells")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--configfile", type=Path, required=True, help="the campaign")
    parser.add_argument(
        "--root", type=Path, default=Path("results"), help="holds the campaign's folder; default: %(default)s"
    )
    web = parser.add_argument_group(
        "as a page",
        "On 127.0.0.1 alone, until Ctrl-C; it refreshes itself. Nothing is written into the campaign's folder.",
    )
    web.add_argument(
        "--web",
        action="store_true",
        help="serve a page in place of text, with a report of what is measured so far",
    )
    web.add_argument("--port", type=_port, help=f"default: {DEFAULT_PORT}; 0: any that is free")
    web.add_argument(
        "--report",
        choices=("on-request", "auto", "never"),
        help="when the report is made anew: on-request, by the page's button (default); auto, also when a cell has ended; never. Making it takes CPU "
        "time of this host, at the lowest priority and only between cells",
    )
    web.add_argument(
        "--every", type=_seconds, metavar="SECONDS", help="at most one report in so many seconds; default: 60"
    )
    web.add_argument(
        "--during-cells",
        action="store_true",
        default=None,
        help="make reports while cells are measured, too; this disturbs them",
    )


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdecimal() else -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")
    return port


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 86400")
    return seconds


def _run(args: argparse.Namespace) -> int:
    given = [name for name in OF_THE_PAGE if getattr(args, name) is not None]
    if given and not args.web:
        raise ConfigError(f"--{given[0].replace('_', '-')} is of the page: give --web, too.")
    config = load_campaign(args.configfile)
    if not args.web:
        print(status_text(config, args.root, args.configfile))
        return 0
    # A server and templates are not needed for the text.
    from connector_tax.read.watch.serving import Reports, serve
    from connector_tax.run.engine.lifeline import end_in_order

    end_in_order()
    reports = Reports(
        args.report or "on-request",
        60.0 if args.every is None else args.every,
        bool(args.during_cells),
    )
    port = DEFAULT_PORT if args.port is None else args.port
    serve(config, args.root, args.configfile, port, reports)
    return 0


COMMAND = Command(__doc__, _arguments, _run)
