"""Thins a campaign for publication: keeps what its numbers are made of, by a recorded rule.

Requests, samples, documents, logs and receipts stay whole. Step records and a virtual GPU's clock, nine
tenths of a campaign, stay (packed) in Phases A and B at the reference rates with Phase A's shape, and are
left out elsewhere. Derived results (tables, ``aggregate.json``, figures, report) are left out, since they can
be made again.
"""

import gzip
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.cells import damage, file_entry, read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.campaign import CampaignDocument, Thinned
from connector_tax.base.documents.cell import FileEntry
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import (
    PACKED,
    copy_file,
    read_document,
    read_whole,
    sha256_of,
    write_bytes,
    write_json,
)
from connector_tax.base.records.cell import Shape

RULE = (
    "step records and device clock of Phases A and B at the two reference rates and the shape of Phase A, and"
    " of cells that are left out, packed; of other cells none; everything else whole, but that documents and"
    " logs write ~ for the home folder"
)
_LARGE = ("engine_step", "device_clock")


@dataclass(frozen=True, slots=True)
class _Kept:
    """The loads whose cells keep their step records: all pairs of shape and rate."""

    shapes: frozenset[Shape]
    rates_per_s: frozenset[float]


NOTHING = _Kept(frozenset(), frozenset())


def make_compact(source: Path, target: Path, left_out: Collection[tuple[str, str, str]] = ()) -> None:
    """Write a thinned copy of the campaign at ``source`` to ``target``, a new folder.

    Args:
        left_out: configuration, phase and cell id of cells that do not count. They keep their step records,
            which may be the only evidence of the reason.

    Raises:
        ArtifactError: ``target`` cannot be written, ``source`` is thinned already or not finished, a cell or
            a file of one is missing or was changed, or a folder may not be read. ``target`` is then
            incomplete.
    """
    campaign = CampaignFolder(source)
    document = read_document(campaign.campaign_file, CampaignDocument)
    if document.thinned:
        raise ArtifactError(f"{source}: is thinned already. Bundle it without --compact.")
    _refuse_unread(source)
    rates = read_document(campaign.reference_rates, ReferenceRatesFile)
    if missing := unfinished(campaign, document):
        phase, config = missing[0]
        raise ArtifactError(
            f"{source}: {len(missing)} runs have no receipt.json, the first {config} in phase {phase}, so the"
            " campaign is not finished. Finish it first, or bundle it as it is: with --partial and without"
            " --compact."
        )
    kept = _Kept(_shapes_of_phase_a(campaign), frozenset({rates.ref_safe_per_s, rates.ref_load_per_s}))
    new = CampaignFolder(target)
    thinned = Thinned(rule=RULE, source=_checksum(campaign))
    write_json(new.campaign_file, msgspec.structs.replace(document, thinned=thinned))
    _without_home(new.campaign_file)
    for path in (campaign.reference_rates, campaign.engine_diff, campaign.put_in):
        if path.is_file():
            copy_file(path, new.root / path.name)
            _without_home(new.root / path.name)
    _copy_beneath(campaign.preflight, new.preflight)
    for run in campaign.runs():
        copy = new.run(run.path.parent.name[:10], run.connector_id, run.phase)
        _compact_run(run, copy, kept if run.phase in ("a", "b") else NOTHING, left_out)


def unfinished(campaign: CampaignFolder, document: CampaignDocument) -> list[tuple[str, str]]:
    """Return (phase, configuration) of each planned run without a receipt, in order of launch.

    Raises:
        ArtifactError: the reference rates exist and cannot be read.
    """
    finished = {
        (run.phase, run.connector_id)
        for run in campaign.runs()
        # Links are never read and are not archived.
        if run.receipt.is_file() and not run.receipt.is_symlink()
    }
    known = campaign.reference_rates.is_file()
    # The rates tell whether Phase B' is needed; until then it counts as planned.
    b_prime = not known or read_document(campaign.reference_rates, ReferenceRatesFile).b_prime_needed
    planned = [
        (phase, c)
        for phase, configs in document.order.items()
        if phase != "b_prime" or b_prime
        for c in configs
    ]
    return [run for run in planned if run not in finished]


def _refuse_unread(source: Path) -> None:
    """Refuse folders that may not be read, which would look empty and the copy complete."""

    def refuse(error: OSError) -> None:
        raise ArtifactError(
            f"{error.filename}: cannot be read ({error.strerror}). Nothing was bundled."
        ) from error

    for _ in os.walk(source, onerror=refuse):
        pass


def _shapes_of_phase_a(campaign: CampaignFolder) -> frozenset[Shape]:
    cells = (cell for run in campaign.runs() if run.phase == "a" for cell in run.finished_cells())
    return frozenset(read_cell(cell).spec.shape for cell in cells)


def _compact_run(
    run: RunFolder, copy: RunFolder, kept: _Kept, left_out: Collection[tuple[str, str, str]]
) -> None:
    for path in sorted(run.path.iterdir()):
        if path.is_file() and path != run.receipt:
            copy_file(path, copy.path / path.name)
            _without_home(copy.path / path.name)
        elif path.is_dir() and path.name.startswith("attempt_"):
            _copy_beneath(path, copy.path / path.name)
    receipt = read_receipt(run)
    # Checked against the receipt, since a thinned receipt would hide an edit.
    listed = {cell.cell_id: cell.files for cell in receipt.cells}
    files = {}
    for cell_id in sorted({*listed, *(cell.cell_id for cell in run.finished_cells())}):
        cell = run.cell(cell_id)
        fault = damage(cell, listed[cell_id] if cell_id in listed else read_cell(cell).files, contents=True)
        if fault is not None:
            raise ArtifactError(f"{cell.path}: {fault}; a damaged campaign is not published.")
        whole = (run.connector_id, run.phase, cell_id) in left_out
        files[cell_id] = _compact_cell(cell, copy.cell(cell_id), kept, whole=whole)
    cells = tuple(msgspec.structs.replace(c, files=files[c.cell_id]) for c in receipt.cells)
    write_json(copy.receipt, msgspec.structs.replace(receipt, cells=cells))


def _compact_cell(cell: CellFolder, copy: CellFolder, kept: _Kept, *, whole: bool) -> dict[str, FileEntry]:
    """Copy one cell and return its files with their checksums, for the receipt."""
    document = read_cell(cell)
    is_kept = whole or (document.spec.shape in kept.shapes and document.spec.rate_per_s in kept.rates_per_s)
    files: dict[str, FileEntry] = {}
    left_out = []
    for name, entry in document.files.items():
        source = cell.path / name
        if not name.startswith(_LARGE):
            copy_file(source, copy.path / name)
            files[name] = entry
        elif is_kept:
            packed = copy.path / f"{name}{PACKED}"
            # Without a time stamp, so that equal content gives equal bytes.
            write_bytes(packed, gzip.compress(read_whole(source), mtime=0))
            files[packed.name] = file_entry(packed)
        else:
            left_out.append(name)
    thinned = msgspec.structs.replace(document, files=files, left_out_streams=tuple(left_out))
    write_json(copy.cell_json, thinned)
    _without_home(copy.cell_json)
    return {**files, "cell.json": file_entry(copy.cell_json)}


def _without_home(written: Path) -> None:
    """Replace the home folder by ``~``, for privacy; a cell's streams hold no paths and are not touched."""
    home = str(Path.home()).encode() + b"/"
    content = written.read_bytes()
    if len(home) > len(b"//") and home in content:
        mode = written.stat().st_mode
        write_bytes(written, content.replace(home, b"~/"))
        written.chmod(mode)


def _copy_beneath(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copy_file(path, target / path.relative_to(source))
            _without_home(target / path.relative_to(source))


def _checksum(campaign: CampaignFolder) -> dict[str, str]:
    """Return the checksums of the thinned documents; receipts hold those of their cells."""
    documents = [campaign.campaign_file, *(run.receipt for run in campaign.runs() if run.receipt.is_file())]
    return {str(path.relative_to(campaign.root)): sha256_of(path) for path in documents}
