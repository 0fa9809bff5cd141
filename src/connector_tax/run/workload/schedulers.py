"""Load patterns: what may be sent next, and when; no clock, no socket.

Every pattern is a heap of samples ordered by due time and filled ahead. Open loops fill it from an
arrival process, closed loops from the ends of requests. A pattern registers itself by name;
``scheduler_for`` looks it up.

Times are integer nanoseconds from T0, the start of the cell. Several workers divide a cell: each takes the
samples with ``seq % of == index``, so they need not communicate while it runs.
"""

import heapq
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import Session
from connector_tax.base.units import s_to_ns
from connector_tax.run.workload.arrivals import OPEN_LOOP, Schedule, schedule_of

# Number of samples known ahead, so that their prompts are rendered before they are due.
AHEAD = 4
# Waits of a closed loop's slot after a failure: none in the first round of failures, FIRST_WAIT_NS in the
# second, then doubling up to LONGEST_WAIT_NS.
FIRST_WAIT_NS = 10_000_000
LONGEST_WAIT_NS = 1_000_000_000
# Rounds of failures that are remembered; the wait is longest in the eighth.
MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Share:
    """Worker ``index`` of ``of``."""

    index: int = 0
    of: int = 1


WHOLE = Share()


class Due(NamedTuple):
    """A sample and its due time; ordered by time, then by ``seq``."""

    offset_ns: int
    seq: int


class Backoff:
    """Slows a closed loop down while the server refuses requests."""

    def __init__(self, slots: int) -> None:
        self._slots = max(slots, 1)
        self._failed = 0

    def wait_ns(self, ok: bool) -> int:
        """Return the wait until the slot of an ended request opens again.

        A success cancels one failure: a server that mostly refuses is asked ever more slowly, a recovered one
        at full speed, since there is no wait after a success.
        """
        if ok:
            self._failed = max(self._failed - 1, 0)
            return 0
        rounds = self._failed // self._slots
        self._failed = min(self._failed + 1, MOST_ROUNDS * self._slots)
        return min(FIRST_WAIT_NS << (rounds - 1), LONGEST_WAIT_NS) if rounds else 0


class Scheduler(ABC):
    """Samples of one worker's share in order of due time.

    Attributes:
        on_cancelled: called with each announced sample that will not be sent.
        drops: whether samples at the in-flight cap are dropped (open loop); other patterns bound
            requests in flight themselves.
    """

    patterns: ClassVar[dict[str, type["Scheduler"]]] = {}
    drops: bool

    def __init_subclass__(cls, *, load_pattern: Iterable[str] = (), **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name in load_pattern:
            Scheduler.patterns[name] = cls

    def __init__(self, spec: CellSpec, share: Share) -> None:
        self._spec = spec
        self._share = share
        self._heap: list[Due] = []
        # First ``seq`` that does not exist.
        self._end_seq = sys.maxsize if spec.num_requests is None else spec.num_requests
        self._next_seq = share.index
        self.on_cancelled: Callable[[int], None] = lambda seq: None

    @property
    def exhausted(self) -> bool:
        """Return whether nothing is left to send and no request in flight can add any."""
        return not self._heap and self._next_seq >= self._end_seq

    @abstractmethod
    def _refill(self) -> None:
        """Push known samples, so that up to ``AHEAD`` are in the heap."""

    @abstractmethod
    def ended(self, seq: int, ok: bool, offset_ns: int) -> None:
        """Record the end of sample ``seq``, successful or not, at ``offset_ns``."""

    def next_due_ns(self) -> int | None:
        """Return when the next sample is due; None: not before a request in flight ends."""
        self._refill()
        return self._heap[0].offset_ns if self._heap else None

    def take(self) -> Due:
        return heapq.heappop(self._heap)

    def upcoming(self) -> list[int]:
        """Return ``seq`` of the next few samples, soonest first."""
        self._refill()
        return _soonest(self._heap)

    def starting(self, within_ns: int) -> list[int]:
        """Return ``seq`` of the known samples due before ``within_ns``, soonest first."""
        self._refill()
        return [due.seq for due in sorted(d for d in self._heap if d.offset_ns < within_ns)]


def _soonest(heap: list[Due]) -> list[int]:
    """Return ``seq`` of a heap's first ``AHEAD`` samples; examines a dozen entries whatever its size."""
    seqs: list[int] = []
    # The next one is always a child of an earlier one.
    front = [(heap[0], 0)] if heap else []
    while front and len(seqs) < AHEAD:
        due, index = heapq.heappop(front)
        seqs.append(due.seq)
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heapq.heappush(front, (heap[child], child))
    return seqs


class OpenLoop(Scheduler, load_pattern=OPEN_LOOP):
    """Arrivals drawn before the run; the server's answers change nothing."""

    drops = True

    def __init__(self, spec: CellSpec, share: Share) -> None:
        super().__init__(spec, share)
        self._schedule = schedule_of(spec)

    def _refill(self) -> None:
        while len(self._heap) < AHEAD and self._next_seq < self._end_seq:
            # Offsets never decrease, so a push is cheap.
            heapq.heappush(self._heap, Due(self._schedule[self._next_seq], self._next_seq))
            self._next_seq += self._share.of

    def ended(self, seq: int, ok: bool, offset_ns: int) -> None:
        pass


class ClosedLoop(Scheduler, load_pattern=("concurrency",)):
    """A fixed number of requests in flight: the end of one is the arrival of the next.

    During ``ramp_up_s`` the target grows linearly: slot j of n opens at (j + 1) / n of it. After a failure a
    slot waits (``Backoff``).
    """

    drops = False

    def __init__(self, spec: CellSpec, share: Share) -> None:
        super().__init__(spec, share)
        target, ramp_ns = self._target(spec), s_to_ns(spec.ramp_up_s or 0.0)
        slots = range(share.index, target, share.of)
        self._backoff = Backoff(len(slots))
        for slot in slots:
            self._open_slot((slot + 1) * ramp_ns // target)

    @staticmethod
    def _target(spec: CellSpec) -> int:
        assert spec.concurrency is not None, "checked where the specification is made"
        return spec.concurrency

    def _open_slot(self, offset_ns: int) -> None:
        if self._next_seq >= self._end_seq:
            return
        heapq.heappush(self._heap, Due(offset_ns, self._next_seq))
        self._next_seq += self._share.of

    def _refill(self) -> None:
        pass

    def ended(self, seq: int, ok: bool, offset_ns: int) -> None:
        self._open_slot(offset_ns + self._backoff.wait_ns(ok))

    def upcoming(self) -> list[int]:
        # The next slot's opening time is unknown, but not which sample it sends.
        end_seq = min(self._next_seq + AHEAD * self._share.of, self._end_seq)
        next_seqs = range(self._next_seq, end_seq, self._share.of)
        return [*super().upcoming(), *next_seqs][:AHEAD]


class MaxThroughput(ClosedLoop, load_pattern=("max_throughput",)):
    """As fast as the in-flight cap allows, for the cell's duration."""

    @staticmethod
    def _target(spec: CellSpec) -> int:
        return spec.inflight_cap


class Offline(Scheduler, load_pattern=("offline",)):
    """A finite batch, all due at T0; the queue is in the server."""

    drops = False

    def _refill(self) -> None:
        while len(self._heap) < AHEAD and self._next_seq < self._end_seq:
            heapq.heappush(self._heap, Due(0, self._next_seq))
            self._next_seq += self._share.of

    def ended(self, seq: int, ok: bool, offset_ns: int) -> None:
        pass


def scheduler_for(spec: CellSpec, share: Share = WHOLE) -> Scheduler:
    return Scheduler.patterns[spec.arrival](spec, share)


# Sessions as a load pattern: when each turn of each conversation is sent.


@dataclass(slots=True)
class _Running:
    """A running session."""

    session: Session
    number: int
    complete: set[int] = field(default_factory=set)
    under_way: set[int] = field(default_factory=set)
    # Turns without an answer, which no later turn can build on.
    unanswered: set[int] = field(default_factory=set)
    failed: bool = False

    @property
    def over(self) -> bool:
        n_left = len(self.session.turns) - len(self.complete)
        return not self.under_way and (self.failed or n_left == 0)


class SessionScheduler(Scheduler):
    """One worker's sessions: numbers ``share.index``, ``+ share.of``, ..., taken cyclically from a list.

    Attributes:
        on_over: called with the number of each finished session.
        cancelled: turns not sent because a turn of their session failed.

    Args:
        cancel_on_failure: cancel the rest of a session after a failed turn. Otherwise only turns with it in
            their history are cancelled, and the others go on as if those had ended.
    """

    def __init__(
        self, spec: CellSpec, share: Share, sessions: tuple[Session, ...], *, cancel_on_failure: bool = True
    ) -> None:
        super().__init__(spec, share)
        self._sessions = sessions
        self._cancel_on_failure = cancel_on_failure
        self._next_session = share.index
        # The end bounds sessions here, not samples.
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
        """Return (session number, turn index) of a sample that is due or in flight."""
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
            # A trace ends; other lists start again.
            trace_s = self.session(self._next_session).arrival_s
            self._start_session(
                s_to_ns(trace_s) if trace_s is not None else self._arrivals[self._next_session]
            )

    def _start_session(self, offset_ns: int) -> None:
        number = self._next_session
        self._next_session += self._share.of
        running = _Running(self.session(number), number)
        self._running[number] = running
        for turn_index, turn in enumerate(running.session.turns):
            if not turn.after:
                self._push(running, turn_index, offset_ns + s_to_ns(turn.wait_s))
                self._waiting_roots += 1

    def _push(self, running: _Running, turn_index: int, offset_ns: int) -> None:
        running.under_way.add(turn_index)
        self._turn_of[self._next_seq] = (running.number, turn_index)
        heapq.heappush(self._heap, Due(offset_ns, self._next_seq))
        self._next_seq += self._share.of

    def take(self) -> Due:
        due = super().take()
        number, turn_index = self._turn_of[due.seq]
        self._waiting_roots -= not self._running[number].session.turns[turn_index].after
        return due

    def ended(self, seq: int, ok: bool, offset_ns: int) -> None:
        number, turn_index = self._turn_of.pop(seq)
        running = self._running[number]
        running.under_way.discard(turn_index)
        running.complete.add(turn_index)
        if not ok:
            running.unanswered.add(turn_index)
            if self._cancel_on_failure:
                self._cancel(running)
        if self._backoff is not None:
            offset_ns += self._backoff.wait_ns(ok)
        if not running.failed:
            self._push_ready(running, turn_index, offset_ns)
        if running.over:
            del self._running[number]
            self.on_over(number)
            if self._arrivals is None and self._next_session < self._end_session:
                self._start_session(offset_ns)

    def _push_ready(self, running: _Running, ended_turn: int, offset_ns: int) -> None:
        just_ended = {ended_turn}
        # Turns follow those they wait for, so one pass finds what a cancelled turn makes ready.
        for turn_index, turn in enumerate(running.session.turns):
            if just_ended.isdisjoint(turn.after) or not running.complete.issuperset(turn.after):
                continue
            if not running.unanswered.isdisjoint(turn.history):
                running.complete.add(turn_index)
                running.unanswered.add(turn_index)
                just_ended.add(turn_index)
                self.cancelled += 1
            else:
                self._push(running, turn_index, offset_ns + s_to_ns(turn.wait_s))

    def _cancel(self, running: _Running) -> None:
        """Remove this session's unsent samples from the heap; requests in flight end by themselves."""
        running.failed = True
        # Usually no turn is due when another fails, and the heap holds all sessions.
        due_seqs = (
            set()
            if not running.under_way
            else {due.seq for due in self._heap if self._turn_of[due.seq][0] == running.number}
        )
        if due_seqs:
            self._heap = [due for due in self._heap if due.seq not in due_seqs]
            heapq.heapify(self._heap)
        for seq in due_seqs:
            _, turn_index = self._turn_of.pop(seq)
            running.under_way.discard(turn_index)
            self._waiting_roots -= not running.session.turns[turn_index].after
            self.on_cancelled(seq)
        started = running.complete | running.under_way
        self.cancelled += len(running.session.turns) - len(started)
