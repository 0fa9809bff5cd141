"""One cell on an event loop: schedule -> protocol -> issuer -> records.

The loop runs on a thread of its own, so that the caller can be told of signals while a cell runs;
the caller only waits, so nothing competes for the GIL.
"""

import asyncio
import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns, process_time_ns

import uvloop

from connector_tax.loadgen.issuer import Flight, SampleIssuer
from connector_tax.loadgen.stalls import StallWatch
from connector_tax.records.cell import CellSpec, CellWindow
from connector_tax.records.request import RequestRecord
from connector_tax.timer import DeadlineTimer
from connector_tax.traffic.arrivals import Schedule
from connector_tax.traffic.protocol import CellProtocol
from connector_tax.units import s_to_ns
from connector_tax.workload.prompts import RequestRenderer

# Rendered ahead of need, in the gaps between sends; 4 x 32k tokens is about 1 MB.
RENDER_AHEAD = 4
ABORT_POLL_S = 0.25
# Between start-up work (connections, first prompts) and the first arrival.
LEAD_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What happened, and the client's own cost while it did."""

    window: CellWindow
    requests: list[RequestRecord]
    stalls: StallWatch
    client_cpu_s: float
    wall_s: float
    max_inflight: int
    aborted: str | None


class BenchmarkSession:
    """Runs one cell; ``start``, then ``wait_for_test_end``, then ``result``."""

    def __init__(
        self,
        spec: CellSpec,
        issuer: SampleIssuer,
        renderer: RequestRenderer,
        should_abort: Callable[[], str | None],
    ) -> None:
        self._spec = spec
        self._issuer = issuer
        self._renderer = renderer
        self._should_abort = should_abort
        self._stop_requested = threading.Event()
        self._finished = threading.Event()
        self._failure: BaseException | None = None
        self._result: SessionResult | None = None
        self._thread = threading.Thread(target=self._run, name="load-generator", daemon=True)

    @classmethod
    def start(
        cls,
        spec: CellSpec,
        issuer: SampleIssuer,
        renderer: RequestRenderer,
        *,
        should_abort: Callable[[], str | None] = lambda: None,
    ) -> "BenchmarkSession":
        """Begin at once.

        Args:
            should_abort: asked a few times a second; a text ends the cell with that reason.
        """
        session = cls(spec, issuer, renderer, should_abort)
        session._thread.start()
        return session

    def wait_for_test_end(self, timeout_s: float | None = None) -> bool:
        """Wait; False if it is still running after ``timeout_s``."""
        return self._finished.wait(timeout_s)

    def stop(self) -> None:
        """Ask for an early end; requests in flight are abandoned."""
        self._stop_requested.set()

    def result(self) -> SessionResult:
        """The outcome of a finished session; raises what ended it if that was a bug of ours."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        try:
            self._result = uvloop.run(self._drive())
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame; raised in result()
            self._failure = error
        finally:
            self._finished.set()

    async def _drive(self) -> SessionResult:
        cell = _Cell(self._spec, self._issuer, self._renderer)
        # A collection of a large heap takes milliseconds, which would be booked as latency.
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            return await cell.drive(self._abort_reason)
        finally:
            gc.enable()
            gc.unfreeze()

    def _abort_reason(self) -> str | None:
        return "interrupted" if self._stop_requested.is_set() else self._should_abort()


class _Cell:
    """The state of a running cell; everything happens on the loop's thread."""

    def __init__(self, spec: CellSpec, issuer: SampleIssuer, renderer: RequestRenderer) -> None:
        self._spec = spec
        self._issuer = issuer
        self._renderer = renderer
        self._schedule = Schedule(spec.arrival, spec.rate_per_s, spec.seed)
        self._rendered: dict[int, bytes] = {}
        self._flights: list[Flight] = []
        self._inflight = 0
        self._max_inflight = 0
        self._next_seq = 0

    async def drive(self, abort_reason: Callable[[], str | None]) -> SessionResult:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        await self._issuer.start(self._ended)
        self._render_ahead()
        stalls = StallWatch(self._loop)
        cpu_start_ns, wall_start_ns = process_time_ns(), monotonic_ns()
        self._protocol = CellProtocol(self._spec, wall_start_ns + LEAD_NS)
        self._timer = DeadlineTimer(self._loop, self._due)
        self._due()
        aborted = await self._until(lambda: self._protocol.t_stop_ns is not None, None, abort_reason)
        self._timer.close()
        if aborted is not None:
            self._protocol.stop(monotonic_ns())
        else:
            deadline_ns = (self._protocol.t_stop_ns or 0) + s_to_ns(self._spec.drain_timeout_s)
            aborted = await self._until(lambda: self._inflight == 0, deadline_ns, abort_reason)
        if self._inflight:
            if aborted is not None:
                self._issuer.abandon("aborted", aborted)
            else:
                self._issuer.abandon(
                    "timeout", f"unfinished {self._spec.drain_timeout_s:g} s after the last send"
                )
        drained_ns = monotonic_ns()
        cpu_s = (process_time_ns() - cpu_start_ns) / 1e9
        stalls.close()
        self._issuer.shutdown()
        window = self._protocol.window(drained_ns)
        return SessionResult(
            window=window,
            requests=[_record(f, window) for f in self._flights],
            stalls=stalls,
            client_cpu_s=cpu_s,
            wall_s=(drained_ns - wall_start_ns) / 1e9,
            max_inflight=self._max_inflight,
            aborted=aborted,
        )

    async def _until(
        self, done: Callable[[], bool], deadline_ns: int | None, abort_reason: Callable[[], str | None]
    ) -> str | None:
        """Wait for ``done`` or the deadline; a reason if someone wants the cell to end."""
        while not done():
            reason = abort_reason()
            if reason is not None:
                return reason
            if deadline_ns is not None and monotonic_ns() >= deadline_ns:
                return None
            self._changed.clear()
            wait_s = ABORT_POLL_S
            if deadline_ns is not None:
                wait_s = min(wait_s, max((deadline_ns - monotonic_ns()) / 1e9, 0.001))
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def _due(self) -> None:
        """Send everything whose time has come; deadlines are absolute, a late one delays no other."""
        while True:
            now_ns = monotonic_ns()
            if self._protocol.stopped(now_ns):
                self._changed.set()
                return
            due_ns = self._protocol.t0_ns + self._schedule[self._next_seq]
            if due_ns > now_ns:
                self._timer.arm(self._next_wake_ns(due_ns, now_ns))
                return
            self._send(due_ns)

    def _next_wake_ns(self, due_ns: int, now_ns: int) -> int:
        decision_ns = self._protocol.next_decision_ns()
        return min(due_ns, decision_ns) if decision_ns > now_ns else due_ns

    def _send(self, due_ns: int) -> None:
        seq = self._next_seq
        self._next_seq += 1
        flight = Flight(seq, due_ns, self._inflight)
        self._flights.append(flight)
        payload = self._rendered.pop(seq, None) or self._renderer.render(seq)
        if not self._protocol.may_send(self._inflight):
            flight.status = "dropped"
            flight.error = f"{self._spec.inflight_cap} requests in flight"
        else:
            self._inflight += 1
            self._max_inflight = max(self._max_inflight, self._inflight)
            self._issuer.issue(flight, payload)
        # After the send, not before the next: rendering must never stand between deadline and socket.
        self._loop.call_soon(self._render_ahead)

    def _render_ahead(self) -> None:
        # One prompt per turn of the loop, so that responses are stamped in between.
        for seq in range(self._next_seq, self._next_seq + RENDER_AHEAD):
            if seq not in self._rendered:
                self._rendered[seq] = self._renderer.render(seq)
                self._loop.call_soon(self._render_ahead)
                return

    def _ended(self, flight: Flight) -> None:
        self._inflight -= 1
        if flight.status == "ok" and (
            flight.completion_tokens != self._spec.output_tokens
            or flight.prompt_tokens != self._spec.input_tokens
        ):
            flight.status = "wrong_length"
            flight.error = (
                f"{flight.prompt_tokens} prompt and {flight.completion_tokens} completion tokens; "
                f"asked for {self._spec.input_tokens} and {self._spec.output_tokens}"
            )
        now_ns = monotonic_ns()
        self._protocol.ended(flight.t_sched_ns, flight.status == "ok", now_ns)
        if self._protocol.stopped(now_ns):
            self._changed.set()


def _record(flight: Flight, window: CellWindow) -> RequestRecord:
    assert flight.status is not None, "every flight has ended"
    return RequestRecord(
        seq=flight.seq,
        t_sched_ns=flight.t_sched_ns,
        t_send_ns=flight.t_send_ns,
        t_first_token_ns=flight.t_first_token_ns,
        t_last_token_ns=flight.t_last_token_ns,
        t_end_ns=flight.t_end_ns,
        status=flight.status,
        prompt_tokens=flight.prompt_tokens,
        completion_tokens=flight.completion_tokens,
        inflight_at_send=flight.inflight_at_send,
        worker=0,
        phase=window.phase_of(flight.t_sched_ns),
        error=flight.error,
    )
