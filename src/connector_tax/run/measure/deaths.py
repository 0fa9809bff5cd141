"""How often an engine died in a cell of a run that is not finished; kept on disk, since each death ends a launch."""

import os
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_text
from connector_tax.base.opening import read_whole
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.units import is_number


@dataclass(frozen=True, slots=True)
class Death:
    """An engine that died while a cell asked it; ``cause`` in the words of ``run.engine.root_cause``."""

    phase: Phase
    cell_id: str
    cause: str


def deaths_file(run: RunFolder, cell: CellSpec) -> Path:
    return run.cells / f".{cell.cell_id}.deaths"


def deaths(run: RunFolder, cell: CellSpec) -> int:
    """
    Raises:
        ArtifactError: somebody edited the file.
    """
    path = deaths_file(run, cell)
    if not os.path.lexists(path):
        return 0
    said = read_whole(path).decode(errors="replace")
    if not is_number(said):
        raise ArtifactError(f"{path}: holds no number. Remove it; the cell then has two launches again.")
    return int(said)


def count_death(run: RunFolder, cell: CellSpec) -> None:
    write_text(deaths_file(run, cell), str(deaths(run, cell) + 1))
