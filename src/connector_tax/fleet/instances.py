"""What a request meets behind the gateway: an instance as its profile has it, or a modelled engine.

Whoever drives an instance keeps the clock: it asks when something happens next and tells when that time has come.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping

from connector_tax.enginemodel.model import EngineModel, StepResult
from connector_tax.fleet.patterns import Profile, Request
from connector_tax.fleet.queues import Queue
from connector_tax.fleet.routers import FULL
from connector_tax.units import s_to_ns


class Instance(ABC):
    """One server.

    Attributes:
        profiles: by pattern; loads are taken from here, since a gateway knows nothing else.
        load: of all that was sent here and has not finished.
    """

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self.profiles = profiles
        self.load = 0.0
        self._held = 0

    def load_of(self, request: Request) -> float:
        return self.profiles[request.pattern.name].load

    def submit(self, request: Request, now_ns: int) -> None:
        self._held += 1
        self.load += self.load_of(request)
        self._begin(request, now_ns)

    def advance(self, now_ns: int) -> list[Request]:
        """What finishes at ``now_ns``, which is ``next_ns()``."""
        finished = self._finish(now_ns)
        for request in finished:
            request.t_end_ns = now_ns
            self._held -= 1
            self.load -= self.load_of(request)
        if not self._held:
            # Exactly idle: what rounding left must not keep a large request out.
            self.load = 0.0
        return finished

    @abstractmethod
    def next_ns(self) -> int | None:
        """When something happens here next; None while idle."""

    @abstractmethod
    def _begin(self, request: Request, now_ns: int) -> None: ...

    @abstractmethod
    def _finish(self, now_ns: int) -> list[Request]: ...


class ProfileInstance(Instance):
    """Requests within capacity are served side by side, each in its profile's time; the others wait here."""

    def __init__(self, profiles: Mapping[str, Profile], queue: Queue) -> None:
        super().__init__(profiles)
        self._queue = queue
        self._serving: list[tuple[int, int, Request]] = []
        self._serving_load = 0.0

    def next_ns(self) -> int | None:
        return self._serving[0][0] if self._serving else None

    def _begin(self, request: Request, now_ns: int) -> None:
        self._queue.put(request)
        self._fill(now_ns)

    def _finish(self, now_ns: int) -> list[Request]:
        finished = []
        while self._serving and self._serving[0][0] <= now_ns:
            request = heapq.heappop(self._serving)[2]
            self._serving_load = self._serving_load - self.load_of(request) if self._serving else 0.0
            finished.append(request)
        self._fill(now_ns)
        return finished

    def _fill(self, now_ns: int) -> None:
        while (request := self._next_that_fits(now_ns)) is not None:
            self._queue.take(request)
            request.t_start_ns = now_ns
            self._serving_load += self.load_of(request)
            end_ns = now_ns + s_to_ns(self.profiles[request.pattern.name].e2e_s)
            heapq.heappush(self._serving, (end_ns, request.seq, request))

    def _next_that_fits(self, now_ns: int) -> Request | None:
        for request in self._queue.heads(now_ns):
            if not self._serving or self._serving_load + self.load_of(request) <= FULL:
                return request
        return None


class EngineInstance(Instance):
    """A modelled engine: requests wait in its own queue and slow each other down."""

    def __init__(self, profiles: Mapping[str, Profile], model: EngineModel) -> None:
        super().__init__(profiles)
        self._model = model
        self._inside: dict[int, Request] = {}
        self._before_first: set[int] = set()
        self._step: StepResult | None = None
        self._step_begin_ns = 0
        self._step_end_ns = 0

    def next_ns(self) -> int | None:
        return None if self._step is None else self._step_end_ns

    def _begin(self, request: Request, now_ns: int) -> None:
        self._inside[request.seq] = request
        self._before_first.add(request.seq)
        self._model.add(request.seq, request.pattern.input_tokens, request.pattern.output_tokens)
        if self._step is None:
            self._next_step(now_ns)

    def _finish(self, now_ns: int) -> list[Request]:
        assert self._step is not None
        for seq in self._before_first.intersection(self._step.tokens):
            # Waiting ends with the first token: an engine does not say when it took a prompt up.
            self._inside[seq].t_start_ns = now_ns
            self._before_first.discard(seq)
        finished = [self._inside.pop(seq) for seq in self._step.finished]
        self._step = None
        if self._model.has_work:
            self._next_step(now_ns)
        return finished

    def _next_step(self, now_ns: int) -> None:
        self._step = self._model.step()
        self._step_end_ns = now_ns + self._step.duration_ns
