"""Say which files of a bundle were changed, are missing or were added; with --reproduce, compute it anew and
compare.

Of results that are no bundle: which cells and receipts differ from their checksums.
"""

import argparse
import csv
import shlex
from pathlib import Path

from connector_tax.base.artifacts.cells import damage
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.command import Command
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import lines_of, printable, read_whole, sha256_of
from connector_tax.base.plan.named import find_campaign, is_campaign
from connector_tax.base.records.cell import PHASES, phase_label
from connector_tax.base.units import how_many
from connector_tax.read.bundle import MANIFEST, reproduce, verify

_EXIT = """\
exit code:
  0  every file is as it was bundled or measured (and came out the same)
  1  one is not, or the archive is damaged; a line says so of each
  2  a mistake in the command
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle",
        metavar="BUNDLE|CAMPAIGN",
        help="a bundle, packed or unpacked; a campaign, a run in it, a folder of campaigns",
    )
    parser.add_argument(
        "--reproduce",
        action="store_true",
        help="make aggregate and figures from the raw results, and compare byte for byte",
    )


def _run(args: argparse.Namespace) -> int:
    path = Path(args.bundle)
    if path.suffix in (".yaml", ".yml") or not (path.suffix or path.exists()):
        path = find_campaign(args.bundle).measured_root
    if not args.reproduce and not (path / MANIFEST).exists() and (results := _results_in(path)):
        return max([_verify_results(CampaignFolder(root), path) for root in results])
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


def _results_in(path: Path) -> list[Path]:
    """Return the campaign that the folder is or lies in, or those that it contains."""
    if not path.is_dir():
        return []
    above = [p for p in (path, *path.absolute().parents[:4]) if is_campaign(p)]
    return above[:1] or sorted(p for p in path.iterdir() if is_campaign(p))


def _verify_results(folder: CampaignFolder, given: Path) -> int:
    """Compare receipts and cells with their checksums."""
    part = folder.root.absolute() in given.absolute().parents
    print(f"{f'{given}: part of ' * part}{folder.root}: results of a campaign, and no bundle")
    findings: dict[Path, str] = {}
    listed = _listed_receipts(folder)
    n_cells = 0
    runs = {r.path: r for r in (*folder.runs(), *listed)}
    for run in runs.values():
        known = listed.get(run)
        if not run.receipt.is_file():
            if known:
                findings[run.receipt] = f"is missing, and {folder.manifest.name} lists it"
            continue
        if known and known != sha256_of(run.receipt):
            findings[run.receipt] = (
                f"differs from its checksum in {folder.manifest.name}; if it was measured again since then:"
                " connector-tax report"
            )
        try:
            cells = read_receipt(run).cells
        except ArtifactError as error:
            findings[run.receipt] = str(error).removeprefix(f"{run.receipt}: ")
            continue
        n_cells += len(cells)
        for cell in cells:
            if why := damage(run.cell(cell.cell_id), cell.files, contents=True):
                findings[run.cell(cell.cell_id).path] = f"{why}; remove this folder to have it measured again"
    for path, why in findings.items():
        print(f"{path}: {printable(why, 500)}")
    print(
        f"{how_many(len(runs), 'run')}, {how_many(n_cells, 'cell')}:"
        f" {how_many(len(findings), 'finding') if findings else 'all as they were measured'}"
    )
    name = shlex.quote(str(folder.root))
    print(f"to compute it anew: connector-tax report {name}; to make a bundle: connector-tax bundle {name}")
    return 1 if findings else 0


def _listed_receipts(folder: CampaignFolder) -> dict[RunFolder, str]:
    """Return each receipt's checksum in the last report."""
    if not folder.manifest.is_file():
        return {}
    phases = {phase_label(phase): phase for phase in PHASES}
    rows = csv.DictReader(lines_of(read_whole(folder.manifest)), delimiter="\t", quoting=csv.QUOTE_NONE)
    found = {}
    for row in rows:
        phase, sha256 = str(row.get("phase")), str(row.get("receipt_sha256"))
        if len(sha256) == 64:
            found[
                folder.run(str(row.get("date")), str(row.get("config")), phases.get(phase, phase.lower()))
            ] = sha256
    return found


COMMAND = Command(
    __doc__,
    _arguments,
    _run,
    usage="BUNDLE|CAMPAIGN [--reproduce]",
    epilog=_EXIT,
    interrupted="nothing was written",
)
