"""The model in real time: steps start and end at the model's own absolute times.

A step that the loop notices late is still over at its model time, and the next one begins there, so
the host's jitter does not add up; it shows only as lateness of single events.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from connector_tax.base.timer import DeadlineTimer
from connector_tax.base.vllm_model.costs import Member, costs_together
from connector_tax.base.vllm_model.model import EngineModel, StepResult
from connector_tax.run.emulator.steplog import StepLog


class RealTimeEngine:
    """Drives an ``EngineModel`` on an event loop.

    Args:
        on_tokens: called at the end of each step with its result.
        on_lost_log: called where the step log cannot be written. Raised on the event loop, the error would end a connection or nothing at all, and
            the model would stand still.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        model: EngineModel,
        step_log: StepLog | None,
        on_tokens: Callable[[StepResult], None],
        on_lost_log: Callable[[OSError], None],
    ) -> None:
        self.model = model
        self.hung = False
        self._step_log = step_log
        self._on_tokens = on_tokens
        self._on_lost_log = on_lost_log
        self._timer = DeadlineTimer(loop, self._step_ended)
        self._current: StepResult | None = None
        self._end_ns = 0

    def recost(self, members: tuple[Member, ...]) -> None:
        """From the next step on, the members of the connector cost this."""
        self.model.connector = costs_together(members)
        self._log(lambda log: log.recost(members))

    def add(self, request_id: int, prompt: int, max_tokens: int, *, cached: int) -> None:
        self.model.add(request_id, prompt, max_tokens, cached=cached)
        if self._current is None:
            self._begin(monotonic_ns())

    def _begin(self, start_ns: int) -> None:
        if self.hung:
            return
        step = self._current = self.model.step()
        self._end_ns = start_ns + step.duration_ns
        self._log(lambda log: log.step(start_ns, step))
        self._timer.arm(self._end_ns)

    def _step_ended(self) -> None:
        result, self._current = self._current, None
        if result is None:
            return
        self._on_tokens(result)
        if self.model.has_work:
            self._begin(self._end_ns)
        self._log(StepLog.flush_if_due)

    def _log(self, write: Callable[[StepLog], None]) -> None:
        if self._step_log is not None:
            try:
                write(self._step_log)
            except OSError as error:
                self._on_lost_log(error)
