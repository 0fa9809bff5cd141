"""Instances behind the gateway: by profile or by engine model.

The caller keeps the clock: it asks when the next event is due and reports when that time has come.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping

from connector_tax.base.documents.fleet import Profile
from connector_tax.base.units import s_to_ns
from connector_tax.base.vllm_model.model import EngineModel, StepResult
from connector_tax.fleet.patterns import Request
from connector_tax.fleet.queues import Queue
from connector_tax.fleet.routers import FULL


class Instance(ABC):
    """One server.

    Attributes:
        profiles: by pattern; all that a gateway knows of loads.
        load: of unfinished requests sent here.
    """

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self.profiles = profiles
        self.load = 0.0
        self._held = 0

    def load_of(self, request: Request) -> float:
        return self.profiles[request.pattern.name].load

    def submit(self, request: Request, now_ns: int) -> None:
        """Accept a request; ``proceed`` begins the work, once all arrivals of this instant are in."""
        self._held += 1
        self.load += self.load_of(request)
        self._take(request, now_ns)

    def advance(self, now_ns: int) -> list[Request]:
        """Return the requests that finish at ``now_ns``, which is ``next_ns()``; begin nothing new."""
        finished = self._finish(now_ns)
        for request in finished:
            request.t_end_ns = now_ns
            self._held -= 1
            self.load -= self.load_of(request)
        if not self._held:
            # Exactly zero: a rounding residue must not keep a large request out.
            self.load = 0.0
        return finished

    @abstractmethod
    def next_ns(self) -> int | None:
        """Return the time of the next event; None while idle."""

    @abstractmethod
    def proceed(self, now_ns: int) -> None:
        """Begin what can begin now."""

    @abstractmethod
    def _take(self, request: Request, now_ns: int) -> None: ...

    @abstractmethod
    def _finish(self, now_ns: int) -> list[Request]: ...


class ProfileInstance(Instance):
    """An instance that serves requests within capacity in parallel, each in its profile's time."""

    def __init__(self, profiles: Mapping[str, Profile], queue: Queue) -> None:
        super().__init__(profiles)
        self._queue = queue
        self._serving: list[tuple[int, int, Request]] = []
        self._serving_load = 0.0

    def next_ns(self) -> int | None:
        return self._serving[0][0] if self._serving else None

    def proceed(self, now_ns: int) -> None:
        while (request := self._next_that_fits(now_ns)) is not None:
            self._queue.take(request)
            request.t_start_ns = now_ns
            self._serving_load += self.load_of(request)
            end_ns = now_ns + s_to_ns(self.profiles[request.pattern.name].e2e_s)
            heapq.heappush(self._serving, (end_ns, request.seq, request))

    def _take(self, request: Request, now_ns: int) -> None:
        self._queue.put(request)

    def _finish(self, now_ns: int) -> list[Request]:
        finished = []
        while self._serving and self._serving[0][0] <= now_ns:
            request = heapq.heappop(self._serving)[2]
            self._serving_load = self._serving_load - self.load_of(request) if self._serving else 0.0
            finished.append(request)
        return finished

    def _next_that_fits(self, now_ns: int) -> Request | None:
        for request in self._queue.heads(now_ns):
            if not self._serving or self._serving_load + self.load_of(request) <= FULL:
                return request
        return None


class EngineInstance(Instance):
    """A modelled engine: requests wait in its own queue and slow each other down.

    Args:
        outside_ns: from arrival here to the engine's queue: server, tokenizer, network.
    """

    def __init__(self, profiles: Mapping[str, Profile], model: EngineModel, outside_ns: int = 0) -> None:
        super().__init__(profiles)
        self._model = model
        self._outside_ns = outside_ns
        self._entering: deque[tuple[int, Request]] = deque()
        self._inside: dict[int, Request] = {}
        self._before_first: set[int] = set()
        self._step: StepResult | None = None
        self._step_end_ns = 0

    def next_ns(self) -> int | None:
        times = [self._step_end_ns] if self._step is not None else []
        return min([*times, self._entering[0][0]] if self._entering else times, default=None)

    def proceed(self, now_ns: int) -> None:
        while self._entering and self._entering[0][0] <= now_ns:
            request = self._entering.popleft()[1]
            self._inside[request.seq] = request
            self._before_first.add(request.seq)
            self._model.add(request.seq, request.pattern.input_tokens, request.pattern.output_tokens)
        if self._step is None and self._model.has_work:
            self._step = self._model.step()
            self._step_end_ns = now_ns + self._step.duration_ns

    def _take(self, request: Request, now_ns: int) -> None:
        self._entering.append((now_ns + self._outside_ns, request))

    def _finish(self, now_ns: int) -> list[Request]:
        if self._step is None or self._step_end_ns > now_ns:
            return []
        for seq in self._before_first.intersection(self._step.tokens):
            # Waiting ends with the first token: an engine does not report when it begins a prompt.
            self._inside[seq].t_start_ns = now_ns
            self._before_first.discard(seq)
        finished = [self._inside.pop(seq) for seq in self._step.finished]
        self._step = None
        return finished
