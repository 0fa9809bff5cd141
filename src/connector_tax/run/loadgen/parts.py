"""What a load generator is given: one worker's part of a cell, its workload, and who is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from connector_tax.base.records.cell import CellSpec
from connector_tax.run.loadgen.issuer import SampleIssuer
from connector_tax.run.loadgen.messages import Ended
from connector_tax.run.workload.schedulers import Scheduler, Share


class Workload(Protocol):
    """What is sent: one payload per sample, and what is known of its answer.

    ``needs_ids`` says whether ``answered`` needs the answer's token ids; ``lengths`` gives prompt and output tokens, None for one that is the server's to say; ``ended`` is called
    for every sample that was rendered, sent or not.
    """

    def render(self, seq: int) -> bytes: ...

    def needs_ids(self, seq: int) -> bool: ...

    def lengths(self, seq: int) -> tuple[int | None, int | None]: ...

    def place(self, seq: int) -> tuple[int, int] | None: ...

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Part:
    """One worker's part of a cell: what it sends, when and by whom.

    Attributes:
        token_times: keep the time of every token of every request.
    """

    spec: CellSpec
    share: Share
    scheduler: Scheduler
    issuer: SampleIssuer
    workload: Workload
    token_times: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """Who is told.

    Attributes:
        on_batch: gets requests that ended; each exactly once.
        on_stopped: called once, with the time from which on nothing was sent, and whether that is since nothing was left.
        on_idle: called once, when after that nothing is in flight either.
    """

    on_batch: Callable[[list[Ended]], None]
    on_stopped: Callable[[int, bool], None]
    on_idle: Callable[[], None]
