"""How long launches took: one entry per try, so that what an interruption or a resume adds up to can be told.

``launches.json`` lies beside the cells of a run, and in ``preflight/``. An entry is written when its launch begins and again
when it ends; one whose process was killed has no ``elapsed_s``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from connector_tax.base.clock import now_ns, read_clock_pair
from connector_tax.base.documents.reading import read_document
from connector_tax.base.documents.receipt import Launch, Launches
from connector_tax.base.files import write_json
from connector_tax.base.units import NS_PER_S


@contextmanager
def timed_launch(file: Path, attempt: int | None = None) -> Iterator[None]:
    """From before the engine is started until it is gone, however that ends.

    Args:
        attempt: which try of this run it is; None counts those before.
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
    try:
        yield
    finally:
        ended = msgspec.structs.replace(entry, elapsed_s=round((now_ns() - begun_ns) / NS_PER_S, 3))
        write_json(file, Launches(launches=(*earlier, ended)))


def read_launches(file: Path) -> tuple[Launch, ...]:
    """Oldest first; empty where none was timed.

    Raises:
        ArtifactError: the file is not JSON, or of another form.
    """
    return read_document(file, Launches).launches if file.is_file() else ()


def elapsed_s(launches: tuple[Launch, ...]) -> float:
    """Of those that ended."""
    return sum(x.elapsed_s for x in launches if x.elapsed_s is not None)
