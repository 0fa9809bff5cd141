"""Whether a bundle, packed or unpacked, holds what was put in: one finding per file that was changed, is missing or was added."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import sha256_of
from connector_tax.base.opening import is_folder, printable, read_whole
from connector_tax.read.bundle.archive import BadArchive, unpack
from connector_tax.read.bundle.listing import MANIFEST, read_manifest


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one file of a bundle, or with the archive."""

    name: str
    what: str

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else ascii(self.name)
        return f"{printable(name, 300)}: {printable(self.what, 500)}"


@dataclass(frozen=True, slots=True)
class Verified:
    """
    Attributes:
        findings: none where all is as it was bundled.
        sha256: of every file that the manifest lists; empty where the archive or the manifest itself was changed.
    """

    findings: list[Finding]
    sha256: dict[str, str]


def verify(bundle: Path) -> Verified:
    """Compare each file with the manifest; an archive is unpacked into a temporary folder for it.

    Raises:
        ArtifactError: there is nothing, a folder that is no bundle, or neither a folder nor a regular file.
    """
    if is_folder(bundle) and not os.path.lexists(bundle / MANIFEST):
        raise ArtifactError(
            f"{bundle}: no bundle, since it has no {MANIFEST}. Give an archive, the folder it was unpacked into, or, without --reproduce, "
            "results/<campaign>."
        )
    try:
        with as_folder(bundle) as folder:
            return _compared_with_manifest(folder)
    except BadArchive as error:
        return Verified([Finding(bundle.name, str(error))], {})


@contextmanager
def as_folder(bundle: Path) -> Iterator[Path]:
    """The bundle's folder; that of an archive is a temporary one.

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
    try:
        listed = read_manifest(read_whole(folder / MANIFEST))
    except FileNotFoundError:
        return Verified([Finding(MANIFEST, "is missing, so the other files cannot be judged")], {})
    except ArtifactError as error:
        return Verified([Finding(MANIFEST, f"cannot be read: {error}")], {})
    if listed is None:
        return Verified([Finding(MANIFEST, "was changed, so the other files cannot be judged by it")], {})
    wrong: dict[str, str] = {}
    found: set[str] = set()
    for path in _files_beneath(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            wrong[name] = "is a link"
        elif name not in listed:
            wrong |= {} if name == MANIFEST else {name: "was added"}
        else:
            try:
                wrong |= {} if sha256_of(path) == listed[name] else {name: "was changed"}
            except ArtifactError as error:
                wrong[name] = f"cannot be read: {error}"
            found.add(name)
    # A folder that is a link hides what lies in it.
    hidden = tuple(f"{name}/" for name in wrong)
    wrong |= {
        name: "is missing" for name in listed.keys() - found - wrong.keys() if not name.startswith(hidden)
    }
    return Verified([Finding(name, wrong[name]) for name in sorted(wrong)], listed)


def _files_beneath(folder: Path) -> Iterator[Path]:
    """All that is no folder; a link to a folder, too, and nothing behind it."""
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in files)
        yield from (path for name in folders if (path := Path(where, name)).is_symlink())
