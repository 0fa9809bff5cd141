"""Packs a campaign into one archive, verifies it, and reproduces its analysis.

The archive is an xz-compressed tar, identical bytes for identical files; ``tar -xf`` unpacks it, too.
``manifest-sha256.txt`` has name and SHA-256 of every other file, in the form of ``sha256sum -c``. Its last
line is a comment with the checksum of the lines above, which distinguishes a changed list from a changed
file.
"""

import hashlib
import json
import lzma
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.compact import make_compact, unfinished
from connector_tax.base.artifacts.layout import LOGS, RECEIPT, CampaignFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import (
    MOST_BYTES,
    copy_file,
    is_bare,
    is_campaign_name,
    is_folder,
    open_regular,
    printable,
    read_whole,
    sha256_of,
    shown,
    write_text,
    writing_failed,
)
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.units import how_many
from connector_tax.read.analysis import analyse
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.ingest import read_campaign

# Snakemake takes a file of second 0 as missing. Receipts are newer than derived files, so Snakemake makes
# these again with the code of the checkout.
_TIME_S, _RECEIPT_TIME_S = 315_532_800, 315_619_200  # 1980-01-01 and the day after
# xz preset of 1 to 9: each above 6 doubles time and memory, for a hundredth of the size.
_PRESET = 6
_BLOCK = 1 << 20


class BadArchive(ArtifactError):
    """An archive that is damaged, too large, or holds more than files below its folder."""


def write_archive(target: Path, files: dict[str, Path]) -> None:
    """Write ``files`` (name -> where its content is) to ``target``, whole or not at all.

    Raises:
        ArtifactError: the files are too large, or the disk is full.
    """
    if sum(path.stat().st_size for path in files.values()) > MOST_BYTES:
        raise ArtifactError(
            f"{target}: a bundle holds at most {MOST_BYTES >> 20} MiB of files. Thin the campaign first."
        )
    temporary = target.with_name(f".bundle.{os.getpid()}.partial")
    try:
        with open(temporary, "wb") as out:
            with (
                lzma.open(out, "wb", preset=_PRESET) as packed,
                tarfile.open(fileobj=packed, mode="w") as tar,
            ):
                for name in sorted(files):
                    _add(tar, name, files[name])
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise writing_failed(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    with open_regular(path) as source:
        status = os.fstat(source.fileno())
        member = tarfile.TarInfo(name)
        member.size = status.st_size
        member.mtime = _RECEIPT_TIME_S if name.endswith(f"/{RECEIPT}") else _TIME_S
        member.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(member, source)


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of ``archive`` below ``folder``, which should be temporary, since they are unverified.

    Raises:
        FileNotFoundError: there is no archive.
        BadArchive: it is not as ``write_archive`` writes it.
        ArtifactError: it is no regular file, or ``folder`` cannot be written.
    """
    bytes_left = MOST_BYTES
    with open_regular(archive) as file:
        try:
            with lzma.open(file) as content, tarfile.open(fileobj=content, mode="r|") as tar:
                for member in tar:
                    bytes_left -= member.size
                    if bytes_left < 0:
                        raise BadArchive(
                            f"would unpack to more than the {MOST_BYTES >> 20} MiB that a bundle holds"
                        )
                    tar.extract(member, folder, filter="data")
                # The last checksum is behind the last file; tar fills its last block with zeros.
                trailing = content.read(_BLOCK)
            # lzma ignores trailing data that is not xz; these are the last bytes of an xz archive.
            file.seek(-2, os.SEEK_END)
            if len(trailing) == _BLOCK or trailing.strip(b"\0") or file.read() != b"YZ":
                raise BadArchive("holds more behind its last file")
        except (EOFError, OverflowError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
            raise BadArchive(f"cannot be unpacked: {error}. Fetch it once more") from error
        except OSError as error:
            raise writing_failed(folder, error) from error


MANIFEST = "manifest-sha256.txt"


def manifest_text(sha256: dict[str, str]) -> str:
    """Return the manifest, ordered by name."""
    lines = "".join(f"{sha256[name]}  {name}\n" for name in sorted(sha256))
    return f"{lines}# sha256 of the lines above: {hashlib.sha256(lines.encode()).hexdigest()}\n"


def read_manifest(content: bytes) -> dict[str, str] | None:
    """Return name -> SHA-256; None if the list was changed."""
    lines = content.decode(errors="replace").split("\n")[:-2]
    sha256_by_name = {line[66:]: line[:64] for line in lines}
    return sha256_by_name if manifest_text(sha256_by_name).encode() == content else None


README = "README.txt"
RESULTS = "results/"
# Files derived from raw results, and Snakemake's logs.
_DERIVED = ("aggregate.json", "aggregate.csv", "figures", "tables", "report.html", "MANIFEST.tsv", "logs")
# Raster images depend on the vector images, and on the machine's fonts.
_MADE = (".json", ".csv", ".svg")


@dataclass(frozen=True, slots=True)
class Bundled:
    """A bundle that was written.

    Attributes:
        size: of the archive, bytes.
        sha256: of the archive, to publish beside it: who changes a bundle can also change its checksums.
        left_out: files and folders that no bundle can hold.
        problems: of the campaign, as its ``aggregate.json`` lists them.
    """

    files: int
    size: int
    sha256: str
    left_out: tuple[str, ...]
    problems: tuple[Problem, ...]


def raw_files(root: Path) -> list[Path]:
    """Return the campaign's files that cannot be derived from others, ordered by name.

    Left out are derived files, dot files (locks, partial files), links, and raw step logs and samples of
    launches, since each cell has its share; an engine's logs if its run or preflight is unfinished, since
    secrets may not be masked yet; and what ``unfit`` returns.
    """
    return sorted(_walked(root)[0])


def unfit(root: Path) -> list[str]:
    """Return names among the raw files that no bundle can hold: not printable, or not a regular file."""
    return sorted(_walked(root)[1])


def _walked(root: Path) -> tuple[list[Path], list[str]]:
    folder = CampaignFolder(root)
    under_way = {run.path / "steps" for run in folder.runs()}
    open_runs = [run.path for run in folder.runs() if not run.receipt.is_file()]
    if not folder.preflight_status.is_file() and folder.preflight.is_dir():
        open_runs += folder.preflight.iterdir()
    under_way |= {path / name for path in open_runs for name in LOGS}
    raw: list[Path] = []
    unfit_names: list[str] = []
    for parent_name, folders, files in os.walk(root, onerror=_unread):
        parent = Path(parent_name)
        left_out = set(_DERIVED) if parent == root else set()
        for name in (*folders, *files):
            path = parent / name
            if name.startswith(".") or name in left_out or path in under_way:
                left_out.add(name)
            elif path.is_symlink() or not is_bare(name) or not (path.is_file() or path.is_dir()):
                left_out.add(name)
                unfit_names.append(path.relative_to(root).as_posix())
            elif path.is_file():
                raw.append(path)
        folders[:] = [name for name in folders if name not in left_out]
    return raw, unfit_names


def _unread(error: OSError) -> None:
    """Raise for an unreadable folder, without which the bundle would only look complete.

    Raises:
        ArtifactError: always.
    """
    raise ArtifactError(
        f"{error.filename}: cannot be read ({error.strerror}). Nothing was bundled."
    ) from error


def made_files(root: Path) -> list[Path]:
    """Return files of analysis and figures that are the same bytes on every machine."""
    candidates = [*root.glob("aggregate.*"), *(root / "figures").glob("*")]
    return sorted(path for path in candidates if path.is_file() and path.suffix in _MADE)


def bundle(root: Path, target: Path, *, partial: bool = False, compact: bool = False) -> Bundled:
    """Write the bundle of the campaign at ``root`` to ``target``, reproducible byte for byte.

    Args:
        partial: the campaign may be unfinished.
        compact: keep only the raw results that ``make_compact`` keeps.

    Raises:
        ArtifactError: not finished, no campaign, too large, or the disk is full; if compact, also a damaged
            campaign.
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
            f"{root}: {len(missing)} runs have no receipt.json, the first {config} in phase {phase}, so the"
            " campaign is not finished. Finish it first, or bundle it as it is with --partial."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle.", dir=target.parent) as temporary:
        temporary_folder, campaign = Path(temporary), f"{RESULTS}{document.campaign}/"
        copy = temporary_folder / campaign
        if compact:
            make_compact(
                root,
                copy,
                {c.key for c in read_campaign(root).cells() if not c.usable},
            )
        else:
            for path in raw_files(root):
                copy_file(path, copy / path.relative_to(root))
        problems = remake(copy)
        files = {campaign + p.relative_to(copy).as_posix(): p for p in (*raw_files(copy), *made_files(copy))}
        files |= {name: temporary_folder / name for name in (README, MANIFEST)}
        write_text(files[README], _readme(document.campaign, bool(missing), len(problems)))
        sha256_by_name = {name: sha256_of(path) for name, path in files.items() if name != MANIFEST}
        write_text(files[MANIFEST], manifest_text(sha256_by_name))
        write_archive(target, files)
    return Bundled(len(files), target.stat().st_size, sha256_of(target), tuple(unfit(root)), problems)


def remake(root: Path) -> tuple[Problem, ...]:
    """Analyse the raw results at ``root`` and draw the figures; return the analysis's problems."""
    problems = analyse(root).problems
    draw_figures(root)
    return problems


def _readme(campaign: str, partial: bool, problems: int) -> str:
    state = "as far as it was measured" if partial else "as it is" if problems else "whole"
    if problems:
        state += f", with {how_many(problems, 'problem')} that aggregate.json lists"
    return f"""\
connector-tax: campaign {campaign}, {state}. What a KV connector costs a vLLM server.
results/{campaign}/ has the raw results, and what was made of them: aggregate.json, aggregate.csv, figures/.
In a checkout of connector-tax, one command checks every file, computes aggregate and figures anew and
compares them byte by byte:
    .venv/bin/connector-tax verify FILE --reproduce
Without Python: sha256sum -c manifest-sha256.txt
Checksums show damage; against intent, compare the archive's SHA-256 with the one its authors published.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of one file of a bundle, or of the archive."""

    name: str
    what: str

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else ascii(self.name)
        return f"{printable(name, 300)}: {printable(self.what, 500)}"


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of verifying a bundle.

    Attributes:
        findings: empty if nothing was changed.
        sha256: of every file in the manifest; empty if the archive or the manifest itself was changed.
    """

    findings: list[Finding]
    sha256: dict[str, str]


def verify(bundle: Path) -> Verified:
    """Compare each file with the manifest; an archive is first unpacked into a temporary folder.

    Raises:
        ArtifactError: there is nothing, a folder that is no bundle, or neither a folder nor a regular file.
    """
    if is_folder(bundle) and not os.path.lexists(bundle / MANIFEST):
        raise ArtifactError(
            f"{bundle}: no bundle, since it has no {MANIFEST}. Give an archive, or the folder it was unpacked"
            " into. Of a campaign's results: connector-tax verify without --reproduce; connector-tax report"
            " computes them anew."
        )
    try:
        with as_folder(bundle) as folder:
            return _compared_with_manifest(folder)
    except BadArchive as error:
        return Verified([Finding(bundle.name, str(error))], {})


@contextmanager
def as_folder(bundle: Path) -> Iterator[Path]:
    """Yield the bundle's folder; an archive is unpacked into a temporary one.

    Raises:
        BadArchive: the archive is damaged, or not of the form that ``bundle`` writes.
        ArtifactError: there is nothing, or neither a folder nor a regular file, or no room to unpack it.
    """
    if is_folder(bundle):
        yield bundle
        return
    with tempfile.TemporaryDirectory(prefix="connector-tax-") as temporary:
        try:
            unpack(bundle, Path(temporary))
        except FileNotFoundError as error:
            raise ArtifactError(f"{bundle}: no such file or folder. Give a bundle, or a campaign.") from error
        yield Path(temporary)


def _compared_with_manifest(folder: Path) -> Verified:
    sha256_by_name, why = None, "was changed, so the other files cannot be judged by it"
    try:
        sha256_by_name = read_manifest(read_whole(folder / MANIFEST))
    except FileNotFoundError:
        why = "is missing, so the other files cannot be judged"
    except ArtifactError as error:
        why = f"cannot be read: {error}"
    if sha256_by_name is None:
        return Verified([Finding(MANIFEST, why)], {})
    faults: dict[str, str] = {}
    seen: set[str] = set()
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            faults[name] = "is a link"
        elif path.is_dir() or name == MANIFEST:
            continue
        elif name not in sha256_by_name:
            faults[name] = "was added"
        else:
            seen.add(name)
            try:
                if sha256_of(path) != sha256_by_name[name]:
                    faults[name] = "was changed"
            except ArtifactError as error:
                faults[name] = f"cannot be read: {error}"
    # A linked folder hides its content.
    hidden = tuple(f"{name}/" for name in faults)
    faults |= {
        name: "is missing"
        for name in sha256_by_name.keys() - seen - faults.keys()
        if not name.startswith(hidden)
    }
    return Verified([Finding(name, faults[name]) for name in sorted(faults)], sha256_by_name)


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The result of reproducing a bundle.

    Attributes:
        findings: files that came out different.
        compared: number of files compared.
    """

    findings: list[Finding]
    compared: int


def reproduce(bundle: Path, verified: Verified) -> Reproduced:
    """Analyse and draw the raw results of a verified bundle in a temporary folder, and compare.

    Raises:
        ArtifactError: the bundle has no campaign, or its raw results cannot be read.
    """
    campaign = _campaign(bundle, verified)
    recorded = {n: s for n, s in verified.sha256.items() if n.startswith(campaign)}
    findings = []
    with (
        tempfile.TemporaryDirectory(prefix="connector-tax-") as temporary,
        as_folder(bundle) as old_root,
    ):
        new_root = Path(temporary)
        bundled_names = {p.relative_to(old_root).as_posix() for p in made_files(old_root / campaign)}
        for name in recorded.keys() - bundled_names:
            copy_file(old_root / name, new_root / name)
        remake(new_root / campaign)
        remade = {p.relative_to(new_root).as_posix(): p for p in made_files(new_root / campaign)}
        names = sorted({*remade, *bundled_names})
        for name in names:
            if name not in bundled_names:
                findings.append(Finding(name, "is made today and not in the bundle"))
            elif name not in remade:
                findings.append(Finding(name, "is not made today"))
            elif sha256_of(remade[name]) != recorded[name]:
                difference_text = ""
                if name.endswith("/aggregate.json"):
                    first_difference = difference(
                        *(json.loads(path.read_bytes()) for path in (old_root / name, remade[name]))
                    )
                    difference_text = f", first {first_difference or 'in how it is written'}"
                findings.append(Finding(name, f"differs{difference_text}"))
    return Reproduced(findings, len(names))


def _campaign(bundle: Path, verified: Verified) -> str:
    """Return the campaign's folder in the bundle, with a trailing slash."""
    names = {n.split("/")[1] for n in verified.sha256 if n.startswith(RESULTS) and n.count("/") > 1}
    if len(names) != 1 or not is_campaign_name(name := min(names)):
        raise ArtifactError(
            f"{bundle}: has {len(names)} campaigns in {RESULTS}, wanted is one. {shown(sorted(names))}"
        )
    return f"{RESULTS}{name}/"


def difference(old: Any, new: Any) -> str | None:
    """Return the first place where two values differ, with both; None if they are equal."""
    old_leaves, new_leaves = dict(_leaves(old, "$")), dict(_leaves(new, "$"))
    path = next((p for p in old_leaves | new_leaves if old_leaves.get(p) != new_leaves.get(p)), None)
    if path is None:
        return None
    return f"at {path}: {old_leaves.get(path, 'nothing')}, today {new_leaves.get(path, 'nothing')}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every value that is neither a list nor an object."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, shown(value)
