"""What a cell is watched with while it runs, and what is kept of it beside its records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from connector_tax.run.loadgen.messages import Ended

# Asked while a cell runs: (monotonic ns, requests waiting in the engine) of samples since it was asked last.
Queue = Callable[[], Iterable[tuple[int, float]]]


def unseen() -> Iterable[tuple[int, float]]:
    """Nobody samples the engine's queue, so no cell is ended for it."""
    return ()


class Watcher(Protocol):
    """Told how a cell is going, on the coordinator's thread."""

    def ended(self, request: Ended) -> None: ...

    def tick(self, sent: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Observe:
    """What is kept beside the records: every token's time, a log of every event. Both cost. ``watcher`` sees requests end."""

    token_times: bool = False
    event_log: Path | None = None
    watcher: Watcher | None = None


NOTHING = Observe()
