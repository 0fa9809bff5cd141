"""Cells on disk: written under a temporary name, renamed when complete, checked when read.

A folder under its final name is complete by construction. What an interruption left under a temporary name is
deleted and measured again.
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
    """Create an empty temporary folder for a cell."""
    temporary = folder.temporary
    shutil.rmtree(temporary.path, ignore_errors=True)
    try:
        temporary.path.mkdir(parents=True)
    except OSError as error:
        raise writing_failed(temporary.path, error) from error
    return temporary


def publish_cell(folder: CellFolder, requests: Iterable[RequestRecord], document: CellDocument) -> None:
    """Complete the temporary folder (requests, then ``cell.json`` with checksums) and rename it.

    Args:
        document: the contents of ``cell.json`` except ``files``.
    """
    temporary = folder.temporary
    append_lines(temporary.requests, (_published(r).to_line() for r in requests))
    files = {p.name: file_entry(p) for p in sorted(temporary.path.iterdir()) if p.is_file()}
    write_json(temporary.cell_json, msgspec.structs.replace(document, files=files))
    publish_folder(temporary.path, folder.path)


def _published(request: RequestRecord) -> RequestRecord:
    """Mask a failed request's error, which may repeat the request."""
    return replace(request, error=masked(request.error)) if request.error else request


def file_entry(path: Path) -> FileEntry:
    return FileEntry(bytes=path.stat().st_size, sha256=sha256_of(path))


def read_cell(folder: CellFolder) -> CellDocument:
    """Read ``cell.json`` of a finished cell.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form.
    """
    return cell_of(read_json(folder.cell_json), str(folder.cell_json))


def damage(folder: CellFolder, files: Mapping[str, FileEntry], *, contents: bool = False) -> str | None:
    """Return how a finished cell on disk differs from ``files``; None if it does not.

    Args:
        contents: also compare checksums.
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
    """Return whether a complete cell of exactly this specification is on disk.

    Raises:
        ArtifactError: another version wrote it.
    """
    try:
        written = read_json(folder.cell_json)
    except ArtifactError:  # missing or torn
        return False
    document = cell_of(written, str(folder.cell_json))
    return document.spec_hash == spec_hash and damage(folder, document.files) is None
