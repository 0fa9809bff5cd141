"""Numbers that all workers see at once, in a mapped file: no message, no lock, no waiting.

Each worker writes its own cache line only, so nothing is lost; a reader sees a sum that is at most a few hundred
nanoseconds old, which is as exact as an in-flight cap over several processes can be.
"""

import mmap
import os
from pathlib import Path

LINE_BYTES = 64
_INFLIGHT, _TAKEN, _FIELDS = 0, 1, LINE_BYTES // 8


class Counters:
    """In flight now, and samples taken from the schedule so far, by worker."""

    def __init__(self, path: Path, workers: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, LINE_BYTES * workers)
            self._map = mmap.mmap(fd, LINE_BYTES * workers)
        finally:
            os.close(fd)
        self._values = memoryview(self._map).cast("q")
        self._workers = workers

    def reset(self) -> None:
        """Everything to 0; only while no worker runs a cell."""
        for index in range(len(self._values)):
            self._values[index] = 0

    def add_inflight(self, worker: int, change: int) -> None:
        self._values[worker * _FIELDS + _INFLIGHT] += change

    def count_taken(self, worker: int) -> None:
        self._values[worker * _FIELDS + _TAKEN] += 1

    def inflight(self) -> int:
        """Over all workers."""
        if self._workers == 1:
            return self._values[_INFLIGHT]
        return sum(self._values[w * _FIELDS + _INFLIGHT] for w in range(self._workers))

    def taken(self, worker: int) -> int:
        return self._values[worker * _FIELDS + _TAKEN]

    def close(self) -> None:
        self._values.release()
        self._map.close()
