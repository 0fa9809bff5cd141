"""``receipt.json``: the last word of one (configuration, phase), written last and atomically.

It is the only Snakemake output of a measurement. It holds no time of writing: rewriting it after a
resume that measured nothing gives the same bytes.
"""

from dataclasses import dataclass
from typing import Any, Literal

from connector_tax.base.artifacts.cells import file_entry, read_cell
from connector_tax.base.artifacts.launches import Launch, read_launches
from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json, to_json, write_text_if_changed

SCHEMA = 1
ReceiptStatus = Literal["measured", "skipped", "not_needed", "failed"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What ``receipt.json`` says; ``cells`` as written, one dictionary per cell.

    Attributes:
        launches: how long each took; none in receipts from before they were timed.
    """

    status: ReceiptStatus
    reason: str | None
    campaign: str
    connector: str
    phase: str
    step_timing_available: bool
    engine: dict[str, Any]
    cells: tuple[dict[str, Any], ...]
    launches: tuple[Launch, ...] = ()


def write_receipt(
    run: RunFolder,
    *,
    campaign: str,
    status: ReceiptStatus,
    reason: str | None = None,
    cell_ids: list[str] | None = None,
    step_timing_available: bool = False,
    engine: dict[str, Any] | None = None,
) -> None:
    """Write the receipt of ``run``; the cells named must be finished.

    Raises:
        ArtifactError: a cell named is not there.
    """
    cells = []
    for cell_id in cell_ids or []:
        folder = run.cell(cell_id)
        document = read_cell(folder)
        cells.append(
            {
                "cell_id": cell_id,
                "spec_hash": document["spec_hash"],
                "verdict": document["verdict"],
                "reasons": document["reasons"],
                "files": {**document["files"], "cell.json": file_entry(folder.cell_json)},
            }
        )
    value = {
        "schema": SCHEMA,
        "status": status,
        "reason": reason,
        "campaign": campaign,
        "connector": run.connector_id,
        "phase": run.phase,
        "step_timing_available": step_timing_available,
        "engine": engine or {},
        "launches": read_launches(run.launches),
        "cells": cells,
    }
    write_text_if_changed(run.receipt, to_json(value))


def read_receipt(run: RunFolder) -> Receipt:
    """The receipt of a finished run.

    Raises:
        ArtifactError: missing, not JSON, or of another schema.
    """
    value = read_json(run.receipt)
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ArtifactError(
            f"{run.receipt}: not a receipt of schema {SCHEMA}. Remove it and start again; cells are kept."
        )
    return Receipt(
        status=value["status"],
        reason=value["reason"],
        campaign=value["campaign"],
        connector=value["connector"],
        phase=value["phase"],
        step_timing_available=value["step_timing_available"],
        engine=value["engine"],
        cells=tuple(value["cells"]),
        launches=tuple(value.get("launches") or ()),
    )
