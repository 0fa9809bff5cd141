"""The results of a sweep: folders of its campaigns, and where each of them stands along the axes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.config.sweep import Sweep, SweepCell
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.documents.history import LeftOut
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.opening import printable
from connector_tax.read.track.sources import SWEEP, Place
from connector_tax.sweep.own import fault_of


@dataclass(frozen=True, slots=True)
class Own:
    """Of the campaigns of a sweep.

    Attributes:
        places: of each that has results of its own, by its folder.
        left_out: the others by their folders, as the history names what it leaves out.
    """

    places: Mapping[Path, Place]
    left_out: Mapping[Path, LeftOut]


def own_of(sweep: Sweep, results: Path) -> Own:
    """Results of another campaign, a link to some, and those from before an edit stand in no series."""
    places: dict[Path, Place] = {}
    left_out: dict[Path, LeftOut] = {}
    for cell in sweep.cells:
        folder = results / cell.name
        if why := _why_not(sweep, cell, folder):
            # A link is looked at where it lies, as whoever reads folders does.
            left_out[folder.parent.resolve() / folder.name] = LeftOut(
                path=printable(str(folder)), reason=printable(why)
            )
        else:
            places[folder.resolve()] = Place(
                {
                    # Positions are of one sweep; between those of two, or those and a time, there is no order.
                    SWEEP: sweep.name,
                    **{
                        f"axis {axis}": name
                        for axis, name in cell.entries.items()
                        if axis not in sweep.follow
                    },
                },
                tuple(sweep.axes[axis].index(cell.entries[axis]) for axis in sweep.follow),
            )
    return Own(places, left_out)


def _why_not(sweep: Sweep, cell: SweepCell, folder: Path) -> str:
    """Empty where the folder is for the history to read, which says itself what is damaged or not analysed."""
    if not folder.is_dir():
        return f"it was not started yet: connector-tax sweep {sweep.word} run"
    if folder.is_symlink():
        return "it is a link, which is not followed"
    aggregate = folder / "aggregate.json"
    try:
        fault = fault_of(cell.config, folder, read_aggregate(aggregate)) if aggregate.exists() else None
    except ArtifactError:
        return ""
    except OSError as error:  # it may not be entered
        return f"cannot be read: {error}"
    if fault is None or fault.stands:
        return ""
    return f"{fault.why}; connector-tax sweep {sweep.word} status says what is to do"


def require_results(sweep: Sweep, own: Own, results: Path) -> None:
    """
    Raises:
        ConfigError: no campaign has any of its own.
    """
    if not own.places:
        said = "; ".join(
            f"{Path(out.path).name}: {out.reason}"
            for out in own.left_out.values()
            if "not started" not in out.reason
        )
        raise ConfigError(
            f"{sweep.path}: none of its {len(sweep.cells)} campaigns has results in {results}{f' ({said[:500]})' if said else ''}. "
            f"Measure them first: connector-tax sweep {sweep.word} run"
        )


def across_of(sweep: Sweep, wanted: str | None) -> str:
    """The axis whose entries are the columns of the table: the first that is followed, else the first.

    Raises:
        ConfigError: there is no such axis.
    """
    if wanted is not None and wanted not in sweep.axes:
        raise ConfigError(f"--across {wanted}: {sweep.path} has the axes {', '.join(sweep.axes)}.")
    return wanted or next(iter(sweep.follow), next(iter(sweep.axes)))


def rows_of(sweep: Sweep, across: str) -> list[tuple[str, list[SweepCell | None]]]:
    """Combinations of all other axes in words, and their campaign for each entry of ``across``; None where it is excluded."""
    found: dict[str, dict[str, SweepCell]] = {}
    for cell in sweep.cells:
        words = ", ".join(f"{axis} {name}" for axis, name in cell.entries.items() if axis != across)
        found.setdefault(words, {})[cell.entries[across]] = cell
    return [(words, [own.get(name) for name in sweep.axes[across]]) for words, own in found.items()]
