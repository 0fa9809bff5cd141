"""What a sitting on another host left behind, as one archive: packed there, taken over here.

The units are a campaign's documents and its run folders. A unit that changed travels whole and replaces the one here, so that no file
of an earlier launch is left between those of a later one. A run that went on here since is newer than the archive's and stays. Raw step
logs and samples of a launch under way stay where they are: each finished cell has its share of them.
"""

import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from connector_tax.base.artifacts.launches import read_launches
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json
from connector_tax.base.opening import is_bare, read_whole, shown

_UNDER_WAY = "steps"
_CELL = "cell "
# How a folder begins that an archive is unpacked into.
_TAKEN = ".taken."
# How the name of a unit ends that another is put in place of.
_ASIDE = ".replaced"
# Of all contents to the archive; a sitting's have some 10.
MOST_RATIO = 200
MOST_MEMBERS = 1_000_000
# A small archive may hold a few empty logs and little else.
_SMALL_BYTES = 16 << 20
# Name -> size and time of change, of every file of a unit.
Stamps = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a campaign's folder stood at one moment: unit -> its files."""

    units: dict[str, Stamps]


def standing(folder: CampaignFolder) -> Standing:
    """As it is now; a folder that is not there has no units."""
    return Standing({name: _stamps(folder.root / name) for name in _units(folder)})


def pack(folder: CampaignFolder, since: Standing, archive: Path) -> list[str]:
    """Write the units that are not as they stood, and ``campaign.json``; returns their names.

    Raises:
        ArtifactError: the archive cannot be written.
    """
    changed = [n for n, stamps in standing(folder).units.items() if since.units.get(n) != stamps]
    names = sorted({*changed, folder.campaign_file.name})
    temporary = archive.with_name(f".{archive.name}.partial")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
            for name in names:
                tar.add(folder.root / name, name, filter=_without_what_is_under_way)
        os.replace(temporary, archive)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactError(
            f"{archive}: cannot be written ({error.strerror or error}). Results are in {folder.root}; take them from there."
        ) from error
    return names


@dataclass(frozen=True, slots=True)
class Taken:
    """
    Attributes:
        units: that are those of the archive now.
        kept: of the archive, runs and ``preflight`` that went on here since, and what is made of these: they are as they were.
    """

    units: list[str]
    kept: list[str]


def take(archive: Path, folder: CampaignFolder) -> Taken:
    """Put the units of ``archive`` in place of those in ``folder``, but for runs that went on here since. One at a time takes into a folder.

    Raises:
        ArtifactError: it is no such archive, or of another campaign or date; or a run was measured on both hosts, so that cells would
            be lost. Nothing is replaced then.
    """
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.refuse_links()
    _clear(folder.root)
    with tempfile.TemporaryDirectory(prefix=_TAKEN, dir=folder.root) as unpacked:
        there = CampaignFolder(Path(unpacked))
        try:
            with tarfile.open(archive, "r:gz") as tar:
                tar.extractall(unpacked, members=_plain(tar, archive), filter="data")
        except (OSError, EOFError, tarfile.TarError) as error:
            raise ArtifactError(
                f"{archive}: cannot be unpacked ({error}). Bring it here once more."
            ) from error
        _check_same_campaign(archive, there, folder)
        ours = {run.path.relative_to(folder.root).as_posix(): run for run in folder.runs()}
        theirs = {run.path.relative_to(there.root).as_posix(): run for run in there.runs()}
        # A configuration's folder is no unit where runs of it are here, whatever is in the archive's.
        of_runs = {name.partition("/")[0] for name in ours}
        names = [n for n in _units(there) if n not in of_runs]
        kept = [n for n in names if n in ours and n in theirs and _went_on(ours[n], theirs[n], archive)]
        made = (folder.reference_rates, folder.put_in) if any(ours[n].phase == "a" for n in kept) else ()
        has_preflight = folder.preflight.name in names
        if has_preflight and _is_newer(folder.preflight_launches, there.preflight_launches):
            made = (*made, folder.preflight, folder.engine_diff)
            has_preflight = False
        if not has_preflight:  # the one here stands
            included = _included(folder)
            kept += [
                n
                for n in theirs
                if n not in kept and _is_wrongly_left_out(n, theirs, {**ours, **theirs}, included)
            ]
        kept += [path.name for path in made if path.name in names]
        taken = [n for n in names if n not in kept]
        for name in taken:
            _replace(there.root / name, folder.root / name)
    return Taken(taken, kept)


def _units(folder: CampaignFolder) -> list[str]:
    """Documents, ``preflight`` and ``logs``, and each phase of each configuration; hidden names are nobody's."""
    if not folder.root.is_dir():
        return []
    runs = {str(run.path.relative_to(folder.root)) for run in folder.runs()}
    of_runs = {name.partition("/")[0] for name in runs}
    others = {p.name for p in folder.root.iterdir() if is_bare(p.name) and p.name not in of_runs}
    return sorted(runs | others)


def _stamps(unit: Path) -> Stamps:
    files = [unit] if unit.is_file() else [p for p in unit.rglob("*") if p.is_file()]
    kept = [p for p in files if _UNDER_WAY not in p.relative_to(unit).parts]
    return {str(p.relative_to(unit)): (p.stat().st_size, p.stat().st_mtime_ns) for p in kept}


def _without_what_is_under_way(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = PurePosixPath(member.name)
    hidden = any(part.startswith(".") for part in path.parts)
    return None if hidden or _UNDER_WAY in path.parts or not (member.isfile() or member.isdir()) else member


def _plain(tar: tarfile.TarFile, archive: Path) -> list[tarfile.TarInfo]:
    """Its members, if each is a file or a folder beneath the campaign's, and all of them are not much larger than the archive."""
    members: list[tarfile.TarInfo] = []
    left = max(_SMALL_BYTES, MOST_RATIO * archive.stat().st_size)
    for member in tar:
        left -= member.size
        if left < 0 or len(members) == MOST_MEMBERS:
            raise ArtifactError(
                f"{archive}: would unpack to more than {MOST_RATIO} times its size or {MOST_MEMBERS} files, which no sitting's does. "
                "Nothing was taken from it."
            )
        members.append(member)
        parts = PurePosixPath(member.name).parts
        if not all(map(is_bare, parts)) or not (member.isfile() or member.isdir()):
            raise ArtifactError(
                f"{archive}: {member.name!r} is no plain file or folder of a campaign. Nothing was taken from it."
            )
    return members


def _check_same_campaign(archive: Path, there: CampaignFolder, here: CampaignFolder) -> None:
    if not there.campaign_file.is_file():
        raise ArtifactError(f"{archive}: holds no {there.campaign_file.name}, so it is no campaign's.")
    theirs = _asked(read_json(there.campaign_file))
    if theirs.get("campaign") != here.root.name:
        raise ArtifactError(
            f"{archive}: is of campaign {shown(theirs.get('campaign'))}, and {here.root} is another's. Nothing was taken; give the config "
            "file that it was measured with."
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
    """``campaign.json`` without the settings of its analysis, which are nothing that was measured."""
    if not isinstance(document, dict) or not isinstance(document.get("config"), dict):
        raise ArtifactError(
            "campaign.json of the archive or of this folder has another form. Nothing was taken."
        )
    return {**document, "config": {k: v for k, v in document["config"].items() if k != "analysis"}}


def _is_newer(ours: Path, theirs: Path) -> bool:
    """Whether there were further launches behind those of ``theirs``."""
    here, there = _launches(ours), _launches(theirs)
    return here != there and here[: len(there)] == there


def _launches(file: Path) -> list[tuple[Any, Any]]:
    return [(launch.attempt, launch.started_utc) for launch in read_launches(file)]


def _went_on(ours: RunFolder, theirs: RunFolder, archive: Path) -> bool:
    """Whether the run here is the archive's and what was measured since; False where the archive's may take its place.

    Raises:
        ArtifactError: what was measured here would be lost.
    """
    here, there = _launches(ours.launches), _launches(theirs.launches)
    own, its = _measured(ours), _measured(theirs)
    cells = {name: content for name, content in its.items() if name.startswith(_CELL)}
    # Without a launch there may be cells of a run that was a guest in another's.
    if _is_newer(ours.launches, theirs.launches) and (there or cells.items() <= own.items()):
        return True
    if here and here != there and there[: len(here)] == here:
        return False
    # Launched by both hosts, or by one.
    lost = sorted(name for name, content in own.items() if its.get(name) != content)
    if lost and (here == there or not its) and its.items() <= own.items():
        return True
    # With another receipt: launched there since, or left out with another reason; or it failed here before it had a cell.
    if not here or own.keys() <= {ours.receipt.name}:
        lost = [name for name in lost if name.startswith(_CELL)]
    if lost:
        raise ArtifactError(
            f"{archive}: {ours.path} was measured on both hosts, and {lost[0]} of it is here and not in the archive. Nothing was taken. "
            "Remove that folder here to take the archive's, or leave this archive out."
        )
    return False


def _included(folder: CampaignFolder) -> set[str]:
    """Configurations that the preflight of ``folder`` lets be measured; none where there is no such preflight."""
    status = read_json(folder.preflight_status) if folder.preflight_status.is_file() else None
    decisions = status.get("configs") if isinstance(status, dict) else None
    found = decisions.items() if isinstance(decisions, dict) else ()
    return {
        name
        for name, decision in found
        if isinstance(decision, dict) and decision.get("decision") == "include"
    }


def _is_wrongly_left_out(
    name: str, theirs: dict[str, RunFolder], runs: dict[str, RunFolder], included: set[str]
) -> bool:
    """Whether the archive's run ``name`` is one that another preflight left out than the one here, which lets it be measured.

    Args:
        runs: of the archive and here; a configuration that failed in Phase A is left out of the others, whatever preflight says.
        included: by the preflight here.
    """
    run = theirs[name]
    if _status(run) != "skipped" or run.finished_cells() or run.connector_id not in included:
        return False
    first = runs.get(f"{name.partition('/')[0]}/phase_a")
    return run.phase == "a" or first is None or _status(first) != "failed"


def _status(run: RunFolder) -> Any:
    receipt = read_json(run.receipt) if run.receipt.is_file() else None
    return receipt.get("status") if isinstance(receipt, dict) else None


def _measured(run: RunFolder) -> dict[str, bytes]:
    """What cannot be made again of other files: name -> content."""
    cells = {f"{_CELL}{cell.cell_id}": cell.cell_json for cell in run.finished_cells()}
    wanted = {**cells, run.outputs.name: run.outputs, run.receipt.name: run.receipt}
    return {name: read_whole(path) for name, path in wanted.items() if path.is_file()}


def _clear(root: Path) -> None:
    """What one left that was killed: what it unpacked, and what it had put aside, which belongs back where nothing took its place."""
    for left in root.glob(f"{_TAKEN}*"):
        shutil.rmtree(left, ignore_errors=True)
    for aside in [*root.glob(f".*{_ASIDE}"), *root.glob(f"*/.*{_ASIDE}")]:
        unit = aside.with_name(aside.name[1:].removesuffix(_ASIDE))
        if unit.exists():
            _remove(aside)
        else:
            os.replace(aside, unit)


def _replace(new: Path, old: Path) -> None:
    old.parent.mkdir(parents=True, exist_ok=True)
    aside = old.with_name(f".{old.name}{_ASIDE}")
    if old.exists():
        os.replace(old, aside)
    os.replace(new, old)
    _remove(aside)


def _remove(unit: Path) -> None:
    if unit.is_dir():
        shutil.rmtree(unit)
    else:
        unit.unlink(missing_ok=True)
