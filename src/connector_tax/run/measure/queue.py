"""The engine's queue while a cell runs, and after one that was ended behind it."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from connector_tax.base.records.host import Sample
from connector_tax.run.sampler.sampler import scrape_once

# vLLM lets go of a request whose client is gone within a step or two; of 256 within seconds.
IDLE_WITHIN_S = 60.0
IDLE_POLL_S = 0.5


class QueueTail:
    """Samples that the sampler has written since it was asked last.

    Each is (monotonic ns, requests waiting in the engine). A line that is still being written is read when it is whole; a sample
    that failed, or that is torn, is left out.
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
            try:
                sample = msgspec.json.decode(line, type=Sample)
            except ValueError:  # of a sampler that was killed, or whose disk was full, in the middle of it
                continue
            waiting = (sample.values or {}).get("num_requests_waiting") if sample.ok else None
            if waiting is not None:
                yield sample.t_ns, waiting


def wait_idle(base_url: str) -> bool:
    """Until the engine has no request left; False where it still has some after ``IDLE_WITHIN_S``, or does not answer."""
    deadline = time.monotonic() + IDLE_WITHIN_S
    while time.monotonic() < deadline:
        try:
            values = scrape_once(base_url)
        except OSError:
            time.sleep(IDLE_POLL_S)  # slow behind such a queue, or dead, which its cell says
            continue
        if not values.get("num_requests_running") and not values.get("num_requests_waiting"):
            return True
        time.sleep(IDLE_POLL_S)
    return False
