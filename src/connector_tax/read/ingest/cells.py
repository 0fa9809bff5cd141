"""One cell's folder to ``CellData``: what is wrong with its files stands beside what they say."""

from dataclasses import dataclass

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CellFolder, RunFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.documents.cell import CellDocument
from connector_tax.base.documents.receipt import ReceiptCell
from connector_tax.base.errors import ArtifactError
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.read.ingest.belonging import Belonging
from connector_tax.read.ingest.checks import CellFiles, Checked
from connector_tax.read.ingest.requests import read_requests
from connector_tax.read.ingest.samples import Samples, read_samples
from connector_tax.read.ingest.steps import StepRecords


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


@dataclass(frozen=True, slots=True)
class OpenedCell:
    """A cell of which ``cell.json`` alone was read.

    Attributes:
        files: what is to be looked at before the rest is read.
    """

    run: RunFolder
    folder: CellFolder
    document: CellDocument
    files: CellFiles


def open_cell(run: RunFolder, folder: CellFolder, entry: ReceiptCell | None, steps: bool) -> OpenedCell:
    """Read ``cell.json``.

    Raises:
        ArtifactError: it is missing, not JSON, of an unknown version or of another form.
    """
    document = read_cell(folder)
    files = CellFiles(
        folder.path,
        {name: expected.sha256 for name, expected in (entry or document).files.items()},
        document.window,
        folder.engine_step if steps else None,
        # As it was launched; a cell of before launches were described has none to say so.
        document.kv_transfer_config is not None,
    )
    return OpenedCell(run, folder, document, files)


def read_cell_data(opened: OpenedCell, checked: Checked, campaign: Belonging) -> CellData:
    """The rest of a cell, its files having been looked at.

    Raises:
        ArtifactError: its step records cannot be read.
        LookupError, AttributeError, TypeError, ValueError: a file has another form.
    """
    run, folder, document = opened.run, opened.folder, opened.document
    faults = [*campaign.faults(run, folder, document), *checked.faults]
    if folder.requests.name not in document.files:
        faults.append(Problem("file_missing", folder.requests.name))
    requests, wrong = read_requests(folder.requests)
    faults += wrong
    if checked.unreadable is not None and not faults:
        raise ArtifactError(checked.unreadable)
    window = opened.files.window
    return CellData(
        config=run.connector_id,
        phase=run.phase,
        cell_id=folder.cell_id,
        spec=document.spec,
        window=window,
        document=document,
        requests=requests,
        samples=read_samples(folder.metrics, window),
        steps=checked.steps if not faults else None,
        left_out=tuple(faults),
    )
