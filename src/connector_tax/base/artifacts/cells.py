"""Cells on disk: written under a temporary name, renamed when complete, read back with checks.

A folder under its final name is complete by construction; whatever an interruption left under a
temporary name is thrown away and measured again.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CellFolder
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
from connector_tax.base.redaction import published_text

SCHEMA = 1


def open_cell(folder: CellFolder) -> CellFolder:
    """An empty temporary folder for a cell that is about to be measured."""
    temporary = folder.temporary
    shutil.rmtree(temporary.path, ignore_errors=True)
    try:
        temporary.path.mkdir(parents=True)
    except OSError as error:
        raise writing_failed(temporary.path, error) from error
    return temporary


def publish_cell(folder: CellFolder, requests: Iterable[RequestRecord], document: dict[str, Any]) -> None:
    """Complete the temporary folder (requests, then ``cell.json`` with a checksum of each file) and rename it.

    Args:
        document: what ``cell.json`` holds beside ``schema`` and ``files``.
    """
    temporary = folder.temporary
    append_lines(temporary.requests, (_published(r).to_line() for r in requests))
    files = {p.name: file_entry(p) for p in sorted(temporary.path.iterdir()) if p.is_file()}
    write_json(temporary.cell_json, {"schema": SCHEMA, **document, "files": files})
    publish_folder(temporary.path, folder.path)


def _published(request: RequestRecord) -> RequestRecord:
    """What a server says of a request that failed may repeat what it was sent."""
    return replace(request, error=published_text(request.error)) if request.error else request


def file_entry(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def read_cell(folder: CellFolder) -> dict[str, Any]:
    """``cell.json`` of a finished cell.

    Raises:
        ArtifactError: missing, not JSON, or of another schema.
    """
    document = read_json(folder.cell_json)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ArtifactError(
            f"{folder.cell_json}: not a cell of schema {SCHEMA}. Remove the cell to measure it again."
        )
    return document


def reusable(folder: CellFolder, spec_hash: str) -> bool:
    """Whether a finished cell of exactly this specification lies on disk."""
    if not folder.cell_json.is_file():
        return False
    return bool(read_cell(folder).get("spec_hash") == spec_hash)
