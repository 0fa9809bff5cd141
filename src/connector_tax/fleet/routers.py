"""Routers: choose an instance for a request, given each instance's load with and without it.

A pushing router always names an instance, and the request waits there. A pulling router names only instances
with room, and the request waits at the gateway. An idle instance has room for any request.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connector_tax.fleet.patterns import Request

# Tolerance, since loads are sums of floats: ten times 0.1 must still fit.
FULL = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate: one request on one instance, as the gateway sees it.

    Attributes:
        urgency: index among the queue's heads, 0 first.
        load, load_after: of unfinished requests sent to the instance, without and with this one.
    """

    request: Request
    urgency: int
    instance: int
    load: float
    load_after: float

    @property
    def fits(self) -> bool:
        return self.load_after <= FULL or self.load == 0.0


Choose = Callable[[Sequence[Placement], random.Random], Placement]


@dataclass(frozen=True, slots=True)
class Router:
    """A router; ``choose`` gets all placements, or if ``pulls`` only those that fit."""

    pulls: bool
    choose: Choose


def anywhere(placements: Sequence[Placement], rng: random.Random) -> Placement:
    return placements[rng.randrange(len(placements))]


def least_load(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """Choose the most urgent request and its least loaded instance."""
    return min(placements, key=lambda p: (p.urgency, p.load_after, p.instance))


def best_fit(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """Choose the request and the instance that leave the least room."""
    return min(placements, key=lambda p: (-p.load_after, p.urgency, p.instance))


ROUTERS = {
    "random_push": Router(False, anywhere),
    "least_load_push": Router(False, least_load),
    "least_load_pull": Router(True, least_load),
    "binpack_pull": Router(True, best_fit),
}
