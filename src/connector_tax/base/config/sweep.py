"""A sweep: one YAML file to a matrix of campaigns, each an ordinary config that is checked as any other.

An entry of an axis is a set of overrides of the base campaign. A mistake is told with its place: the entry where it is an entry's, else the
combination.
"""

import copy
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.base.config.checked import PROJECT_ROOT, checked, read_yaml
from connector_tax.base.config.load import parse_campaign
from connector_tax.base.config.model import CampaignConfig
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.seeds import stream

# More would be years on a GPU, and is most likely an axis too many.
MOST_CAMPAIGNS = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an axis.

    Attributes:
        place: in the file, for messages.
        overrides: keys of a campaign file, nested as there.
    """

    axis: str
    name: str
    place: str
    overrides: Foreign


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One campaign of the matrix.

    Attributes:
        entries: axis -> name of its entry.
        mapping: the campaign file; references to the environment stand in it as they were written.
        config: the same, checked.
    """

    name: str
    entries: Mapping[str, str]
    mapping: Foreign
    config: CampaignConfig

    @property
    def words(self) -> str:
        """``release v031, model small``."""
        return ", ".join(f"{axis} {name}" for axis, name in self.entries.items())


@dataclass(frozen=True, slots=True)
class Sweep:
    """
    Attributes:
        path: of the sweep's own file.
        axes: axis -> names of its entries, in the order of the file.
        cells: in the order of the file, the last axis fastest.
        order: the same as they are measured.
        excluded: combinations that are left out.
    """

    name: str
    path: Path
    base: str
    axes: Mapping[str, tuple[str, ...]]
    cells: tuple[SweepCell, ...]
    order: tuple[SweepCell, ...]
    excluded: int

    @property
    def word(self) -> str:
        """Its file as a shell takes it, for commands that somebody copies."""
        return shlex.quote(str(self.path))


def load_sweep(path: Path) -> Sweep:
    """Read a sweep, and check every campaign that it makes.

    Raises:
        ConfigError: unreadable, no valid sweep, or one of its campaigns is not valid; names the place.
    """
    where = str(path)
    value = checked(read_yaml(path, "config/sweep.yaml"), "sweep", where)
    base = read_yaml(PROJECT_ROOT / value["base"])
    parse_campaign(base, where=value["base"])
    axes = {axis: _entries(axis, entries, where) for axis, entries in value["axes"].items()}
    _check_axes(value, axes, where)
    combinations = list(_combinations(value, axes, where))
    _check_names(value["sweep"], combinations, where)
    cells = tuple(_cell(value["sweep"], base, combination, where) for combination in combinations)
    drawn = stream(value["seed"], "sweep", value["sweep"]).permutation(len(cells))
    return Sweep(
        name=value["sweep"],
        path=path,
        base=value["base"],
        axes={axis: tuple(e.name for e in entries) for axis, entries in axes.items()},
        cells=cells,
        order=tuple(cells[k] for k in drawn) if value["order"] == "seeded" else cells,
        excluded=_size(axes) - len(cells),
    )


def _entries(axis: str, entries: Sequence[Foreign], where: str) -> tuple[Entry, ...]:
    found: dict[str, Entry] = {}
    for k, entry in enumerate(entries):
        name, place = entry["name"], f"{where}: axes.{axis}[{k}]"
        if name in found:
            raise ConfigError(
                f"{place}.name: {name!r} is the name of {found[name].place} as well; give each its own."
            )
        if "campaign" in entry["set"]:
            raise ConfigError(
                f"{place}.set.campaign: the name of a campaign is made of the sweep's and its entries'. Leave it out."
            )
        found[name] = Entry(axis, name, f"axes.{axis}[{k}]", entry["set"])
    return tuple(found.values())


def _check_axes(value: Foreign, axes: Mapping[str, tuple[Entry, ...]], where: str) -> None:
    """That ``exclude`` names axes and entries that there are."""
    for k, rule in enumerate(value["exclude"]):
        for axis, names in rule.items():
            if axis not in axes:
                raise ConfigError(
                    f"{where}: exclude[{k}]: {axis!r} is no axis of this sweep ({', '.join(axes)})."
                )
            known = [e.name for e in axes[axis]]
            for name in _listed(names):
                if name not in known:
                    raise ConfigError(
                        f"{where}: exclude[{k}].{axis}: {name!r} is no entry of that axis ({', '.join(known)})."
                    )
    if (size := _size(axes)) > 100 * MOST_CAMPAIGNS:
        raise _too_many(size, where)


def _combinations(
    value: Foreign, axes: Mapping[str, tuple[Entry, ...]], where: str
) -> Iterator[tuple[Entry, ...]]:
    kept = [c for c in itertools.product(*axes.values()) if not any(_fits(r, c) for r in value["exclude"])]
    if not kept:
        raise ConfigError(
            f"{where}: exclude: leaves none of {_size(axes)} campaigns. Leave out fewer combinations."
        )
    if len(kept) > MOST_CAMPAIGNS:
        raise _too_many(len(kept), where)
    for combination in kept:
        _check_overlaps(combination, where)
        yield combination


def _size(axes: Mapping[str, tuple[Entry, ...]]) -> int:
    size = 1
    for entries in axes.values():
        size *= len(entries)
    return size


def _too_many(size: int, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: axes: make {size} campaigns; {MOST_CAMPAIGNS} at most. Take fewer entries, or exclude combinations."
    )


def _fits(rule: Foreign, combination: Sequence[Entry]) -> bool:
    names = {e.axis: e.name for e in combination}
    return all(names[axis] in _listed(wanted) for axis, wanted in rule.items())


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _check_overlaps(combination: Sequence[Entry], where: str) -> None:
    """Refuse a key that two axes set to different values: which one holds should not depend on the order of axes."""
    seen: dict[tuple[str, ...], tuple[Entry, Any]] = {}
    for entry in combination:
        for key, leaf in _leaves(entry.overrides):
            for other_key, (other, other_leaf) in seen.items():
                shorter = min(len(key), len(other_key))
                if key[:shorter] != other_key[:shorter] or (
                    key == other_key and not unlike(leaf, other_leaf)
                ):
                    continue
                if entry is not other:
                    raise ConfigError(
                        f"{where}: {entry.place}.set.{'.'.join(key)}: {other.place}.set.{'.'.join(other_key)} sets it as well, to another "
                        "value. Give a key to one axis alone."
                    )
            seen[key] = (entry, leaf)


def unlike(a: Any, b: Any) -> bool:
    """Whether two values of a campaign file are two: ``true``, ``1`` and ``1.0`` are one to Python, and three to an engine's command line and to a hash."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() != b.keys() or any(unlike(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) != len(b) or any(map(unlike, a, b))
    return type(a) is not type(b) or bool(a != b)


def _leaves(value: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and (value or not key):
        for name, part in value.items():
            yield from _leaves(part, (*key, str(name)))
    else:
        yield key, value


def _check_names(sweep: str, combinations: Sequence[Sequence[Entry]], where: str) -> None:
    """Names are compared without case, as some file systems do."""
    seen: dict[str, Sequence[Entry]] = {}
    for combination in combinations:
        name = _name(sweep, combination)
        other = seen.setdefault(name.lower(), combination)
        if other is not combination:
            raise ConfigError(
                f"{where}: axes: two campaigns have one name, {name}: {_words(other)}, and {_words(combination)}. Rename an entry."
            )


def _name(sweep: str, combination: Sequence[Entry]) -> str:
    return "-".join([sweep, *(e.name for e in combination)])


def _words(combination: Sequence[Entry]) -> str:
    return ", ".join(f"{e.axis} {e.name}" for e in combination)


def _cell(sweep: str, base: Foreign, combination: Sequence[Entry], where: str) -> SweepCell:
    name = _name(sweep, combination)
    mapping = _with({**base, "campaign": name}, *combination)
    try:
        config = parse_campaign(mapping, where=f"{where}: campaign {name} ({_words(combination)})")
    except ConfigError:
        for entry in combination:
            # Whose mistake it is: an entry's that makes one of the base alone, else the combination's.
            parse_campaign(_with(base, entry), where=f"{where}: {entry.place} ({entry.name}), set")
        raise
    return SweepCell(name, {e.axis: e.name for e in combination}, mapping, config)


def _with(base: Foreign, *entries: Entry) -> Foreign:
    found = copy.deepcopy(dict(base))
    for entry in entries:
        _merge(found, entry.overrides)
    return found


def _merge(into: dict[str, Any], overrides: Foreign) -> None:
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)
