"""Whether a bundle, packed or unpacked, holds what was put in: one finding per file that was changed, is missing or was added."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import sha256_of, writing_failed
from connector_tax.base.opening import MOST_STREAM_BYTES, is_folder, open_regular, read_whole
from connector_tax.read.bundle.archive import Archive, Finding
from connector_tax.read.bundle.listing import MANIFEST, clashes, read_manifest, why_no_name


@dataclass(frozen=True, slots=True)
class Verified:
    """
    Attributes:
        findings: none where all is as it was bundled.
        sha256: of every file that the manifest lists; empty where the manifest itself was changed.
    """

    findings: list[Finding]
    sha256: dict[str, str]


def verify(bundle: Path) -> Verified:
    """Compare each file with the manifest, and an archive with the form that it has to have; writes nothing.

    Raises:
        ArtifactError: there is nothing, or neither a folder nor a regular file.
    """
    if is_folder(bundle):
        return _folder(bundle)
    try:
        with Archive(bundle) as archive:
            return _archive(archive)
    except FileNotFoundError as error:
        raise ArtifactError(f"{bundle}: no such file or folder.") from error


def unpack(bundle: Path, names: set[str], target: Path) -> None:
    """Write the files ``names`` of a verified bundle beneath ``target``.

    Raises:
        ArtifactError: one of them is not what it was when it was verified, or the disk is full.
    """
    if bundle.is_dir():
        for name in sorted(names):
            copy_file(bundle / name, target / name)
        return
    with Archive(bundle) as archive:
        if archive.findings or not archive.sealed:
            raise ArtifactError(f"{bundle}: was changed while it was verified.")
        for member in archive.members:
            if member.name in names:
                _put(target / member.name, archive.content(member))


def copy_file(source: Path, target: Path) -> None:
    """Content and mode of a regular file; refuses others as ``open_regular`` does."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_regular(source, MOST_STREAM_BYTES) as reading, open(target, "xb") as writing:
            shutil.copyfileobj(reading, writing)
        shutil.copymode(source, target)
    except OSError as error:
        raise writing_failed(target, error) from error


def _put(path: Path, pieces: Iterator[bytes]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise writing_failed(path, error) from error


def _archive(archive: Archive) -> Verified:
    findings = list(archive.findings)
    found: dict[str, str] = {}
    manifest: bytes | None = None
    for member in archive.members:
        try:
            digest = hashlib.sha256()
            pieces = []
            for piece in archive.content(member):
                digest.update(piece)
                if member.name == MANIFEST:
                    pieces.append(piece)
            found[member.name] = digest.hexdigest()
            if member.name == MANIFEST:
                manifest = b"".join(pieces)
        except ArtifactError as error:
            findings.append(Finding(member.name, str(error)))
    named = {finding.name for finding in findings}
    # What a directory that cannot be read lists is not known, so nothing is missing from it.
    blind = archive.about("").name in named
    listed = read_manifest(manifest) if manifest is not None else None
    if manifest is not None and listed is None:
        findings.append(Finding(MANIFEST, "was changed"))
    elif manifest is None and MANIFEST not in named and not blind:
        findings.append(Finding(MANIFEST, "is missing"))
    if listed is not None:
        findings += [
            f
            for f in _compared(listed, found)
            if f.name not in named and not (blind and f.what == "is missing")
        ]
    if not findings and not archive.sealed:
        findings.append(archive.about("was changed, in bits that no file uses"))
    # A line per file: the first is nearest to the cause.
    return Verified(list({f.name: f for f in reversed(findings)}.values())[::-1], listed or {})


def _compared(listed: dict[str, str], found: dict[str, str]) -> list[Finding]:
    """Files that are not as the manifest lists them, in order of name."""
    findings = []
    for name in sorted({*listed, *found} - {MANIFEST}):
        if name not in found:
            findings.append(Finding(name, "is missing"))
        elif name not in listed:
            findings.append(Finding(name, "was added"))
        elif listed[name] != found[name]:
            findings.append(Finding(name, "was changed"))
    return findings


def _folder(folder: Path) -> Verified:
    try:
        listed = read_manifest(read_whole(folder / MANIFEST))
    except FileNotFoundError:
        return Verified([Finding(MANIFEST, "is missing, so the other files cannot be judged")], {})
    except ArtifactError as error:
        return Verified([Finding(MANIFEST, f"cannot be read: {error}")], {})
    if listed is None:
        return Verified([Finding(MANIFEST, "was changed, so the other files cannot be judged by it")], {})
    unfit = [Finding(name, why) for name in listed if (why := why_no_name(name))]
    if unfit := [*unfit, *(Finding(*found) for found in clashes([*listed, MANIFEST]))]:
        return Verified(unfit, {})
    found: dict[str, str] = {}
    findings: list[Finding] = []
    for path in _files_beneath(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            findings.append(Finding(name, "is a link"))
        elif name in listed:
            try:
                found[name] = sha256_of(path)
            except ArtifactError as error:
                findings.append(Finding(name, f"cannot be read: {error}"))
        else:
            found[name] = ""
    named = {finding.name for finding in findings}
    # A folder that is a link hides what lies in it.
    hidden = tuple(f"{finding.name}/" for finding in findings)
    findings += [f for f in _compared(listed, found) if f.name not in named and not f.name.startswith(hidden)]
    return Verified(sorted(findings, key=lambda f: f.name), listed)


def _files_beneath(folder: Path) -> Iterator[Path]:
    """All that is no folder; a link to a folder, too, and nothing behind it."""
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in files)
        yield from (path for name in folders if (path := Path(where, name)).is_symlink())
