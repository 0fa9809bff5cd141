"""``metrics_*.jsonl`` of a cell from its beginning to its end, sample by sample, for whoever draws them."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.files import each_line_of
from connector_tax.base.records.host import HostReading
from connector_tax.read.ingest.host import host_reading
from connector_tax.read.ingest.samples import MOST_VALUE


@dataclass(frozen=True, slots=True)
class Moment:
    """One sample.

    Attributes:
        running, waiting: requests; None where the engine did not say.
        host: None where the sample holds no reading of the host.
    """

    t_ns: int
    running: float | None
    waiting: float | None
    host: HostReading | None


def read_timeline(path: Path) -> list[Moment]:
    """In order of time. A line that is no sample is left out here; ``read_samples`` counts it.

    Raises:
        ArtifactError: the file cannot be opened or unpacked.
    """
    found = []
    if path.exists():
        for line in each_line_of(path):
            try:
                row = msgspec.json.decode(line.decode("utf-8", errors="replace"))
                t_ns = int(row["t_ns"])
            except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
                continue
            values = row.get("values") if row.get("ok") else None
            running, waiting = (_number(values, f"num_requests_{what}") for what in ("running", "waiting"))
            found.append(Moment(t_ns, running, waiting, host_reading(row)))
    return sorted(found, key=lambda moment: moment.t_ns)


def _number(values: object, name: str) -> float | None:
    found = values.get(name) if isinstance(values, dict) else None
    return float(found) if isinstance(found, int | float) and abs(found) < MOST_VALUE else None
