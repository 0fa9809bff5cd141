"""How long the event loop was away: a heartbeat every 20 ms, and how late each one came.

A stop of over 30 ms makes one late by over 10; a shorter stop may end before the next one is due.
"""

import asyncio
from time import monotonic_ns

from connector_tax.base.timer import DeadlineTimer

PERIOD_NS = 20_000_000
# A heartbeat that is later tells of a stop; all sockets have had their turn so long after it.
AWAY_NS = 10_000_000
BACK_NS = 50_000_000
# Upper edges of the histogram, in microseconds; the last bucket is open.
EDGES_US = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class StallWatch:
    """Lateness of heartbeats. A stamp taken during a stall is late by what is left of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.counts = [0] * (len(EDGES_US) + 1)
        self.max_us = 0.0
        # From when to when this process was away, each time.
        self.away_ns: list[tuple[int, int]] = []
        # Of the next heartbeat; None until the cell begins.
        self._due_ns: int | None = None
        # When this process was last back from a stall.
        self._back_ns = 0
        self._timer = DeadlineTimer(loop, self._beat)

    def begin(self, t0_ns: int) -> None:
        """Look from ``t0_ns`` on: nothing is sent or stamped before it, while other workers may still get ready."""
        # Half a period off, so that no heartbeat falls on the first send.
        self._due_ns = t0_ns + PERIOD_NS // 2
        self._timer.arm(self._due_ns)

    def is_back(self, now_ns: int) -> bool:
        """Whether this process was away until now, or until a little while ago: what is read was in the socket before."""
        overdue = self._due_ns is not None and now_ns - self._due_ns > AWAY_NS
        return overdue or now_ns - self._back_ns < BACK_NS

    def close(self) -> None:
        """What the last answer waited behind may be a stall whose heartbeat has not had its turn yet."""
        self._timer.close()
        if self._due_ns is not None and (now_ns := monotonic_ns()) > self._due_ns:
            self._note(self._due_ns, now_ns)

    def _note(self, due_ns: int, now_ns: int) -> None:
        if now_ns - due_ns > AWAY_NS:
            self.away_ns.append((due_ns, now_ns))
        late_us = (now_ns - due_ns) / 1e3
        self.counts[sum(late_us > edge for edge in EDGES_US)] += 1
        self.max_us = max(self.max_us, late_us)

    def _beat(self) -> None:
        assert self._due_ns is not None, "the timer is armed by begin"
        now_ns = monotonic_ns()
        late_ns = now_ns - self._due_ns
        self._note(self._due_ns, now_ns)
        if late_ns > AWAY_NS:
            self._back_ns = monotonic_ns()
        # Skip beats that were missed; one stall is one entry.
        self._due_ns += PERIOD_NS * (1 + max(0, late_ns // PERIOD_NS))
        self._timer.arm(self._due_ns)


def histogram(counts: list[int]) -> dict[str, int]:
    """``{"<=100us": n, ..., ">100000us": n}``"""
    names = [f"<={edge}us" for edge in EDGES_US] + [f">{EDGES_US[-1]}us"]
    return dict(zip(names, counts, strict=True)) if counts else {}
