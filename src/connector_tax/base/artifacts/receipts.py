"""``receipt.json``: the last word of one (configuration, phase), written last and atomically.

It is the only Snakemake output of a measurement. It holds no time of writing: rewriting it after a
resume that measured nothing gives the same bytes.
"""

from connector_tax.base.artifacts.cells import file_entry, read_cell
from connector_tax.base.artifacts.launches import read_launches
from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.documents.receipt import Receipt, ReceiptCell, ReceiptStatus, receipt_of
from connector_tax.base.files import read_json, to_json, write_text_if_changed

__all__ = ["Receipt", "ReceiptStatus", "read_receipt", "write_receipt"]


def write_receipt(
    run: RunFolder,
    *,
    campaign: str,
    status: ReceiptStatus,
    reason: str | None = None,
    cell_ids: list[str] | None = None,
    step_timing_available: bool = False,
    engine: EngineIdentity | None = None,
) -> None:
    """Write the receipt of ``run``; the cells named must be finished.

    Raises:
        ArtifactError: a cell named is not there.
    """
    receipt = Receipt(
        status=status,
        reason=reason,
        campaign=campaign,
        connector=run.connector_id,
        phase=run.phase,
        step_timing_available=step_timing_available,
        engine=engine,
        launches=read_launches(run.launches),
        cells=tuple(_cell(run, cell_id) for cell_id in cell_ids or ()),
    )
    write_text_if_changed(run.receipt, to_json(receipt))


def _cell(run: RunFolder, cell_id: str) -> ReceiptCell:
    folder = run.cell(cell_id)
    document = read_cell(folder)
    return ReceiptCell(
        cell_id=cell_id,
        spec_hash=document.spec_hash,
        verdict=document.verdict,
        reasons=document.reasons,
        files={**document.files, "cell.json": file_entry(folder.cell_json)},
    )


def read_receipt(run: RunFolder) -> Receipt:
    """The receipt of a finished run.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form.
    """
    return receipt_of(read_json(run.receipt), str(run.receipt))
