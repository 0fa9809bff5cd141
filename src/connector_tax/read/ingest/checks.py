"""The large files of one cell, looked at whole: checksums of all, and the step records made ready.

Nothing here needs the rest of the campaign, so that cells can be looked at in other processes.
"""

from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import bare, sha256_of
from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest.tables import StepRecords, open_steps


@dataclass(frozen=True, slots=True)
class CellFiles:
    """What to look at.

    Attributes:
        expected: name -> SHA-256.
        steps: the file of step records; None where they are not wanted.
        table: where its table belongs.
        connector: whether its launch had one.
    """

    folder: Path
    expected: dict[str, str]
    window: CellWindow
    steps: Path | None
    table: Path
    connector: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found.

    Attributes:
        faults: files that are missing or differ.
        steps: None where there are no step records, or ``faults``.
        unreadable: why the step records cannot be read, else None.
    """

    faults: tuple[Problem, ...]
    steps: StepRecords | None = None
    unreadable: str | None = None


def check_files(files: CellFiles) -> Checked:
    """Checksums first: of records that were edited nothing is read.

    A file's time and size are no proof that it is the same, so every byte is read each time.
    """
    faults = []
    for name, expected in files.expected.items():
        try:
            if sha256_of(files.folder / bare(name, "file")) != expected:
                faults.append(Problem("file_changed", name))
        except FileNotFoundError:
            faults.append(Problem("file_missing", name))
        except ArtifactError as error:
            said = str(error).replace(f"{files.folder}/", "")
            faults.append(Problem("file_unreadable", name, detail=said))
    if faults or files.steps is None or not files.steps.exists():
        return Checked(tuple(faults))
    try:
        sha256 = files.expected.get(files.steps.name) or sha256_of(files.steps)
        records = open_steps(files.steps, sha256, files.window, files.table, connector=files.connector)
        return Checked((), records)
    except ArtifactError as error:
        return Checked((), unreadable=str(error))
