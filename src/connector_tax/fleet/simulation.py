"""Simulates one day of a fleet in virtual time: Poisson arrivals, a gateway, instances."""

import heapq
import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np
from numpy.typing import ArrayLike

from connector_tax.base.documents.fleet import Mean, Policy, Profile
from connector_tax.base.seeds import derive_seed
from connector_tax.base.statistics.distributions import student_quantile
from connector_tax.base.units import NS_PER_S, s_to_ns
from connector_tax.base.vllm_model.model import EngineModel, StepResult
from connector_tax.fleet.policies import FULL, QUEUES, ROUTERS, Pattern, Placement, Queue, Request, Router
from connector_tax.run.workload.arrivals import Schedule

# Instances behind the gateway: by profile or by engine model.
#
# The caller keeps the clock: it asks when the next event is due and reports when that time has come.


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


@dataclass(frozen=True, slots=True)
class Day:
    """The result of one simulation.

    Attributes:
        requests: scheduled in the window, in order of arrival; all have ended.
        ended: requests that ended in the window, whenever they arrived.
        loads: mean load of each instance over the window, shape (instances,), waiting included; 1 is full.
    """

    requests: list[Request]
    ended: int
    loads: list[float]


Due = list[tuple[int, Pattern]]


def arrivals(patterns: Sequence[Pattern], until_s: float, seed: int) -> Due:
    """Draw Poisson arrivals in [0, ``until_s``) as (time in ns, pattern), in order.

    Each pattern has its own stream, and a higher rate compresses the same stream: policies, configurations
    and loads are compared under the same draws.
    """
    due: Due = []
    for pattern in patterns:
        schedule = Schedule("poisson", pattern.rate_per_s, derive_seed(seed, "fleet", pattern.name))
        due += [
            (t, pattern)
            for t in takewhile(lambda t: t < s_to_ns(until_s), map(schedule.__getitem__, count()))
        ]
    return sorted(due, key=lambda a: (a[0], a[1].name))


def simulate(
    due: Due,
    instances: Sequence[Instance],
    policy: Policy,
    *,
    begin_s: float,
    end_s: float,
    seed: int,
) -> Day:
    """Send the ``due`` arrivals to ``instances``, which are idle before and after.

    Args:
        begin_s, end_s: the window whose requests are kept.
    """
    gateway = _Gateway(instances, ROUTERS[policy.router], QUEUES[policy.queue](), derive_seed(seed, "router"))
    begin_ns, end_ns = s_to_ns(begin_s), s_to_ns(end_s)
    load = _MeanLoad(instances, begin_ns, end_ns)
    requests: list[Request] = []
    while True:
        soonest = min(
            ((t, i) for i, instance in enumerate(instances) if (t := instance.next_ns()) is not None),
            default=None,
        )
        arrival_ns = due[len(requests)][0] if len(requests) < len(due) else None
        if soonest is not None and (arrival_ns is None or soonest[0] <= arrival_ns):
            load.until(soonest[0])
            if instances[soonest[1]].advance(soonest[0]):
                gateway.dispatch(soonest[0])
            gateway.proceed(soonest[0], soonest[1])
        elif arrival_ns is not None:
            load.until(arrival_ns)
            requests.append(gateway.arrive(len(requests), due[len(requests)][1], arrival_ns))
            gateway.proceed(arrival_ns)
        else:
            break
    window = [r for r in requests if begin_ns <= r.t_sched_ns < end_ns]
    ended = sum(1 for r in requests if r.t_end_ns is not None and begin_ns <= r.t_end_ns < end_ns)
    return Day(window, ended, load.means())


class _Gateway:
    """Routes arrivals, and holds requests that a pulling router has not placed yet."""

    def __init__(self, instances: Sequence[Instance], router: Router, queue: Queue, seed: int) -> None:
        self._instances = instances
        self._router = router
        self._queue = queue
        self._random = random.Random(seed)
        self._sent_to: set[int] = set()

    def arrive(self, seq: int, pattern: Pattern, now_ns: int) -> Request:
        expected_s = min(i.profiles[pattern.name].e2e_s for i in self._instances)
        request = Request(seq, pattern, now_ns, s_to_ns(expected_s))
        if self._router.pulls:
            self._queue.put(request)
            self.dispatch(now_ns)
        else:
            self._send(self._router.choose(self._placements(request), self._random), now_ns)
        return request

    def dispatch(self, now_ns: int) -> None:
        """Place waiting requests until none fits."""
        while heads := self._queue.heads(now_ns):
            fitting = [
                p for urgency, head in enumerate(heads) for p in self._placements(head, urgency) if p.fits
            ]
            if not fitting:
                break
            placement = self._router.choose(fitting, self._random)
            self._queue.take(placement.request)
            self._send(placement, now_ns)

    def proceed(self, now_ns: int, *further: int) -> None:
        """Let instances that got a request, and ``further``, begin what they can."""
        for index in sorted(self._sent_to.union(further)):
            self._instances[index].proceed(now_ns)
        self._sent_to.clear()

    def _placements(self, request: Request, urgency: int = 0) -> list[Placement]:
        return [
            Placement(request, urgency, i, instance.load, instance.load + instance.load_of(request))
            for i, instance in enumerate(self._instances)
        ]

    def _send(self, placement: Placement, now_ns: int) -> None:
        placement.request.instance = placement.instance
        self._instances[placement.instance].submit(placement.request, now_ns)
        self._sent_to.add(placement.instance)


class _MeanLoad:
    """Time integral of each instance's load over the window."""

    def __init__(self, instances: Sequence[Instance], begin_ns: int, end_ns: int) -> None:
        self._instances = instances
        self._begin_ns = begin_ns
        self._end_ns = end_ns
        self._now_ns = 0
        self._area = [0.0] * len(instances)

    def until(self, now_ns: int) -> None:
        """Add the current loads over the time since the last call."""
        span_ns = min(now_ns, self._end_ns) - max(self._now_ns, self._begin_ns)
        if span_ns > 0:
            for i, instance in enumerate(self._instances):
                self._area[i] += instance.load * span_ns
        self._now_ns = now_ns

    def means(self) -> list[float]:
        return [area / (self._end_ns - self._begin_ns) for area in self._area]


# Turns simulated days into figures (waiting, E2E, SLO violations, load imbalance) and means over days.

# Completions over arrivals from which on nothing is saturated; same share as for a measured cell.
KEPT_UP = 0.95
METRICS = (
    "requests",
    *("wait_mean_s", "wait_p90_s", "e2e_mean_s", "e2e_p90_s", "violations", "goodput_per_s", "kept_up"),
    "hotspot",
)


def mean_of(values: ArrayLike, confidence: float) -> Mean | None:
    """Average over days with Student's t interval; NaN is a day without the figure. None if all are NaN."""
    known_values = np.asarray(values, dtype=np.float64)
    known_values = known_values[~np.isnan(known_values)]
    n_days = known_values.size
    if n_days == 0:
        return None
    point = float(known_values.mean())
    if n_days < 2:
        return Mean(point, None, None, n_days)
    half_width = (
        float(student_quantile(0.5 + confidence / 2, n_days - 1))
        * float(known_values.std(ddof=1))
        / math.sqrt(n_days)
    )
    return Mean(point, point - half_width, point + half_width, n_days)


def mean_of_shares(shares: ArrayLike, counts: ArrayLike, confidence: float) -> Mean | None:
    """Average shares, with interval bounds in [0, 1].

    If the share was 0 or 1 on every day, the open bound is that of as many draws (Clopper & Pearson 1934).

    Args:
        counts: requests behind each day's share.
    """
    mean = mean_of(shares, confidence)
    if mean is None or mean.low is None or mean.high is None:
        return mean
    low, high = max(mean.low, 0.0), min(mean.high, 1.0)
    unseen = 1 - ((1 - confidence) / 2) ** (1 / float(np.nansum(counts)))
    if mean.point == 0:
        high = unseen
    elif mean.point == 1:
        low = 1 - unseen
    return Mean(mean.point, low, high, mean.days)


def figures_of(day: Day, window_s: float, requests: Sequence[Request] | None = None) -> dict[str, float]:
    """Compute the ``METRICS`` of one day; NaN without requests.

    ``violations`` is a share of requests. ``goodput_per_s`` counts those within their SLO. ``kept_up`` is the
    number of requests that ended in the window over those that came in it, of the whole day also with
    ``requests``. ``hotspot`` is the highest mean load of an instance over the mean of all; 1 is even.

    Args:
        requests: a subset of the day's.
    """
    chosen = day.requests if requests is None else requests
    mean_load = float(np.mean(day.loads))
    hotspot = max(day.loads) / mean_load if mean_load else math.nan
    of_all = {"kept_up": day.ended / len(day.requests) if day.requests else math.nan, "hotspot": hotspot}
    if not chosen:
        return {**dict.fromkeys(METRICS, math.nan), "requests": 0.0, "goodput_per_s": 0.0, **of_all}
    wait_s = np.array([((r.t_start_ns or 0) - r.t_sched_ns) / NS_PER_S for r in chosen])
    e2e_s = np.array([((r.t_end_ns or 0) - r.t_sched_ns) / NS_PER_S for r in chosen])
    within_slo = e2e_s <= np.array([r.pattern.slo_s for r in chosen])
    return {
        "requests": float(len(chosen)),
        "wait_mean_s": float(wait_s.mean()),
        "wait_p90_s": float(np.quantile(wait_s, 0.9)),
        "e2e_mean_s": float(e2e_s.mean()),
        "e2e_p90_s": float(np.quantile(e2e_s, 0.9)),
        "violations": float(1 - within_slo.mean()),
        "goodput_per_s": float(within_slo.sum() / window_s),
        **of_all,
    }
