"""How often an engine died in a cell of a run that is not finished; kept on disk, since each death ends a launch."""

from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.files import write_text
from connector_tax.base.records.cell import CellSpec, Phase


@dataclass(frozen=True, slots=True)
class Death:
    """An engine that died while a cell asked it; ``cause`` in the words of ``run.engine.root_cause``."""

    phase: Phase
    cell_id: str
    cause: str


def deaths_file(run: RunFolder, cell: CellSpec) -> Path:
    return run.cells / f".{cell.cell_id}.deaths"


def deaths(run: RunFolder, cell: CellSpec) -> int:
    path = deaths_file(run, cell)
    return int(path.read_text()) if path.exists() else 0


def count_death(run: RunFolder, cell: CellSpec) -> None:
    write_text(deaths_file(run, cell), str(deaths(run, cell) + 1))
