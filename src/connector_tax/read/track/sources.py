"""Folders to campaigns in order of time; what cannot be read is left out with its reason, and the others are tracked."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from connector_tax.base.documents.history import LeftOut
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.opening import printable
from connector_tax.read.compare.changes import Side
from connector_tax.read.compare.comparison import read_side
from connector_tax.read.compare.context import identity

AGGREGATE, CAMPAIGN = "aggregate.json", "campaign.json"
# Among the facts of a campaign's place.
SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a campaign stands in a sweep.

    Attributes:
        facts: entries of the axes that keep series apart, in words.
        position: of its entries along the axes that are followed.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    position: tuple[int, ...] = ()


NOWHERE = Place()
_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def read_campaigns(
    folders: Sequence[Path], places: Mapping[Path, Place] | None = None, without: Container[Path] = ()
) -> tuple[list[Side], list[LeftOut]]:
    """
    Args:
        folders: each a campaign's, or one with folders of campaigns in it.
        places: of campaigns of a sweep, by their resolved folder; these are in order of the axes that are followed, then of time.
        without: campaigns that are passed over.

    Raises:
        ConfigError: no such folder, or none of them holds a campaign that can be read.
    """
    sides: list[Side] = []
    left_out: list[LeftOut] = []
    every = dict.fromkeys(found for folder in folders for found in _campaigns_in(folder))
    for path in (found for found in every if found not in without):
        if path.is_symlink():
            left_out.append(
                LeftOut(
                    path=printable(str(path)),
                    reason="it is a link, which is not followed: name the folder it leads to",
                )
            )
            continue
        if not (path / AGGREGATE).exists():
            left_out.append(
                LeftOut(
                    path=printable(str(path)),
                    reason="it is not analysed: connector-tax analyze makes aggregate.json",
                )
            )
            continue
        try:
            sides.append(read_side(path.name, path))
        except ArtifactError as error:
            left_out.append(LeftOut(path=printable(str(path)), reason=printable(str(error))))
    known = places or {}
    sides.sort(key=lambda side: (known.get(side.path, NOWHERE).position, when(side), str(side.path)))
    kept: dict[tuple[object, ...], Side] = {}
    # Of a campaign and its copies the one that stands in a sweep.
    for side in sorted(sides, key=lambda side: side.path not in known):
        first = kept.setdefault(identity(side), side)
        if first is not side:
            left_out.append(
                LeftOut(
                    path=printable(str(side.path)),
                    reason=printable(f"it is the campaign of {first.path} once more"),
                )
            )
    if not kept:
        reasons = "".join(f" {found.path}: {found.reason}." for found in left_out[:3])
        raise ConfigError(
            f"{', '.join(map(str, folders))}: no campaign that can be read.{reasons} Wanted are folders with an {AGGREGATE}, or "
            "folders of such folders."
        )
    return [side for side in sides if kept[identity(side)] is side], left_out


def when(side: Side) -> str:
    """Of the campaign's first start: to the second, or the date where it does not say."""
    created = side.aggregate.provenance.created_utc
    return created if created is not None and _UTC.fullmatch(created) else side.aggregate.date


def _campaigns_in(folder: Path) -> list[Path]:
    """Links among them, too, which nobody follows."""
    try:
        found = folder.is_dir()
    except OSError as error:  # a name that is too long
        raise ConfigError(
            f"{printable(str(folder), 300)}: {error.strerror}. Wanted is a campaign's folder."
        ) from error
    if not found:
        raise ConfigError(
            f"{printable(str(folder))}: no such folder. Wanted is a campaign's folder, or one with folders of campaigns in it."
        )
    folder = folder.resolve()  # one that somebody names may be a link; those inside are not followed
    if _is_campaign(folder):
        return [folder]
    return [p for p in sorted(folder.iterdir()) if p.is_dir() and _is_campaign(p)]


def _is_campaign(folder: Path) -> bool:
    return any((folder / name).exists() for name in (AGGREGATE, CAMPAIGN))
