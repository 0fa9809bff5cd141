"""``receipt.json``: the last word of one (configuration, phase), written last and atomically.

It is the only Snakemake output of a measurement. It holds no time of writing: rewriting it after a
resume that measured nothing gives the same bytes.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import msgspec
from msgspec import UNSET

from connector_tax.base.artifacts.cells import file_entry, read_cell
from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.documents.receipt import (
    Launch,
    Launches,
    Receipt,
    ReceiptCell,
    ReceiptStatus,
    receipt_of,
)
from connector_tax.base.files import read_document, read_json, to_json, write_json, write_text_if_changed
from connector_tax.base.timer import now_ns, read_clock_pair
from connector_tax.base.units import NS_PER_S

# How long launches took: one entry per try, so that what an interruption or a resume adds up to can be told.


@contextmanager
def timed_launch(file: Path, attempt: int | None = None) -> Iterator[Callable[[], None]]:
    """From before the engine is started until it is gone, however that ends.

    Args:
        attempt: which try of this run it is; None counts those before.

    Yields:
        To be called when the engine is told to end.
    """
    earlier = read_launches(file)
    begun_ns = now_ns()
    started = datetime.fromtimestamp(read_clock_pair().utc_ns / NS_PER_S, UTC)
    entry = Launch(
        attempt=attempt or len(earlier) + 1,
        started_utc=started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        elapsed_s=None,
    )
    write_json(file, Launches(launches=(*earlier, entry)))
    told_ns: list[int] = []
    try:
        yield lambda: told_ns.append(now_ns())
    finally:
        ended_ns = now_ns()
        ended = msgspec.structs.replace(
            entry,
            elapsed_s=round((ended_ns - begun_ns) / NS_PER_S, 3),
            ending_s=round((ended_ns - told_ns[0]) / NS_PER_S, 3) if told_ns else UNSET,
        )
        write_json(file, Launches(launches=(*earlier, ended)))


def write_failure(file: Path, cause: str) -> int:
    """Add to the last launch why it failed; returns how many at the end of the file failed for the same
    cause, this one among them.

    Numbers may differ: of processes, of ports, of bytes that were free.
    """
    *earlier, last = read_launches(file)
    found = (*earlier, msgspec.structs.replace(last, failure=cause))
    write_json(file, Launches(launches=found))
    causes = [re.sub(r"\d+", "0", x.failure) if isinstance(x.failure, str) else None for x in found]
    return sum(1 for _ in takewhile(lambda other: other == causes[-1], reversed(causes)))


def read_launches(file: Path) -> tuple[Launch, ...]:
    """Oldest first; empty where none was timed.

    Raises:
        ArtifactError: the file is not JSON, or of another form.
    """
    return read_document(file, Launches).launches if file.is_file() else ()


def elapsed_s(launches: tuple[Launch, ...]) -> float:
    """Of those that ended."""
    return sum(x.elapsed_s for x in launches if x.elapsed_s is not None)


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
