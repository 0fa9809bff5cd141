"""Simulates one day of a fleet in virtual time: Poisson arrivals, a gateway, instances."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from connector_tax.base.documents.fleet import Policy
from connector_tax.base.seeds import derive_seed
from connector_tax.base.units import s_to_ns
from connector_tax.fleet.instances import Instance
from connector_tax.fleet.patterns import Pattern, Request
from connector_tax.fleet.queues import QUEUES, Queue
from connector_tax.fleet.routers import ROUTERS, Placement, Router
from connector_tax.run.workload.arrivals import Schedule


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
