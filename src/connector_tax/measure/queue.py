"""The engine's queue while a cell runs: the sampler's file, read as it grows."""

from collections.abc import Iterator
from pathlib import Path

import msgspec


class QueueTail:
    """Samples that the sampler has written since it was asked last.

    Each is (monotonic ns, requests waiting in the engine). A line that is still being written is read when it is whole; a sample
    that failed is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # What earlier cells of the launch left there is not of this one.
        self._offset = path.stat().st_size if path.exists() else 0

    def __call__(self) -> Iterator[tuple[int, float]]:
        if not self._path.exists():
            return
        with open(self._path, "rb") as handle:
            handle.seek(self._offset)
            lines = handle.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            row = msgspec.json.decode(line)
            waiting = row["values"].get("num_requests_waiting") if row.get("ok") else None
            if waiting is not None:
                yield int(row["t_ns"]), float(waiting)
