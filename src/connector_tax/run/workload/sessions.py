"""Sessions as a load pattern: when each turn of each conversation goes out; no clock, no socket.

Sessions arrive by a process of their own, or a fixed number of them is kept under way; inside one, a turn becomes due
``wait_s`` after the last turn it waits for has ended. What is due lies in one heap, ordered by time.

The in-flight cap drops turns of sessions that arrive by a process. Sessions of which a fixed number is under way are
bounded by that number, and nothing of them is dropped.
"""

import heapq
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import Session
from connector_tax.base.units import s_to_ns
from connector_tax.run.workload.arrivals import OPEN_LOOP, Schedule, schedule_of
from connector_tax.run.workload.schedulers import AHEAD, Backoff, Due, Scheduler, Share


@dataclass(slots=True)
class _Running:
    """A session under way."""

    session: Session
    number: int
    complete: set[int] = field(default_factory=set)
    under_way: set[int] = field(default_factory=set)
    # Turns without an answer: nothing can be said after them.
    unanswered: set[int] = field(default_factory=set)
    failed: bool = False

    @property
    def over(self) -> bool:
        rest = len(self.session.turns) - len(self.complete)
        return not self.under_way and (self.failed or rest == 0)


class SessionScheduler(Scheduler):
    """One worker's sessions: numbers ``share.index``, ``+ share.of``, ...; sessions are taken from a list in turn.

    Attributes:
        on_over: called with the number of each session that is over.
        cancelled: turns that were never sent because a turn of their session had failed.

    Args:
        cancel_on_failure: whether a failed turn cancels all the rest of its session. If not, those turns are cancelled whose
            history it was part of, and the others go on as if the cancelled ones had ended.
    """

    def __init__(
        self, spec: CellSpec, share: Share, sessions: tuple[Session, ...], *, cancel_on_failure: bool = True
    ) -> None:
        super().__init__(spec, share)
        self._sessions = sessions
        self._cancel_on_failure = cancel_on_failure
        self._next_session = share.index
        # Of the sessions as of the samples of other patterns: from here on there is none.
        self._end_session, self._end_seq = self._end_seq, sys.maxsize
        if sessions[0].arrival_s is not None and spec.arrival in OPEN_LOOP:
            self._end_session = min(self._end_session, len(sessions))
        self._arrivals: Schedule | None = None
        self._running: dict[int, _Running] = {}
        self._turn_of: dict[int, tuple[int, int]] = {}
        self._waiting_roots = 0
        self.cancelled = 0
        self._backoff: Backoff | None = None
        self.drops = spec.arrival in OPEN_LOOP
        self.on_over: Callable[[int], None] = lambda number: None
        if spec.arrival in OPEN_LOOP:
            self._arrivals = schedule_of(spec)
        else:
            assert spec.concurrency is not None, "checked where the specification is made"
            ramp_ns = s_to_ns(spec.ramp_up_s or 0.0)
            slots = range(share.index, spec.concurrency, share.of)
            self._backoff = Backoff(len(slots))
            for slot in slots:
                if self._next_session < self._end_session:
                    self._start_session((slot + 1) * ramp_ns // spec.concurrency)

    def turn_of(self, seq: int) -> tuple[int, int]:
        """(session number, index of the turn) of a sample that is due, under way or ended."""
        return self._turn_of[seq]

    def session(self, number: int) -> Session:
        return self._sessions[number % len(self._sessions)]

    @property
    def exhausted(self) -> bool:
        return not self._running and self._next_session >= self._end_session

    def _refill(self) -> None:
        while (
            self._arrivals is not None
            and self._waiting_roots < AHEAD
            and self._next_session < self._end_session
        ):
            # A trace ends; other lists begin again.
            trace_s = self.session(self._next_session).arrival_s
            self._start_session(
                s_to_ns(trace_s) if trace_s is not None else self._arrivals[self._next_session]
            )

    def _start_session(self, offset_ns: int) -> None:
        number = self._next_session
        self._next_session += self._share.of
        running = _Running(self.session(number), number)
        self._running[number] = running
        for k, turn in enumerate(running.session.turns):
            if not turn.after:
                self._push(running, k, offset_ns + s_to_ns(turn.wait_s))
                self._waiting_roots += 1

    def _push(self, running: _Running, turn: int, offset_ns: int) -> None:
        running.under_way.add(turn)
        self._turn_of[self._next_seq] = (running.number, turn)
        heapq.heappush(self._heap, Due(offset_ns, self._next_seq))
        self._next_seq += self._share.of

    def take(self) -> Due:
        due = super().take()
        number, turn = self._turn_of[due.seq]
        self._waiting_roots -= not self._running[number].session.turns[turn].after
        return due

    def ended(self, seq: int, ok: bool, offset_ns: int) -> None:
        number, turn = self._turn_of.pop(seq)
        running = self._running[number]
        running.under_way.discard(turn)
        running.complete.add(turn)
        if not ok:
            running.unanswered.add(turn)
            if self._cancel_on_failure:
                self._cancel(running)
        if self._backoff is not None:
            offset_ns += self._backoff.wait_ns(ok)
        if not running.failed:
            self._push_ready(running, turn, offset_ns)
        if running.over:
            del self._running[number]
            self.on_over(number)
            if self._arrivals is None and self._next_session < self._end_session:
                self._start_session(offset_ns)

    def _push_ready(self, running: _Running, ended: int, offset_ns: int) -> None:
        just_ended = {ended}
        # Each turn comes after those it waits for, so one pass finds what a cancelled turn makes ready.
        for k, turn in enumerate(running.session.turns):
            if just_ended.isdisjoint(turn.after) or not running.complete.issuperset(turn.after):
                continue
            if not running.unanswered.isdisjoint(turn.history):
                running.complete.add(k)
                running.unanswered.add(k)
                just_ended.add(k)
                self.cancelled += 1
            else:
                self._push(running, k, offset_ns + s_to_ns(turn.wait_s))

    def _cancel(self, running: _Running) -> None:
        """Take what of this session is due but not sent out of the heap; what is in flight ends by itself."""
        running.failed = True
        # Nothing of most sessions is due while a turn fails, and the heap has all sessions in it.
        due = (
            set()
            if not running.under_way
            else {d.seq for d in self._heap if self._turn_of[d.seq][0] == running.number}
        )
        if due:
            self._heap = [d for d in self._heap if d.seq not in due]
            heapq.heapify(self._heap)
        for seq in due:
            _, turn = self._turn_of.pop(seq)
            running.under_way.discard(turn)
            self._waiting_roots -= not running.session.turns[turn].after
            self.on_cancelled(seq)
        started = running.complete | running.under_way
        self.cancelled += len(running.session.turns) - len(started)
