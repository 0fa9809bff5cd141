"""Which of two states of a run is the later one: the one here, or the one that an archive brought from another host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.launches import read_launches
from connector_tax.base.artifacts.layout import RECEIPT, CampaignFolder, RunFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json
from connector_tax.base.opening import read_whole

_CELL = "cell "
_Launches = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Measured:
    """A run.

    Attributes:
        contents: of what cannot be made again of other files, by name.
        without_cells: whether it has a receipt and nothing else.
        receipt_ns: when its receipt was written, by the clock of that host; 0 without one.
    """

    launches: _Launches
    contents: dict[str, bytes]
    without_cells: bool
    receipt_ns: int = field(compare=False)

    @classmethod
    def of(cls, run: RunFolder) -> "Measured":
        cells = {f"{_CELL}{cell.cell_id}": cell.cell_json for cell in run.finished_cells()}
        wanted = {**cells, run.outputs.name: run.outputs, RECEIPT: run.receipt}
        contents = {name: read_whole(path) for name, path in wanted.items() if path.is_file()}
        written_ns = run.receipt.stat().st_mtime_ns if RECEIPT in contents else 0
        return cls(_launches(run.launches), contents, contents.keys() <= {RECEIPT}, written_ns)

    @property
    def cells(self) -> dict[str, bytes]:
        return {name: content for name, content in self.contents.items() if name.startswith(_CELL)}


def went_on(ours: Measured, theirs: Measured, where: str) -> bool:
    """Whether the run here is the archive's and what was measured since; False where the archive's may take its place.

    Args:
        where: the archive and the run here, for messages.

    Raises:
        ArtifactError: what was measured here would be lost.
    """
    here, there = ours.launches, theirs.launches
    own, its = ours.contents, theirs.contents
    # Without a launch there may be cells of a run that was a guest in another's.
    if _is_newer(here, there) and (there or theirs.cells.items() <= own.items()):
        return True
    if here and here != there and there[: len(here)] == here:
        return False
    # Launched by both hosts, or by one.
    lost = sorted(name for name, content in own.items() if its.get(name) != content)
    if lost and (here == there or not its) and its.items() <= own.items():
        return True
    # Decided anew without a launch: left out for another reason, not needed at other rates, or finished with cells that were there.
    if here == there and lost == [RECEIPT]:
        return ours.receipt_ns > theirs.receipt_ns and ours.cells == theirs.cells
    # With another receipt: launched there since, or left out with another reason; or it failed here before it had a cell.
    if not here or ours.without_cells:
        lost = [name for name in lost if name.startswith(_CELL)]
    if lost:
        raise ArtifactError(
            f"{where} was measured on both hosts, and {lost[0]} of it is here and not in the archive. Nothing was taken. "
            "Remove that folder here to take the archive's, or leave this archive out."
        )
    return False


def has_newer_preflight(folder: CampaignFolder, there: CampaignFolder) -> bool:
    return _is_newer(_launches(folder.preflight_launches), _launches(there.preflight_launches))


def _is_newer(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether there were further launches behind those of ``theirs``."""
    return ours != theirs and ours[: len(theirs)] == theirs


def _launches(file: Path) -> _Launches:
    return [(launch.attempt, launch.started_utc) for launch in read_launches(file)]


def wrongly_left_out(
    folder: CampaignFolder, ours: Mapping[str, RunFolder], theirs: Mapping[str, RunFolder]
) -> set[str]:
    """Of ``theirs``, an archive's runs, those that another preflight left out than the one in ``folder``, which lets them be measured.

    A configuration that failed in Phase A is left out of the others, whatever preflight says.
    """
    included, runs = _included(folder), {**ours, **theirs}
    found = set()
    for name, run in theirs.items():
        if run.connector_id in included and _status(run) == "skipped" and not run.finished_cells():
            first = runs.get(f"{name.partition('/')[0]}/phase_a")
            if run.phase == "a" or first is None or _status(first) != "failed":
                found.add(name)
    return found


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


def _status(run: RunFolder) -> Any:
    receipt = read_json(run.receipt) if run.receipt.is_file() else None
    return receipt.get("status") if isinstance(receipt, dict) else None
