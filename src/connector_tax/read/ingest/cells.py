"""One cell's folder to ``CellData``: what is wrong with its files stands beside what they say."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CellFolder, RunFolder
from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.documents.cell import CellDocument, FileEntry
from connector_tax.base.documents.receipt import ReceiptCell
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import sha256_of
from connector_tax.base.opening import bare
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.read.ingest.belonging import Belonging
from connector_tax.read.ingest.requests import read_requests
from connector_tax.read.ingest.samples import Samples, read_samples
from connector_tax.read.ingest.steps import StepRecords, open_steps

# What a file of another form than expected makes its readers raise.
UNREADABLE = (ArtifactError, LookupError, AttributeError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class CellData:
    """One finished cell.

    Attributes:
        left_out: why the files keep it out of the statistics; each also stands in ``problems``.
        off: evidence that its connector was off.
        steps: read when asked for, one cell at a time, since they are large; None where there are none.
    """

    config: str
    phase: str
    cell_id: str
    spec: CellSpec
    window: CellWindow
    document: CellDocument
    requests: list[RequestRecord]
    samples: Samples
    steps: StepRecords | None
    left_out: tuple[Problem, ...] = ()
    off: tuple[Problem, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it may enter the statistics."""
        return not self.left_out and self.document.verdict == "valid"

    @property
    def reasons(self) -> tuple[Problem, ...]:
        """Why it may not: what was found while it was measured comes first."""
        measured = (Problem("invalid", detail=reason) for reason in self.document.reasons)
        return (*measured, *self.off, *self.left_out)


def read_cell_data(
    place: tuple[RunFolder, CellFolder, ReceiptCell | None], campaign: Belonging, steps: bool
) -> CellData | Problem:
    """Return what the files of a cell say; a problem where they say nothing. Cells can be read in other processes.

    Args:
        place: the cell, and how its receipt lists it; None where there is no receipt.
        steps: whether step records are wanted.
    """
    run, folder, entry = place
    try:
        document = read_cell(folder)
        faults = campaign.faults(run, folder, document) + _changed_files(folder, (entry or document).files)
        if folder.requests.name not in document.files:
            faults.append(Problem("file_missing", folder.requests.name))
        requests, wrong = read_requests(folder.requests)
        faults += wrong
        records = None
        if steps and not faults and folder.engine_step.exists():
            # As it was launched; a cell of before launches were described has none to say so.
            connector = document.kv_transfer_config is not None
            records = open_steps(folder.engine_step, document.window, connector=connector)
        return CellData(
            config=run.connector_id,
            phase=run.phase,
            cell_id=folder.cell_id,
            spec=document.spec,
            window=document.window,
            document=document,
            requests=requests,
            samples=read_samples(folder.metrics, document.window),
            steps=records,
            left_out=tuple(faults),
        )
    except UNREADABLE as error:
        return unread(folder.path, error)


def _changed_files(folder: CellFolder, files: Mapping[str, FileEntry]) -> list[Problem]:
    """A file's time and size are no proof that it is the same, so every byte is read each time."""
    faults = []
    for name, expected in files.items():
        try:
            if sha256_of(folder.path / bare(name, "file")) != expected.sha256:
                faults.append(Problem("file_changed", name))
        except FileNotFoundError:
            faults.append(Problem("file_missing", name))
        except ArtifactError as error:
            said = str(error).replace(f"{folder.path}/", "")
            faults.append(Problem("file_unreadable", name, detail=said))
    return faults


def unread(path: Path, error: Exception, code: ProblemCode = "unreadable") -> Problem:
    """The error without the path that is the subject; a missing key says only its name."""
    said = f"no {error}" if isinstance(error, KeyError) else str(error)
    return Problem(code, str(path), detail=said.removeprefix(f"{path}: ").replace(f"{path}/", ""))
