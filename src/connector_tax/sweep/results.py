"""The results of a sweep: folders of its campaigns, and where each of them stands along the axes."""

from collections.abc import Sequence
from pathlib import Path

from connector_tax.base.config.sweep import Sweep, SweepCell
from connector_tax.base.documents.history import LeftOut
from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import printable
from connector_tax.read.track.sources import Place


def places_of(sweep: Sweep, results: Path) -> dict[Path, Place]:
    """Of each campaign that has a folder, by that folder."""
    return {
        (results / cell.name).resolve(): Place(
            {f"axis {axis}": name for axis, name in cell.entries.items() if axis not in sweep.follow},
            tuple(sweep.axes[axis].index(cell.entries[axis]) for axis in sweep.follow),
        )
        for cell in sweep.cells
        if (results / cell.name).is_dir()
    }


def not_started(sweep: Sweep, results: Path) -> tuple[LeftOut, ...]:
    """Campaigns without a folder, as the history names what it leaves out."""
    return tuple(
        LeftOut(
            path=printable(str(results / cell.name)),
            reason=printable(f"it was not started yet: connector-tax sweep {sweep.path} run"),
        )
        for cell in sweep.cells
        if not (results / cell.name).is_dir()
    )


def require_results(sweeps: Sequence[Sweep], results: Path) -> None:
    """
    Raises:
        ConfigError: no campaign has any.
    """
    for sweep in sweeps:
        if not places_of(sweep, results):
            raise ConfigError(
                f"{sweep.path}: none of its {len(sweep.cells)} campaigns has results in {results}. Measure them first: "
                f"connector-tax sweep {sweep.path} run"
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
