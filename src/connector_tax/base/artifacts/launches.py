"""How long launches took: one entry per try, so that what an interruption or a resume adds up to can be told.

``launches.json`` lies beside the cells of a run, and in ``preflight/``. An entry is written when its launch begins and again
when it ends; one whose process was killed has no ``elapsed_s``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from connector_tax.base.clock import now_ns, read_clock_pair
from connector_tax.base.files import read_json, write_json
from connector_tax.base.units import NS_PER_S

SCHEMA = 1
Launch = dict[str, Any]


@contextmanager
def timed_launch(file: Path, attempt: int | None = None) -> Iterator[None]:
    """From before the engine is started until it is gone, however that ends.

    Args:
        attempt: which try of this run it is; None counts those before.
    """
    earlier = read_launches(file)
    begun_ns = now_ns()
    started = datetime.fromtimestamp(read_clock_pair().utc_ns / NS_PER_S, UTC)
    entry: Launch = {
        "attempt": attempt or len(earlier) + 1,
        "started_utc": started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "elapsed_s": None,
    }
    _write(file, [*earlier, entry])
    try:
        yield
    finally:
        _write(file, [*earlier, {**entry, "elapsed_s": round((now_ns() - begun_ns) / NS_PER_S, 3)}])


def read_launches(file: Path) -> list[Launch]:
    """Oldest first; empty where none was timed.

    Raises:
        ArtifactError: the file is not JSON.
    """
    return list(read_json(file)["launches"]) if file.is_file() else []


def elapsed_s(launches: list[Launch]) -> float:
    """Of those that ended."""
    return sum(float(x["elapsed_s"]) for x in launches if x["elapsed_s"] is not None)


def _write(file: Path, launches: list[Launch]) -> None:
    write_json(file, {"schema": SCHEMA, "launches": launches})
