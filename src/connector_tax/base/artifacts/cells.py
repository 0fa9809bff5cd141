"""Cells on disk: written under a temporary name, renamed when complete, read back with checks.

A folder under its final name is complete by construction; whatever an interruption left under a
temporary name is thrown away and measured again.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import UNSET

from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.documents.cell import CellDocument, FileEntry, cell_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import (
    append_lines,
    publish_folder,
    read_json,
    sha256_of,
    write_json,
    writing_failed,
)
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.secrets import masked


def open_cell(folder: CellFolder) -> CellFolder:
    """An empty temporary folder for a cell that is about to be measured."""
    temporary = folder.temporary
    shutil.rmtree(temporary.path, ignore_errors=True)
    try:
        temporary.path.mkdir(parents=True)
    except OSError as error:
        raise writing_failed(temporary.path, error) from error
    return temporary


def publish_cell(folder: CellFolder, requests: Iterable[RequestRecord], document: CellDocument) -> None:
    """Complete the temporary folder (requests, then ``cell.json`` with a checksum of each file) and rename
    it.

    Args:
        document: what ``cell.json`` holds beside ``files``.
    """
    temporary = folder.temporary
    append_lines(temporary.requests, (_published(r).to_line() for r in requests))
    files = {p.name: file_entry(p) for p in sorted(temporary.path.iterdir()) if p.is_file()}
    write_json(temporary.cell_json, msgspec.structs.replace(document, files=files))
    publish_folder(temporary.path, folder.path)


def _published(request: RequestRecord) -> RequestRecord:
    """What a server says of a request that failed may repeat what it was sent."""
    return replace(request, error=masked(request.error)) if request.error else request


def file_entry(path: Path) -> FileEntry:
    return FileEntry(bytes=path.stat().st_size, sha256=sha256_of(path))


def read_cell(folder: CellFolder) -> CellDocument:
    """``cell.json`` of a finished cell.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form.
    """
    return cell_of(read_json(folder.cell_json), str(folder.cell_json))


def damage(folder: CellFolder, files: Mapping[str, FileEntry], *, contents: bool = False) -> str | None:
    """What of a finished cell is not on disk as ``files`` lists it; None where all is.

    A cell on disk is a folder: a link is followed by nobody.

    Args:
        contents: whether checksums are compared beside sizes.
    """
    if not folder.path.is_dir():
        return "is not there"
    for name, entry in files.items():
        path = folder.path / name
        if not path.is_file():
            return f"{name} is missing"
        if entry.bytes is not UNSET and (size := path.stat().st_size) != entry.bytes:
            return f"{name} has {size} bytes, and had {entry.bytes} when it was written"
        if contents and sha256_of(path) != entry.sha256:
            return f"{name} differs from its checksum"
    return None


def reusable(folder: CellFolder, spec_hash: str) -> bool:
    """Whether a whole cell of exactly this specification lies on disk.

    Raises:
        ArtifactError: another version wrote it.
    """
    try:
        written = read_json(folder.cell_json)
    except ArtifactError:  # missing or torn
        return False
    document = cell_of(written, str(folder.cell_json))
    return document.spec_hash == spec_hash and damage(folder, document.files) is None
