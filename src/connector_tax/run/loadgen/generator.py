"""One worker's share of a cell on an event loop: schedule -> issuer -> batches of ended requests.

The schedule is known ahead, so a request is sent directly from the kernel's wake-up at its deadline, without
another process, queue or task in between. A late send does not delay the next; a stall costs only the
requests that fall into it.
"""

import asyncio
import gc
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Protocol

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import Status
from connector_tax.base.timer import DeadlineTimer
from connector_tax.base.units import NS_PER_S
from connector_tax.run.loadgen.issuer import EventLog, Flight, SampleIssuer, SessionEvent
from connector_tax.run.loadgen.messages import BATCH_S, Counters, Ended
from connector_tax.run.workload.arrivals import OPEN_LOOP
from connector_tax.run.workload.protocol import may_send
from connector_tax.run.workload.schedulers import Scheduler, Share

# A load generator's inputs: its part of a cell, the workload, and the receivers of reports.


class Workload(Protocol):
    """What is sent: one payload per sample, and what is known of its answer.

    ``needs_ids``: ``answered`` needs the answer's token ids. ``lengths``: prompt and output tokens, None if
    the server decides. ``ended``: called for every rendered sample, sent or not.
    """

    def render(self, seq: int) -> bytes: ...

    def needs_ids(self, seq: int) -> bool: ...

    def lengths(self, seq: int) -> tuple[int | None, int | None]: ...

    def place(self, seq: int) -> tuple[int, int] | None: ...

    def answered(self, seq: int, output_ids: list[int]) -> None: ...

    def ended(self, seq: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Part:
    """One worker's part of a cell.

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
    """Receivers of reports.

    Attributes:
        on_batch: gets ended requests, each exactly once.
        on_stopped: called once, with the time from which nothing was sent and whether nothing was left.
        on_idle: called once, when nothing is in flight after that.
    """

    on_batch: Callable[[list[Ended]], None]
    on_stopped: Callable[[int, bool], None]
    on_idle: Callable[[], None]


# Ended requests are reported every ``BATCH_S``, or once this many have gathered.
BATCH_SIZE = 256
# If the next send is at least this far away, its prompt is rendered a little after this one.
RENDER_GAP_NS = 10_000_000
RENDER_DELAY_S = 0.002
# Simultaneous sends go out in slices of this length, between which arriving bytes are stamped.
SLICE_NS = 1_000_000
# The kernel wakes a process about 50 us after a deadline, later from a deep sleep. So the timer is early by
# twice the mean lateness, at most MOST_EARLY_NS and this share of the gap between sends; the rest is spent in
# turns of the loop, which serve sockets.
MOST_EARLY_NS = 200_000
MOST_EARLY_SHARE = 0.02
# With less than this left, no further turn of the loop begins.
LAST_NS = 15_000
# The opening of a closed loop is rendered before T0: what is due within START_NS, up to START_BYTES.
START_NS = 1_000_000_000
START_BYTES = 1 << 26


class LoadGenerator:
    """Sends one part of a cell.

    Args:
        counters: count the requests in flight of all workers.
        log: of every event; None for none.
    """

    def __init__(
        self,
        part: Part,
        counters: Counters,
        reports: Reports,
        *,
        stop_at_ns: int,
        log: EventLog | None = None,
    ) -> None:
        spec, share, scheduler = part.spec, part.share, part.scheduler
        self._spec = spec
        self._share = share
        self._scheduler = scheduler
        self._issuer = part.issuer
        self._workload = part.workload
        self._counters = counters
        self._stop_at_ns = stop_at_ns
        self._on_batch = reports.on_batch
        self._on_stopped = reports.on_stopped
        self._on_idle = reports.on_idle
        self._log = log
        self._token_times = part.token_times
        scheduler.on_cancelled = self._forget
        self._rendered: dict[int, bytes] = {}
        self._rendering = False
        self._ended: list[Ended] = []
        self._inflight = 0
        self._t0_ns = 0
        self._stopped = False
        self._idle = False
        self._due_is_soon = False
        # Running mean of the wake-ups' lateness, and the limit of the timer's lead.
        self._armed_ns: int | None = None
        self._late_ns = 0.0
        self._most_early_ns = 0.0
        if spec.arrival in OPEN_LOOP and spec.sessions is None:
            gap_ns = NS_PER_S * share.of / spec.rate_per_s
            self._most_early_ns = min(MOST_EARLY_NS, MOST_EARLY_SHARE * gap_ns)
        self.failure: str | None = None
        self._flush_handle: asyncio.TimerHandle | None = None
        self._first_batch = True

    async def prepare(self) -> None:
        """Open connections, render the first prompts, and exempt all objects from garbage collection."""
        self._loop = asyncio.get_running_loop()
        # Before connections take the available files.
        self._timer = DeadlineTimer(self._loop, self._woken)
        await self._issuer.start(self._flight_ended)
        room_bytes = START_BYTES
        soon = self._scheduler.upcoming()
        for seq in (*soon, *(s for s in self._scheduler.starting(START_NS) if s not in soon)):
            self._rendered[seq] = self._render(seq)
            room_bytes -= len(self._rendered[seq])
            if room_bytes < 0:
                break
        # Collecting a large heap takes milliseconds, which would count as latency.
        gc.collect()
        gc.freeze()
        gc.disable()

    def begin(self, t0_ns: int) -> None:
        self._t0_ns = t0_ns
        self._due()

    def stop(self, at_ns: int) -> None:
        """Send nothing due at or after ``at_ns`` (not before now); 0: nothing more at all."""
        at_ns = max(at_ns, monotonic_ns()) if at_ns else 0
        self._stop_at_ns = min(self._stop_at_ns, at_ns)
        if not self._stopped and (self._t0_ns or at_ns == 0):
            self._due()

    def abandon(self, status: Status, reason: str) -> None:
        """End sending and everything in flight."""
        self.stop(0)
        self._issuer.abandon(status, reason)

    def fail(self, reason: str) -> None:
        """End sending and everything in flight after an error of our own, and report it."""
        if self.failure is not None:
            return
        self.failure = reason
        if not self._stopped:
            self._end_sending(monotonic_ns())
        try:
            self._issuer.abandon("aborted", reason)
        finally:
            # Requests in an intermediate state at the error are counted nowhere.
            self._inflight = 0
            self._if_idle()

    def close(self) -> None:
        """Undo ``prepare``."""
        self._timer.close()
        self._issuer.shutdown()
        gc.enable()
        gc.unfreeze()

    def _woken(self) -> None:
        if self._armed_ns is not None:
            self._late_ns += (monotonic_ns() - self._armed_ns - self._late_ns) / 8
        self._due()

    def _wait_until(self, due_ns: int, now_ns: int) -> bool:
        """Return True if another wake-up or turn of the loop will follow, False at the deadline."""
        early_ns = min(2 * self._late_ns, self._most_early_ns)
        left_ns = due_ns - now_ns
        if left_ns > early_ns:
            self._armed_ns = due_ns - int(early_ns)
            self._timer.arm(self._armed_ns)
            return True
        if left_ns > LAST_NS:
            self._due_soon()
            return True
        while monotonic_ns() < due_ns:
            pass
        return False

    def _due(self) -> None:
        """Send what is due, for at most ``SLICE_NS`` before responses are served; deadlines are absolute."""
        slice_end_ns = 0
        while not self._stopped:
            now_ns = monotonic_ns()
            offset_ns = self._scheduler.next_due_ns()
            if offset_ns is None and self._scheduler.exhausted:
                self._end_sending(now_ns, exhausted=True)
                return
            due_ns = self._stop_at_ns if offset_ns is None else self._t0_ns + offset_ns
            if due_ns >= self._stop_at_ns:
                if now_ns < self._stop_at_ns:
                    self._armed_ns = None
                    self._timer.arm(self._stop_at_ns)
                else:
                    self._end_sending(now_ns)
                return
            if due_ns > now_ns and self._wait_until(due_ns, now_ns):
                return
            if not slice_end_ns:
                slice_end_ns = now_ns + SLICE_NS
            elif now_ns > slice_end_ns:
                self._due_soon()
                return
            self._send()

    def _due_soon(self) -> None:
        if not self._due_is_soon:
            self._due_is_soon = True
            self._loop.call_soon(self._due_again)

    def _due_again(self) -> None:
        self._due_is_soon = False
        self._due()

    def _send(self) -> None:
        due = self._scheduler.take()
        self._counters.count_taken(self._share.index)
        inflight = self._counters.inflight()
        flight = Flight(due.seq, self._t0_ns + due.offset_ns, inflight)
        payload = self._rendered.pop(due.seq, None)
        if payload is None:
            payload = self._render(due.seq)  # due before it could be prepared
        if self._scheduler.drops and not may_send(inflight, self._spec.inflight_cap):
            flight.status = "dropped"
            flight.error = f"{self._spec.inflight_cap} requests in flight"
            self._gather(flight)
            self._over(flight)
        else:
            if self._token_times:
                flight.token_ns = array("q")
            if self._workload.needs_ids(due.seq):
                flight.output_ids = []
            self._inflight += 1
            self._counters.add_inflight(self._share.index, 1)
            if self._log is not None:
                self._log.note(SessionEvent.LOADGEN_ISSUE_CALLED, monotonic_ns(), due.seq)
            self._issuer.issue(flight, payload)
        if not self._rendering:
            self._rendering = True
            self._render_soon(due.offset_ns)

    def _render_soon(self, offset_ns: int) -> None:
        """Render the next prompt after the send, so that rendering never delays a send.

        If there is time, wait briefly, so that responses which arrived meanwhile are not delayed further.
        """
        next_ns = self._scheduler.next_due_ns()
        if next_ns is None or next_ns - offset_ns < RENDER_GAP_NS:
            self._loop.call_soon(self._render_ahead)
        else:
            self._loop.call_later(RENDER_DELAY_S, self._render_ahead)

    def _render_ahead(self) -> None:
        # One per turn of the loop, so that responses are stamped in between.
        seq = next((seq for seq in self._scheduler.upcoming() if seq not in self._rendered), None)
        if seq is None:
            self._rendering = False
            return
        self._rendered[seq] = self._render(seq)
        self._loop.call_soon(self._render_ahead)

    def _render(self, seq: int) -> bytes:
        payload = self._workload.render(seq)
        if self._log is not None:
            self._log.note(SessionEvent.LOADGEN_DATA_LOAD, monotonic_ns(), seq)
        return payload

    def _forget(self, seq: int) -> None:
        """Drop an announced sample that will never be sent."""
        self._rendered.pop(seq, None)
        self._workload.ended(seq)

    def _end_sending(self, now_ns: int, *, exhausted: bool = False) -> None:
        # Even after a late wake-up nothing due since the deadline was sent; earlier requests went out above.
        self._stopped = True
        self._timer.close()
        # Report ended requests first: they decide whether the server kept up until the end.
        self._flush()
        self._on_stopped(min(self._stop_at_ns, now_ns) or now_ns, exhausted)
        self._if_idle()

    def _flight_ended(self, flight: Flight) -> None:
        self._inflight -= 1
        self._counters.add_inflight(self._share.index, -1)
        self._check_length(flight)
        self._gather(flight)
        if not self._stopped:
            due_before_ns = self._scheduler.next_due_ns()
            self._over(flight)
            if self._scheduler.next_due_ns() != due_before_ns or self._scheduler.exhausted:
                # Deferred, since this runs within a connection's callback.
                self._due_soon()
        self._if_idle()

    def _over(self, flight: Flight) -> None:
        """Notify the workload, then the scheduler: what becomes due now may need the answer."""
        ok = flight.status == "ok"
        if ok:
            self._workload.answered(flight.seq, flight.output_ids or [])
        self._workload.ended(flight.seq)
        self._scheduler.ended(flight.seq, ok, monotonic_ns() - self._t0_ns)

    def _check_length(self, flight: Flight) -> None:
        if flight.status != "ok":
            return
        expected_counts = self._workload.lengths(flight.seq)
        counts = (flight.prompt_tokens, flight.completion_tokens)
        if any(
            expected is not None and count != expected
            for count, expected in zip(counts, expected_counts, strict=True)
        ):
            flight.status = "wrong_length"
            flight.error = (
                f"{flight.prompt_tokens} prompt and {flight.completion_tokens} completion tokens; "
                f"asked for {expected_counts[0] or 'any number'} and {expected_counts[1] or 'any number'}"
            )

    def _gather(self, flight: Flight) -> None:
        assert flight.status is not None, "only ended flights are gathered"
        session, turn = self._workload.place(flight.seq) or (None, None)
        self._ended.append(
            Ended(
                flight.seq,
                flight.t_sched_ns,
                flight.t_send_ns,
                flight.t_first_token_ns,
                flight.t_last_token_ns,
                flight.t_end_ns,
                flight.status,
                flight.prompt_tokens,
                flight.completion_tokens,
                flight.inflight_at_send,
                flight.error,
                flight.token_ns.tobytes() if flight.token_ns else None,
                session,
                turn,
                flight.resends,
                flight.came_ns,
            )
        )
        # The first one ends warm-up, so it does not wait.
        if self._first_batch or len(self._ended) >= BATCH_SIZE:
            self._first_batch = False
            self._flush()
        elif self._flush_handle is None:
            self._flush_handle = self._loop.call_later(BATCH_S, self._flush)

    def _flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if self._ended:
            batch, self._ended = self._ended, []
            self._on_batch(batch)
        if self._log is not None:
            self._log.flush()

    def _if_idle(self) -> None:
        if self._stopped and self._inflight == 0 and not self._idle:
            self._idle = True
            self._flush()
            self._on_idle()
