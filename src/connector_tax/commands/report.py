"""Make a campaign's numbers, figures and page from its raw results, and say what came out."""

import argparse
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.errors import ArtifactError
from connector_tax.base.imports import closure
from connector_tax.base.plan.named import add_campaign
from connector_tax.base.plan.start import take_over_analysis
from connector_tax.read.analysis import analyse, counts, lost_runs
from connector_tax.read.bundle import raw_files
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.report.page import build_report, closing_lines, taxes_markdown
from connector_tax.read.report.view import page_view


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    add = parser.add_argument
    add("--markdown", action="store_true", help="print the taxes as a Markdown table instead")
    add(
        "--for",
        dest="purpose",
        choices=["page", "paper"],
        default="page",
        help="paper: also draw figures/paper/, for one and two columns",
    )
    add("--processes", type=int, help="default one per core for a large campaign, else one")


def _run(args: argparse.Namespace) -> int:
    folder = CampaignFolder(args.campaign.measured_root)
    if args.campaign.file is not None:
        take_over_analysis(args.campaign.config(), folder)
    index = folder.figures / "index.json"
    # A folder may hold the aggregate alone.
    if folder.campaign_file.exists():
        _analyse(folder, args.processes)
    if args.markdown:
        print(taxes_markdown(page_view(read_aggregate(folder.aggregate))))
        return 0
    if _older([index], [folder.aggregate, *closure("connector_tax.read.figures.draw_all")]):
        draw_figures(folder.root)
    if args.purpose == "paper":
        draw_figures(folder.root, "paper")
    if _older([folder.report], [folder.aggregate, index, *closure("connector_tax.read.report.page")]):
        build_report(folder.root)
    print(closing_lines(folder.root))
    return 0


def _analyse(folder: CampaignFolder, processes: int | None) -> None:
    raw = raw_files(folder.root)
    # A removed file changes its folder's time.
    raw += {above for path in raw for above in path.parents if folder.root in above.parents}
    made = [folder.aggregate, folder.aggregate_csv]
    if not _older(made, [*raw, *closure("connector_tax.read.analysis")]) and _is_of_all(folder):
        return
    # On stderr, since the table's stdout may be redirected.
    print(counts(analyse(folder.root, processes)), file=sys.stderr)
    # An unchanged file was not rewritten, nor one in a read-only folder.
    with suppress(OSError):
        for path in made:
            path.touch()


def _is_of_all(folder: CampaignFolder) -> bool:
    """Return whether the aggregate is readable by this version and its runs exist."""
    try:
        return not lost_runs(folder, read_aggregate(folder.aggregate))
    except ArtifactError:
        return False


def _older(made: Iterable[Path], of: Iterable[Path]) -> bool:
    """Return whether one of ``made`` is missing or older than its sources."""
    made_ns = [path.stat().st_mtime_ns if path.is_file() else 0 for path in made]
    return min(made_ns) < max(path.lstat().st_mtime_ns if path.exists() else 1 for path in of)


COMMAND = Command(__doc__, _arguments, _run, usage="[CAMPAIGN] [options]")
