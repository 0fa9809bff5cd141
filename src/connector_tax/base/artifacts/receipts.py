"""``receipt.json``: the final state of one (configuration, phase), written last and atomically.

It is the only Snakemake output of a measurement. It holds no time of writing, so that a resume that measured
nothing writes the same bytes.
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

# Durations of launches: one entry per attempt, so that interruptions and resumes can be added up.


@contextmanager
def timed_launch(file: Path, attempt: int | None = None) -> Iterator[Callable[[], None]]:
    """Record the time from before the engine's start until it is gone, however it ends.

    Args:
        attempt: None: one more than earlier attempts.

    Yields:
        A function to call when the engine is told to end.
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
    """Add the reason of failure to the last launch; return how many launches in a row failed for it.

    Digits in reasons do not count: pids, ports and free bytes differ.
    """
    *earlier, last = read_launches(file)
    found = (*earlier, msgspec.structs.replace(last, failure=cause))
    write_json(file, Launches(launches=found))
    causes = [re.sub(r"\d+", "0", x.failure) if isinstance(x.failure, str) else None for x in found]
    return sum(1 for _ in takewhile(lambda other: other == causes[-1], reversed(causes)))


def read_launches(file: Path) -> tuple[Launch, ...]:
    """Return the launches, oldest first; empty if none was timed.

    Raises:
        ArtifactError: the file is not JSON, or of another form.
    """
    return read_document(file, Launches).launches if file.is_file() else ()


def elapsed_s(launches: tuple[Launch, ...]) -> float:
    """Return the total over the launches that ended."""
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
    """Write the receipt of ``run``, whose named cells must be finished.

    Raises:
        ArtifactError: a named cell is missing.
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
    """Read a finished run's receipt.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form.
    """
    return receipt_of(read_json(run.receipt), str(run.receipt))
