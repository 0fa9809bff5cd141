"""A campaign as one archive: packed where a sitting measured it, taken over here.

The units are a campaign's documents and its run folders; what is made of them by reading is none. A unit that
is taken replaces the one here whole, so that no file of an earlier launch is left between those of a later
one. A run that went on here since is newer than the archive's and stays. Raw step logs and samples of a
launch under way stay where they are: each finished cell has its share of them.
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

# Of a run; those of a preflight are what later cells are held against.
_UNDER_WAY = "steps"
# How a folder begins that an archive is unpacked into.
_TAKEN = ".taken."
# How the name of a unit ends that another is put in place of.
_ASIDE = ".replaced"


def pack(folder: CampaignFolder, archive: Path) -> list[str]:
    """Write every unit into ``archive``; returns their names.

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
    """
    Attributes:
        units: that are those of the archive now.
        kept: of the archive, runs and ``preflight`` that went on here since, and what is here and made of
            these: they are as they were.
        removed: what was made of a Phase A that is not the one here any more, and is not in the archive
            either.
    """

    units: list[str]
    kept: list[str]
    removed: list[str]


def take(archive: Path, folder: CampaignFolder) -> Taken:
    """Put the units of ``archive`` in place of those in ``folder``, but for runs that went on here since. One
    at a time takes into a folder.

    Raises:
        ArtifactError: it is no such archive, or of another campaign or date; or a run was measured on both
            hosts, so that cells would be lost. Nothing is replaced then.
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
    """What a ``take`` left that was killed: what it unpacked, and what it had put aside, which belongs back
    where nothing took its place.

    Before anything is measured: what is measured in that place would pass for what was taken. Only who holds
    the campaign's start may.
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
    """Return what of ``there``, which was unpacked, is taken."""
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
    # Those here are of another Phase A, and so are the archive's where some of it was kept.
    removed = [n for n in here if new_a and (kept_a or n not in names)]
    documents += made if kept_a else [] if new_a else here
    units = [n for n in names if n not in (*kept, *documents)]
    kept += [n for n in documents if n in names and n not in removed and _differs(there, folder, n)]
    return Taken(units, kept, removed)


def _differs(there: CampaignFolder, folder: CampaignFolder, name: str) -> bool:
    own = folder.root / name
    return own.exists() and name != folder.campaign_file.name and not _is_same(there.root / name, own)


def _stays(ours: RunFolder, theirs: RunFolder, where: str) -> bool:
    """Whether the run here has all that the archive's has, and more; False where the archive's may take its
    place.

    Raises:
        ArtifactError: each has a cell that the other has not.
    """
    own, its = _cells(ours), _cells(theirs)
    lost = sorted(cell_id for cell_id, content in own.items() if its.get(cell_id) != content)
    if not lost:
        # Of two with the same cells the one that ended, or was launched more often, is the later.
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
    """In an order in which no half of it, where this is killed, passes for a whole."""
    made = _made_of_phase_a(folder)
    first, last = [folder.campaign_file.name], [folder.logs.name, *made]
    changed = [n for n in taken.units if not _is_same(there.root / n, folder.root / n)]
    order = [n for n in (*first, *(n for n in changed if n not in (*first, *last)), *made) if n in changed]
    if order or taken.removed:
        for name in [n for n in made if n in (*taken.removed, *order)]:
            (folder.root / name).unlink(missing_ok=True)
        # Receipts bring the other host's times, by which what was made before of others would pass for new. 0
        # is no time to Snakemake.
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
    """What is there of documents, ``preflight`` and ``logs``, and of each phase of each configuration."""
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
    """``campaign.json`` without what may be another on another host: where its interpreter is, for
    instance."""
    if not isinstance(document, dict) or not isinstance(document.get("config"), dict):
        raise ArtifactError(
            "campaign.json of the archive or of this folder has another form. Nothing was taken."
        )
    return {**document, "config": without_free_keys(document["config"])}


def _replace(new: Path, old: Path) -> None:
    """Where this is killed, ``put_back`` knows by what is there whether ``new`` has taken the place."""
    old.parent.mkdir(parents=True, exist_ok=True)
    aside = old.with_name(f".{old.name}{_ASIDE}")
    if old.exists():
        os.replace(old, aside)
    os.replace(new, old)
    if aside.exists():
        os.replace(aside, new)
