"""A campaign's folder to one archive: raw results, what today's code makes of them, the code, and a description."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from msgspec import UnsetType

from connector_tax import __version__
from connector_tax.base.artifacts.layout import LOGS, CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.artifacts.thinning import unfinished
from connector_tax.base.documents.aggregate import ProblemRow
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import sha256_of, write_json, write_text, writing_failed
from connector_tax.base.opening import is_bare, is_date
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.units import how_many
from connector_tax.read.analysis import analyse
from connector_tax.read.bundle.archive import write_archive
from connector_tax.read.bundle.code import code_files, code_sha256, requirements
from connector_tax.read.bundle.crate import CRATE, About, Packed, crate
from connector_tax.read.bundle.listing import MANIFEST, clashes, manifest_text, why_no_name
from connector_tax.read.bundle.verifying import copy_file, verify
from connector_tax.read.figures.draw_all import draw_figures

README = "README.txt"
RESULTS = "results/"
# What is made of raw results, and what Snakemake said meanwhile.
_DERIVED = ("aggregate.json", "aggregate.csv", "figures", "tables", "report.html", "MANIFEST.tsv", "logs")
_MADE = ("aggregate.json", "aggregate.csv", "figures")


@dataclass(frozen=True, slots=True)
class Bundled:
    """
    Attributes:
        size: of the archive, bytes.
        sha256: of the archive, to be published beside it: whoever changes a bundle can write its checksums anew.
        left_out: names of files and folders that no bundle can hold.
        problems: what the analysis names of the campaign, as its ``aggregate.json`` lists them.
    """

    files: int
    size: int
    sha256: str
    left_out: tuple[str, ...]
    problems: tuple[ProblemRow, ...]


def raw_files(root: Path) -> list[Path]:
    """Files of the campaign at ``root`` that nothing makes again, in order of name.

    Left out: what is made of them, names with a dot in front (locks, files under way), links, and raw step logs and samples of
    launches, of which each cell has its share; an engine's logs where its run or preflight is not finished, since nobody may have gone
    through them for secrets; and what ``unfit`` has.
    """
    return sorted(_walked(root)[0])


def unfit(root: Path) -> list[str]:
    """Names of what lies among the raw files and can be in no bundle: they cannot be shown, or it is no regular file."""
    return sorted(_walked(root)[1])


def _walked(root: Path) -> tuple[list[Path], list[str]]:
    folder = CampaignFolder(root)
    folder.links()
    under_way = {run.path / "steps" for run in folder.runs()}
    open_runs = [run.path for run in folder.runs() if not run.receipt.is_file()]
    if not folder.preflight_status.is_file() and folder.preflight.is_dir():
        open_runs += folder.preflight.iterdir()
    under_way |= {path / name for path in open_runs for name in LOGS}
    found: list[Path] = []
    not_taken: list[str] = []
    for where, folders, files in os.walk(root, onerror=_unread):
        here = Path(where)
        top, named = here == root, tuple(folders)
        kept = [
            n for n in folders if is_bare(n) and here / n not in under_way and not (here / n).is_symlink()
        ]
        folders[:] = [n for n in kept if not (top and n in _DERIVED)]
        links = [n for n in (*named, *files) if (here / n).is_symlink()]
        own = [n for n in {*files, *links} if not (top and n in _DERIVED) and here / n not in under_way]
        taken = [n for n in own if is_bare(n) and n not in links and (here / n).is_file()]
        found += [here / n for n in taken]
        odd = [
            n
            for n in {*own, *named}
            if not n.startswith(".") and n not in taken and (n in own or not is_bare(n))
        ]
        not_taken += [(here / n).relative_to(root).as_posix() for n in odd]
    return found, not_taken


def _unread(error: OSError) -> None:
    """
    Raises:
        ArtifactError: a folder may not be read; without it the bundle would be whole to the eye, and is not.
    """
    raise ArtifactError(
        f"{error.filename}: cannot be read ({error.strerror}). Nothing was bundled."
    ) from error


def made_files(root: Path) -> list[Path]:
    """What analysis and figures made at ``root``."""
    found = [root / name for name in _MADE if (root / name).is_file()]
    return sorted([*found, *(p for p in (root / "figures").glob("*") if p.is_file())])


def bundle(
    root: Path,
    target: Path,
    *,
    partial: bool = False,
    license: str | None = None,
    published: str | None = None,
) -> Bundled:
    """Write the bundle of the campaign at ``root`` to ``target``; the same campaign and code give the same bytes.

    Args:
        partial: whether a campaign may be unfinished.
        license: of the data, an address or a short name.
        published: ``YYYY-MM-DD``; default: the campaign's date.

    Raises:
        ArtifactError: not finished, no campaign, a name that no bundle can hold, or the disk is full.
    """
    folder = CampaignFolder(root)
    document = read_campaign_file(folder.campaign_file)
    if published is not None and not is_date(published):
        raise ArtifactError(f"--published {published!r} is no date (YYYY-MM-DD).")
    if target.resolve().is_relative_to(root.resolve()):
        raise ArtifactError(
            f"{target}: lies in the campaign's folder and would be packed the next time. Put it elsewhere."
        )
    if os.path.lexists(target) and (target.is_symlink() or not target.is_file()):
        raise ArtifactError(f"{target}: is no regular file. Give the name of a file.")
    if (missing := unfinished(folder, document)) and not partial:
        phase, config = missing[0]
        raise ArtifactError(
            f"{root}: {len(missing)} runs have no receipt.json, the first {config} in phase {phase}, so the campaign is not finished. "
            "Finish it first, or bundle it as it is with --partial."
        )
    if license is not None and not license.strip():
        raise ArtifactError("--license is empty. Leave it out to name none.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise writing_failed(target, error) from error
    with tempfile.TemporaryDirectory(prefix=".bundle.", dir=target.parent) as temporary:
        beside, campaign = Path(temporary), f"{RESULTS}{document.campaign}/"
        copy = beside / campaign
        for path in raw_files(root):
            copy_file(path, copy / path.relative_to(root))
        problems = remake(copy)
        files = {campaign + p.relative_to(copy).as_posix(): p for p in (*raw_files(copy), *made_files(copy))}
        files |= code_files()
        lock, text = requirements()
        for name, content in (
            (lock, text),
            (README, _readme(document.campaign, bool(missing), len(problems))),
        ):
            write_text(beside / name, content)
            files[name] = beside / name
        _check_names(files)
        packed = [Packed(n, files[n].stat().st_size, sha256_of(files[n])) for n in sorted(files)]
        sha256 = {file.name: file.sha256 for file in packed}
        created = document.created_utc
        about = About(
            campaign=document.campaign,
            published=published or document.date,
            license=license,
            measured=None if isinstance(created, UnsetType) else created,
            engines=_engines(CampaignFolder(copy)),
            folder=campaign,
            code_version=__version__,
            code_sha256=code_sha256(sha256),
            partial=bool(missing),
            problems=len(problems),
        )
        write_json(beside / CRATE, crate(about, packed))
        files[CRATE] = beside / CRATE
        sha256[CRATE] = sha256_of(beside / CRATE)
        write_text(beside / MANIFEST, manifest_text(sha256))
        files[MANIFEST] = beside / MANIFEST
        write_archive(target, files)
    # Nobody should learn from a reviewer that the limits of a reader are narrower than those of this writer.
    if findings := verify(target).findings:
        target.unlink()
        raise ArtifactError(f"{target}: was not kept, its own check says: {findings[0]}")
    return Bundled(len(files), target.stat().st_size, sha256_of(target), tuple(unfit(root)), problems)


def remake(root: Path) -> tuple[ProblemRow, ...]:
    """``aggregate.json``, ``aggregate.csv`` and figures of the raw results at ``root``; returns the problems of that aggregate."""
    aggregate = analyse(root).aggregate
    draw_figures(root)
    return aggregate.problems


def _engines(folder: CampaignFolder) -> list[EngineIdentity]:
    receipts = [read_receipt(run) for run in folder.runs() if run.receipt.is_file()]
    return [receipt.engine for receipt in receipts if receipt.engine is not None]


def _check_names(files: dict[str, Path]) -> None:
    unfit = [(name, why) for name in files if (why := why_no_name(name))]
    if found := [*unfit, *clashes(files)]:
        raise ArtifactError(
            f"{found[0][0]!r}: {found[0][1]}. Rename it; a bundle has to unpack on any system."
        )


def _readme(campaign: str, partial: bool, problems: int) -> str:
    state = "as far as it was measured" if partial else "as it is" if problems else "whole"
    if problems:
        state += f", with {how_many(problems, 'problem')} that aggregate.json lists"
    return f"""\
connector-tax: campaign {campaign}, {state}. What a KV connector costs a vLLM server.
results/{campaign}/ has the raw results, and what was made of them: aggregate.json, aggregate.csv, figures/.
code/ has the code that made it; requirements.lock or installed-packages.txt has the packages it ran with (Python 3.11).
One command checks every file, computes aggregate and figures anew and compares them byte by byte:
    PYTHONPATH=code python -B -m connector_tax verify . --reproduce
It needs these packages, no GPU and no engine. -B keeps Python from adding files of its own here.
Without Python: sha256sum -c manifest-sha256.txt
ro-crate-metadata.json describes all of it (RO-Crate 1.1).
Figures and aggregate come out byte for byte with the listed versions; other versions of numpy or matplotlib may differ.
Checksums show damage; against intent, compare the archive's SHA-256 with the one its authors published.
"""
