"""A campaign as one archive: packed on the host that measured it, and merged into the folder here.

The units are a campaign's documents and its run folders, without what the analysis makes of them. A unit from
the archive replaces the one here as a whole, so that files of different launches never mix. A run that has
continued here since is newer than the archive's and stays. Raw step logs and samples of a running launch are
not packed, since each finished cell has its share of them.
"""

import filecmp
import os
import shutil
import tarfile
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_launches
from connector_tax.base.config.model import without_free_keys
from connector_tax.base.errors import OF_THE_DISK, ArtifactError
from connector_tax.base.files import MOST_BYTES, read_json, read_whole, shown, sync_beneath, writing_failed

# Left out of runs only: later cells are compared with the steps of a preflight.
_UNDER_WAY = "steps"
# Prefix of a folder into which an archive is unpacked.
_TAKEN = ".taken."
# Suffix of a unit that is being replaced.
_ASIDE = ".replaced"


def pack(folder: CampaignFolder, archive: Path) -> list[str]:
    """Write every unit into ``archive`` and return their names.

    Raises:
        ArtifactError: the archive cannot be written.
    """
    names = _units(folder)
    temporary = archive.with_name(f".{archive.name}.partial")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar:
                for name in names:
                    tar.add(folder.root / name, name, filter=_without_what_is_under_way)
            os.fsync(file.fileno())
        os.replace(temporary, archive)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactError(
            f"{archive}: cannot be written ({error.strerror or error}). Results are in {folder.root}; take"
            " them from there."
        ) from error
    return names


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of ``take``.

    Attributes:
        units: those that are now the archive's.
        kept: not taken: runs and ``preflight`` that have continued here since, and documents made of them.
        removed: documents of a Phase A that is no longer here, without a replacement in the archive.
    """

    units: list[str]
    kept: list[str]
    removed: list[str]


def take(archive: Path, folder: CampaignFolder) -> Taken:
    """Replace the units in ``folder`` by those of ``archive``, except runs that have continued here since.

    Only one process at a time may take into a folder.

    Raises:
        ArtifactError: it is no such archive, or of another campaign or date, or both hosts measured a run, so
            that cells would be lost. Nothing is replaced then.
    """
    folder.root.mkdir(parents=True, exist_ok=True)
    put_back(folder)
    there = CampaignFolder(Path(tempfile.mkdtemp(prefix=_TAKEN, dir=folder.root)))
    try:
        try:
            with tarfile.open(archive, "r:gz") as tar:
                if sum(member.size for member in tar) > MOST_BYTES:
                    raise ArtifactError(
                        f"{archive}: would unpack to more than {MOST_BYTES} bytes. Nothing was taken from it."
                    )
                tar.extractall(there.root, filter="data")
        except (OSError, EOFError, tarfile.TarError) as error:
            if isinstance(error, OSError) and error.errno in OF_THE_DISK:
                raise writing_failed(folder.root, error) from error
            raise ArtifactError(
                f"{archive}: cannot be unpacked ({error}). Bring it here once more."
            ) from error
        _check_same_campaign(archive, there, folder)
        taken = _decide(archive, there, folder)
        sync_beneath(there.root)
        _put_in_place(archive, there, folder, taken)
    finally:
        put_back(folder)
    return taken


def put_back(folder: CampaignFolder) -> None:
    """Undo what a killed ``take`` left: delete what it unpacked, and restore units that were not replaced.

    Call it before measuring, since a new unit in the place of an old one would pass for a taken one. The
    caller must hold the campaign's start lock.
    """
    root = folder.root
    for aside in [*root.glob(f".*{_ASIDE}"), *root.glob(f"*/.*{_ASIDE}")]:
        unit = aside.with_name(aside.name[1:].removesuffix(_ASIDE))
        os.replace(aside, root / f"{_TAKEN}{uuid.uuid4().hex}" if unit.exists() else unit)
    for left in root.glob(f"{_TAKEN}*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _decide(archive: Path, there: CampaignFolder, folder: CampaignFolder) -> Taken:
    """Return which units of the unpacked ``there`` are taken."""
    ours = {_name(run, folder): run for run in folder.runs()}
    theirs = {_name(run, there): run for run in there.runs()}
    names = _units(there)
    kept = [n for n in theirs if n in ours and _stays(ours[n], theirs[n], f"{archive}: {ours[n].path}")]
    documents = [folder.campaign_file.name] if folder.campaign_file.exists() else []
    if _launches(folder.preflight_launches) > _launches(there.preflight_launches):
        documents += [folder.preflight.name, folder.engine_diff.name]
    phase_a = [n for n, run in theirs.items() if run.phase == "a"]
    kept_a = any(n in kept for n in phase_a)
    new_a = any(n not in kept and not _is_same(there.root / n, folder.root / n) for n in phase_a)
    made = _made_of_phase_a(folder)
    here = [n for n in made if (folder.root / n).exists()]
    # Those here belong to another Phase A, and so do the archive's if part of its Phase A was not taken.
    removed = [n for n in here if new_a and (kept_a or n not in names)]
    documents += made if kept_a else [] if new_a else here
    units = [n for n in names if n not in (*kept, *documents)]
    kept += [n for n in documents if n in names and n not in removed and _differs(there, folder, n)]
    return Taken(units, kept, removed)


def _differs(there: CampaignFolder, folder: CampaignFolder, name: str) -> bool:
    own = folder.root / name
    return own.exists() and name != folder.campaign_file.name and not _is_same(there.root / name, own)


def _stays(ours: RunFolder, theirs: RunFolder, where: str) -> bool:
    """Return whether the run here stays, because it has all of the archive's and more.

    Raises:
        ArtifactError: each has a cell that the other lacks.
    """
    own, its = _cells(ours), _cells(theirs)
    lost = sorted(cell_id for cell_id, content in own.items() if its.get(cell_id) != content)
    if not lost:
        # With equal cells the later run is the one that ended, or was launched more often.
        return own == its and _progress(ours) > _progress(theirs)
    if its.items() <= own.items():
        return True
    raise ArtifactError(
        f"{where} was measured on both hosts, and cell {lost[0]} of it is here and not in the archive."
        " Nothing was taken. Remove that folder here to take the archive's, or leave this archive out."
    )


def _cells(run: RunFolder) -> dict[str, bytes]:
    return {c.cell_id: read_whole(c.cell_json) for c in run.finished_cells() if c.cell_json.is_file()}


def _progress(run: RunFolder) -> tuple[bool, int]:
    return run.receipt.is_file(), _launches(run.launches)


def _launches(file: Path) -> int:
    return len(read_launches(file))


def _put_in_place(archive: Path, there: CampaignFolder, folder: CampaignFolder, taken: Taken) -> None:
    """Replace the units in an order in which no part passes for the whole if this process is killed."""
    made = _made_of_phase_a(folder)
    first, last = [folder.campaign_file.name], [folder.logs.name, *made]
    changed = [n for n in taken.units if not _is_same(there.root / n, folder.root / n)]
    order = [n for n in (*first, *(n for n in changed if n not in (*first, *last)), *made) if n in changed]
    if order or taken.removed:
        for name in [n for n in made if n in (*taken.removed, *order)]:
            (folder.root / name).unlink(missing_ok=True)
        # Receipts keep the other host's time stamps, beside which older results would seem up to date.
        # Snakemake does not accept 0 as a time.
        for read in (folder.aggregate, folder.aggregate_csv, folder.manifest):
            if read.exists():
                os.utime(read, (1, 1))
    for name in order:
        _replace(there.root / name, folder.root / name)
    for log in sorted(p for p in there.logs.rglob("*") if p.is_file()):
        place = folder.logs / log.relative_to(there.logs)
        if place.exists() and not filecmp.cmp(log, place, shallow=False):
            place = folder.logs / archive.name.removesuffix(".tar.gz") / log.relative_to(there.logs)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(log, place)


def _units(folder: CampaignFolder) -> list[str]:
    """Return the existing documents, ``preflight``, ``logs``, and the runs."""
    documents = [
        folder.campaign_file,
        folder.engine_diff,
        folder.logs,
        folder.preflight,
        folder.put_in,
        folder.reference_rates,
    ]
    return sorted(
        [*(_name(run, folder) for run in folder.runs()), *(p.name for p in documents if p.exists())]
    )


def _made_of_phase_a(folder: CampaignFolder) -> list[str]:
    return [folder.reference_rates.name, folder.put_in.name]


def _name(run: RunFolder, folder: CampaignFolder) -> str:
    return run.path.relative_to(folder.root).as_posix()


def _is_same(new: Path, old: Path) -> bool:
    """Return whether the two have the same files with the same contents."""
    names = _files(new)
    return names == _files(old) and all(filecmp.cmp(new / n, old / n, shallow=False) for n in names)


def _files(unit: Path) -> set[PurePath]:
    files = [unit] if unit.is_file() else [p for p in unit.rglob("*") if p.is_file()]
    return {p.relative_to(unit) for p in files if not _is_under_way(unit.name / p.relative_to(unit))}


def _is_under_way(path: PurePath) -> bool:
    steps = _UNDER_WAY in path.parts and path.parts[0] != "preflight"
    return steps or any(part.startswith(".") for part in path.parts)


def _without_what_is_under_way(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    plain = member.isfile() or member.isdir()
    return member if plain and not _is_under_way(PurePath(member.name)) else None


def _check_same_campaign(archive: Path, there: CampaignFolder, here: CampaignFolder) -> None:
    if not there.campaign_file.is_file():
        raise ArtifactError(f"{archive}: holds no {there.campaign_file.name}, so it is no campaign's.")
    theirs = _asked(read_json(there.campaign_file))
    if theirs.get("campaign") != here.root.name:
        raise ArtifactError(
            f"{archive}: is of campaign {shown(theirs.get('campaign'))}, and {here.root} is another's."
            " Nothing was taken; give the config file that it was measured with."
        )
    if not here.campaign_file.is_file():
        return
    ours = _asked(read_json(here.campaign_file))
    for key in ("campaign", "date", "config"):
        if theirs.get(key) != ours.get(key):
            raise ArtifactError(
                f"{archive}: its {key} is another than that of {here.campaign_file}. Nothing was taken; "
                "take it into the checkout that the sitting was started from."
            )


def _asked(document: Any) -> dict[str, Any]:
    """Return ``campaign.json`` without what may differ between hosts, such as the interpreter's path."""
    if not isinstance(document, dict) or not isinstance(document.get("config"), dict):
        raise ArtifactError(
            "campaign.json of the archive or of this folder has another form. Nothing was taken."
        )
    return {**document, "config": without_free_keys(document["config"])}


def _replace(new: Path, old: Path) -> None:
    """Replace ``old`` by ``new`` so that ``put_back`` can tell from the files whether it was done."""
    old.parent.mkdir(parents=True, exist_ok=True)
    aside = old.with_name(f".{old.name}{_ASIDE}")
    if old.exists():
        os.replace(old, aside)
    os.replace(new, old)
    if aside.exists():
        os.replace(aside, new)
