"""What a cell left behind in its coordinator: records, and what the client spent on them."""

from array import array
from dataclasses import dataclass, field

from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What happened, and the client's own cost while it did.

    Attributes:
        requests: by ``seq``; one for every sample scheduled before ``window.t_stop_ns``.
        token_ns: by ``seq``, where ``Observe.token_times`` asked for it.
        stall_counts: heartbeats by lateness, all workers together; see ``stalls.EDGES_US``.
        away_ns: of each worker, from when to when it was away, each time.
        worker_cpu_s: one per worker, while the cell ran.
        aborted: why the cell was ended from outside, at once or in order; None where it was not.
        deaths: workers that ended or broke in the middle, and how.
        given_up: why it ended itself before its time; None where it did not.
    """

    window: CellWindow
    requests: list[RequestRecord]
    token_ns: "dict[int, array[int]]"
    stall_counts: list[int]
    stall_max_us: float
    worker_cpu_s: list[float]
    coordinator_cpu_s: float
    worker_rss_mib: list[float]
    wall_s: float
    aborted: str | None
    deaths: list[str]
    given_up: str | None = None
    away_ns: list[list[tuple[int, int]]] = field(default_factory=list)
    # Of a core, one per worker, while the window lasted.
    worker_cpu_share: list[float] = field(default_factory=list)

    @property
    def client_cpu_s(self) -> float:
        """Of all of the client's processes."""
        return sum(self.worker_cpu_s) + self.coordinator_cpu_s
