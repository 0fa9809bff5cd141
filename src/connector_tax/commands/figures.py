"""Draw Figures 1 to 9 of a campaign from its aggregate.json; says which were left out, and why."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.figures.style import FORMS


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=list(FORMS),
        default="page",
        help="page: SVG, PNG and CSV in figures/, which the report shows (default); paper: PDF and SVG for one and two columns in figures/paper/, with "
        "the captions for LaTeX",
    )


def _run(args: argparse.Namespace) -> int:
    for entry in draw_figures(args.root, args.purpose):
        text = entry.title if entry.drawn else f"left out: {entry.reason}"
        print(f"Figure {entry.number}: {text}")
    return 0


COMMAND = Command(__doc__, _arguments, _run)
