"""Decides when a cell's warm-up and window end and what may be sent; no clock, no socket.

The load generator and the rehearsal share it, so they agree on what a cell is. All times are CLOCK_MONOTONIC
(or virtual) nanoseconds from the caller.
"""

from array import array
from typing import Protocol

import numpy as np

from connector_tax.base.records.cell import CellSpec, CellWindow, Look
from connector_tax.base.records.request import Answered
from connector_tax.base.statistics.overload import (
    FEWEST_RANDOM,
    MIN_THROUGHPUT_RATIO,
    queue_grows,
    queue_not_told,
    queue_stands,
)
from connector_tax.base.units import NS_PER_S, s_to_ns
from connector_tax.run.workload.arrivals import OPEN_LOOP, schedule_of

# The in-flight cap, the same rule for load generator and rehearsal.


def may_send(inflight: int, cap: int) -> bool:
    """Return False if the arrival is to be dropped and logged; the schedule does not shift.

    Args:
        inflight: requests of the whole cell in flight, without the one that is due.
        cap: ``cell.inflight_cap``.
    """
    return inflight < cap


# Failures that end a window without a completion.
HOPELESS = 10
# An engine hangs if no request ends for this many windows after warm-up. At least the drain time, which
# bounds a request; a block of few requests has a much shorter window.
SILENT_WINDOWS = 2
# Consecutive failures that end a closed-loop cell: the larger of a total and a number per request in flight.
# With the waits of ``schedulers.Backoff`` they take at least 2 s.
FAILED_IN_A_ROW = 20
FAILED_PER_SLOT = 10


class Rule(Protocol):
    """Interface of ``StoppingRule``, whose statistics library takes seconds to import."""

    taken: list[Look]

    def note(self, request: Answered) -> None: ...

    def enough(self, window_start_ns: int) -> bool: ...


def rule_of(spec: CellSpec) -> Rule | None:
    """Return the cell's stopping rule; None if its length is fixed."""
    if spec.stop_half_width is None:
        return None
    # Imported here: it takes a second and memory that other cells do not need.
    from connector_tax.run.workload.stopping import StoppingRule

    return StoppingRule(spec)


class CellProtocol:
    """One cell from its first arrival to its last decision to send."""

    def __init__(self, spec: CellSpec, t0_ns: int, rule: Rule | None = None) -> None:
        self.spec = spec
        self.rule = rule
        self.t0_ns = t0_ns
        self.t_stop_ns: int | None = None
        self._window_start_ns: int | None = None
        self._first_end_ns: int | None = None
        self._completed_in_window = 0
        self._failed_in_window = 0
        self._failed_in_a_row = 0
        self._last_failure = ""
        self._queue = _Queue(spec)
        self._overloaded = False
        self._unjudged = False
        self._warmup_end_ns = t0_ns + s_to_ns(spec.warmup_s)
        # With a fixed number of requests those before the first completion are part of the sample.
        self._finite = spec.num_requests is not None
        self._all_sent = False
        if self._finite:
            self._window_start_ns = self._warmup_end_ns
        self.give_up_ns = t0_ns + s_to_ns(spec.max_cell_s)

    @property
    def window_start_ns(self) -> int | None:
        """Return the window's start, possibly in the future; None until the first request has ended."""
        return self._window_start_ns

    def may_send(self, inflight: int) -> bool:
        return may_send(inflight, self.spec.inflight_cap)

    def ended(self, t_sched_ns: int, ok: bool, now_ns: int, failure: str = "") -> None:
        """Record a request's end, successful or not.

        Any first end can close warm-up, so an engine that fails every request does not prolong it for ever.

        Args:
            failure: how it failed, for the message if the cell gives up.
        """
        self._failed_in_a_row = 0 if ok else self._failed_in_a_row + 1
        self._last_failure = failure
        if self._first_end_ns is None:
            self._first_end_ns = now_ns
            if self._window_start_ns is None:
                self._window_start_ns = max(self._warmup_end_ns, now_ns)
        if self._window_start_ns is not None and t_sched_ns >= self._window_start_ns:
            self._failed_in_window += not ok
        if ok and self._window_start_ns is not None:
            self._completed_in_window += t_sched_ns >= self._window_start_ns
            if now_ns >= self._window_start_ns:
                self._queue.done_ns.append(now_ns)

    def dropped(self, t_sched_ns: int) -> None:
        if self._window_start_ns is not None and t_sched_ns >= self._window_start_ns:
            self._queue.dropped += 1

    def sampled(self, t_ns: int, n_waiting: float) -> None:
        if self._window_start_ns is not None and t_ns >= self._window_start_ns:
            self._queue.waiting.append(n_waiting)

    def overloaded(self, now_ns: int) -> bool:
        """Return whether the cell may end because the engine does not keep up, after ``duration_s``.

        Behind a growing queue, more completions say nothing: their latency depends on how long one waits.

        Args:
            now_ns: every request that ended before has been reported.
        """
        start_ns = self._window_start_ns
        exempt = self.t_stop_ns is not None or self._finite
        if exempt or start_ns is None or now_ns < start_ns + s_to_ns(self.spec.duration_s):
            return self._overloaded
        self._overloaded = self._overloaded or self._queue.overloaded(self.t0_ns, start_ns, now_ns)
        return self._overloaded

    def overloaded_at_end(self, t_stop_ns: int) -> str | None:
        """Return a message if the cell is overloaded at its window's end, whatever was found before; or None.

        Also applies if ``max_cell_s`` ended it before ``duration_s``.

        Args:
            t_stop_ns: end of sending; every request that ended before has been reported.
        """
        self._overloaded = self._unjudged = False
        self._queue.ask_anew()
        if (start_ns := self._window_start_ns) is None:
            return None
        if not self._finite and self._queue.overloaded(self.t0_ns, start_ns, t_stop_ns):
            self._overloaded = True
            return self._queue.words(self.spec.inflight_cap)
        self._unjudged = self._queue.unjudged(self.t0_ns, start_ns, t_stop_ns)
        return None

    def end_ns(self) -> int | None:
        """Return when sending ends if no further request ends.

        None: not before ``max_cell_s``, since too few have completed, or before the last
        of a fixed number is sent.
        """
        if self._finite or self._window_start_ns is None or not self._knows_enough():
            return None
        return min(self._window_start_ns + s_to_ns(self.spec.duration_s), self.give_up_ns)

    def _knows_enough(self) -> bool:
        if self._failed_in_window >= HOPELESS and not self._completed_in_window:
            return True  # an engine that fails a whole window will not recover in the time left
        if self._window_start_ns is None or self._completed_in_window < self.spec.min_completed:
            return False
        return self.rule is None or self.rule.enough(self._window_start_ns)

    def refused(self) -> bool:
        """Return whether a closed loop met only failures, on which its sends depend; it measures nothing."""
        if self.spec.arrival in OPEN_LOOP:
            return False
        slots = self.spec.inflight_cap if self.spec.concurrency is None else self.spec.concurrency
        return self._failed_in_a_row >= max(FAILED_IN_A_ROW, FAILED_PER_SLOT * slots)

    def gives_up(self, now_ns: int, told_ns: int | None = None) -> str | None:
        """Return why the cell ends now and abandons requests in flight; None if it goes on.

        Args:
            told_ns: time up to which ends have been reported; None: ``now_ns``.
        """
        if self.overloaded(now_ns if told_ns is None else told_ns):
            return self._queue.words(self.spec.inflight_cap)
        if self.refused():
            last_failure = f", the last as {self._last_failure}" if self._last_failure else ""
            return f"{self._failed_in_a_row} requests failed in a row{last_failure}"
        silent_s = max(SILENT_WINDOWS * self.spec.duration_s, self.spec.drain_timeout_s)
        if self._finite:
            # Without a window to go by, use the time that a request may take.
            silent_s = max(silent_s, self.spec.asked.timeout_s or self.spec.max_cell_s)
        if self._first_end_ns is None and now_ns >= self._warmup_end_ns + s_to_ns(silent_s):
            return f"no request ended in {self.spec.warmup_s + silent_s:g} s"
        return None

    def stopped(self, now_ns: int) -> bool:
        """Return whether sending is over; the first True fixes ``t_stop_ns``."""
        if self.t_stop_ns is not None:
            return True
        start_ns = self._window_start_ns
        # Also before the time is up, so that looks happen when they are due.
        enough = self._knows_enough()
        window_done = (
            enough
            and not self._finite
            and start_ns is not None
            and now_ns >= start_ns + s_to_ns(self.spec.duration_s)
        )
        if self.gives_up(now_ns) is not None or window_done or now_ns >= self.give_up_ns:
            self.overloaded_at_end(now_ns)
            self.t_stop_ns = now_ns
            return True
        return False

    def stop(self, now_ns: int, *, all_sent: bool = False) -> None:
        """End sending now: the engine is gone, someone interrupts, or nothing is left to send.

        Args:
            all_sent: every request of a fixed number was sent.
        """
        self._all_sent = all_sent
        if self.t_stop_ns is None:
            self.t_stop_ns = now_ns

    def next_decision_ns(self) -> int:
        """Return the earliest time at which ``stopped`` can change without a request's end."""
        if self._window_start_ns is None:
            return min(self._warmup_end_ns, self.give_up_ns)
        return min(self._window_start_ns + s_to_ns(self.spec.duration_s), self.give_up_ns)

    def window(self, drained_ns: int) -> CellWindow:
        """Return the cell's times, after sending stopped and the last request ended."""
        assert self.t_stop_ns is not None, "the cell is still sending"
        start_ns = self._window_start_ns if self._window_start_ns is not None else self.t_stop_ns
        return CellWindow(
            t0_ns=self.t0_ns,
            window_start_ns=min(start_ns, self.t_stop_ns),
            t_stop_ns=self.t_stop_ns,
            drained_ns=max(drained_ns, self.t_stop_ns),
            min_completed_reached=(
                self._all_sent if self._finite else self._completed_in_window >= self.spec.min_completed
            ),
            looks=None if self.rule is None else tuple(self.rule.taken),
            overloaded=self._overloaded,
            overload_unjudged=self._unjudged,
        )


class _Queue:
    """The engine's queue in the window so far."""

    def __init__(self, spec: CellSpec) -> None:
        self.done_ns = array("q")
        self.dropped = 0
        self.waiting: list[float] = []
        self._rate_per_s = spec.rate_per_s
        self._judged_ns = 0
        # Sessions have a rate but their requests have none; a closed loop has no rate to fall behind.
        self._judged = spec.arrival in OPEN_LOOP and spec.sessions is None
        # Random arrivals, or a ramp, deviate from the nominal rate; fixed arrivals follow it.
        random = self._judged and (spec.arrival != "fixed" or spec.ramp_from_per_s is not None)
        self._schedule = schedule_of(spec) if random else None

    def overloaded(self, t0_ns: int, start_ns: int, now_ns: int) -> bool:
        """Return whether completions lag and the queue grows or stands at the in-flight cap."""
        if not self._judged or now_ns < self._judged_ns + NS_PER_S:
            return False
        self._judged_ns = now_ns
        sent = self._sent(t0_ns, start_ns, now_ns)
        # A burst leaves a queue for a while, and this is asked every second, so the queue
        # must last the whole window.
        queue_lasts = self._schedule is None or (sent >= FEWEST_RANDOM and queue_stands(self.waiting))
        return self._behind(sent, now_ns) and (
            self.dropped > 0 or (queue_lasts and queue_grows(self.waiting))
        )

    def words(self, inflight_cap: int) -> str:
        """Return why an overloaded cell ended; mentions a growing queue only if one was observed."""
        if self.dropped and not queue_grows(self.waiting):
            return (
                f"{self.dropped} arrivals found {inflight_cap} requests in flight, the client's cap, and were"
                " dropped"
            )
        return "the cell ended behind a growing queue"

    def unjudged(self, t0_ns: int, start_ns: int, now_ns: int) -> bool:
        """Return whether completions lag and the window is too short to see whether the queue grows."""
        behind = self._judged and self._behind(self._sent(t0_ns, start_ns, now_ns), now_ns)
        return behind and not self.dropped and queue_not_told(self.waiting)

    def ask_anew(self) -> None:
        """Allow a new judgement within a second of the last."""
        self._judged_ns = 0

    def _behind(self, sent: float, now_ns: int) -> bool:
        n_done = (
            np.count_nonzero(np.frombuffer(self.done_ns, dtype=np.int64) <= now_ns) if self.done_ns else 0
        )
        return bool(n_done < MIN_THROUGHPUT_RATIO * sent)

    def _sent(self, t0_ns: int, start_ns: int, now_ns: int) -> float:
        if self._schedule is None:
            return self._rate_per_s * (now_ns - start_ns) / NS_PER_S
        return self._schedule.count_before(now_ns - t0_ns) - self._schedule.count_before(start_ns - t0_ns)
