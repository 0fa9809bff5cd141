"""A campaign's folder to one archive: raw results, what today's code makes of them, and the code."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.artifacts.layout import LOGS, CampaignFolder
from connector_tax.base.artifacts.thinning import thin, unfinished
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import copy_file, sha256_of, write_text
from connector_tax.base.opening import is_bare
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.units import how_many
from connector_tax.read.analysis import analyse
from connector_tax.read.bundle.archive import write_archive
from connector_tax.read.bundle.code import code_files, requirements
from connector_tax.read.bundle.listing import MANIFEST, manifest_text
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.ingest import read_campaign

README = "README.txt"
RESULTS = "results/"
# What is made of raw results, and what Snakemake said meanwhile.
_DERIVED = ("aggregate.json", "aggregate.csv", "figures", "tables", "report.html", "MANIFEST.tsv", "logs")
# Pictures in pixels follow from the vectors, and from the fonts of the machine.
_MADE = (".json", ".csv", ".svg")


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
    problems: tuple[Problem, ...]


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
    """What analysis and figures made at ``root`` that is the same bytes on every machine."""
    found = [*root.glob("aggregate.*"), *(root / "figures").glob("*")]
    return sorted(path for path in found if path.is_file() and path.suffix in _MADE)


def bundle(
    root: Path, target: Path, *, partial: bool = False, results_only: bool = False, compact: bool = False
) -> Bundled:
    """Write the bundle of the campaign at ``root`` to ``target``; the same campaign and code give the same bytes.

    Args:
        partial: whether a campaign may be unfinished.
        results_only: whether code and lock file are left out.
        compact: whether raw results are those that ``thin`` keeps.

    Raises:
        ArtifactError: not finished, no campaign, too large, or the disk is full; a compact one also of a damaged campaign.
    """
    folder = CampaignFolder(root)
    document = read_campaign_file(folder.campaign_file)
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
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle.", dir=target.parent) as temporary:
        beside, campaign = Path(temporary), f"{RESULTS}{document.campaign}/"
        copy = beside / campaign
        if compact:
            thin(
                root,
                copy,
                {(c.config, c.phase, c.cell_id) for c in read_campaign(root).cells() if not c.usable},
            )
        else:
            for path in raw_files(root):
                copy_file(path, copy / path.relative_to(root))
        problems = remake(copy)
        files = {campaign + p.relative_to(copy).as_posix(): p for p in (*raw_files(copy), *made_files(copy))}
        texts = {README: _readme(document.campaign, bool(missing), len(problems), results_only)}
        if not results_only:
            files |= code_files()
            lock, packages = requirements()
            texts[lock] = packages
        files |= {name: beside / name for name in (*texts, MANIFEST)}
        for name, text in texts.items():
            write_text(files[name], text)
        listed = {name: sha256_of(path) for name, path in files.items() if name != MANIFEST}
        write_text(files[MANIFEST], manifest_text(listed))
        write_archive(target, files)
    return Bundled(len(files), target.stat().st_size, sha256_of(target), tuple(unfit(root)), problems)


def remake(root: Path) -> tuple[Problem, ...]:
    """``aggregate.json``, ``aggregate.csv`` and figures of the raw results at ``root``; returns the problems of that aggregate."""
    aggregate = analyse(root).aggregate
    draw_figures(root)
    return aggregate.problems


def _readme(campaign: str, partial: bool, problems: int, results_only: bool) -> str:
    state = "as far as it was measured" if partial else "as it is" if problems else "whole"
    if problems:
        state += f", with {how_many(problems, 'problem')} that aggregate.json lists"
    code = """\
code/ has the code that made it; requirements.lock or installed-packages.txt has the packages it ran with (Python 3.11).
One command checks every file, computes aggregate and figures anew and compares them byte by byte:
    PYTHONPATH=code python -B -m connector_tax verify . --reproduce
It needs these packages, no GPU and no engine. -B keeps Python from adding files of its own here.
Figures and aggregate come out byte for byte with the listed versions; other versions of numpy or matplotlib may differ.
"""
    beside = """\
In a checkout of connector-tax, one command checks every file, computes aggregate and figures anew and compares them byte by byte:
    .venv/bin/connector-tax verify FILE --reproduce
"""
    return f"""\
connector-tax: campaign {campaign}, {state}. What a KV connector costs a vLLM server.
results/{campaign}/ has the raw results, and what was made of them: aggregate.json, aggregate.csv, figures/.
{beside if results_only else code}\
Without Python: sha256sum -c manifest-sha256.txt
Checksums show damage; against intent, compare the archive's SHA-256 with the one its authors published.
"""
